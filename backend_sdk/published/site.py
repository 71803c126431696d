"""The contract as web pages: static files that need nothing from elsewhere.

Does not: define, measure or classify: it shows the document, the special cases, the backends and the versions' changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from backend_sdk.errors import OptionError
from backend_sdk.prims import CONTRACT
from backend_sdk.published import decomposers, special_cases, support
from backend_sdk.published.decomposers import Origin
from backend_sdk.published.diff import Action, Diff, compare, in_words
from backend_sdk.published.document import load, published_versions, schema, text_of
from backend_sdk.published.export import document
from backend_sdk.published.markup import Markup, docstring, element, joined, link, table
from backend_sdk.published.measured import gradients, measured
from backend_sdk.published.support import Answer, Asked
from backend_sdk.published.version import RELEASES, VERSION

_YES, _NO = "yes", "no"

# A longer table is folded away.
_MOST_OPEN_ROWS = 24


# Which files of a folder were written here, with the SHA-256 of each.
_MANIFEST = ".backend-sdk-pages.json"


def write_site(
    folder: Path, names: Sequence[str], backends: Sequence[str] | None = None, *, force: bool = False
) -> list[Path]:
    """Write the pages of the ops ``names`` with index, versions, document and schema into ``folder``; return the files.

    ``backends`` are asked which ops they have (default: all installed). Raises `UnknownBackendError` for one that no
    package provides, and `OptionError` before anything is written when a file stands in the way that is not as an
    earlier call wrote it; ``force`` overwrites it.
    """
    spec = document(gradients=gradients())
    ops = {op["name"]: op for op in spec["ops"]}
    asked = support.ask([CONTRACT[name] for name in names], backends)
    origins, users = decomposers.origins(), decomposers.users(spec)
    texts = {
        "style.css": files("backend_sdk.published").joinpath("style.css").read_text(encoding="utf-8"),
        "spec.json": text_of(spec),
        "spec.schema.json": json.dumps(schema(), indent=1) + "\n",
        "index.html": _index(spec, [ops[name] for name in names]),
        "versions.html": _versions(spec),
    }
    for name in names:
        page = _Page(ops[name], frozenset(names), asked, origins.get(name, []), users.get(name, []))
        texts[f"op/{name}.html"] = page.text()
    written = _written(folder)
    foreign = [name for name in texts if _digest_of(folder / name) not in (None, written.get(name))]
    if foreign and not force:
        raise OptionError(
            f"{folder} has {', '.join(foreign[:5])}{', ...' if len(foreign) > 5 else ''}, which `spec pages` has not "
            "written, or which was changed since",
            hint="name another folder, or overwrite them with --force",
        )
    (folder / "op").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    digests = {**written, **{name: _digest_of(folder / name) for name in texts}}
    (folder / _MANIFEST).write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return [folder / name for name in texts]


def _written(folder: Path) -> dict[str, str]:
    """The files that an earlier call wrote into a folder; none when it has no list of them."""
    try:
        found = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _digest_of(path: Path) -> str | None:
    """The SHA-256 of a file, in hexadecimal; None when there is nothing at ``path``."""
    if not path.exists():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "a folder"


def _document(title: str, root: str, *content: str) -> str:
    """A whole page. ``root`` leads from it to the index."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("link", rel="stylesheet", href=f"{root}style.css"),
    )
    navigation = element(
        "nav",
        element("a", "All ops", href=f"{root}index.html"),
        element("a", "Versions", href=f"{root}versions.html"),
        element("a", "JSON", href=f"{root}spec.json"),
    )
    body = element("body", navigation, element("main", *content))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


# ---- index


_SEARCH = """
const field = id => document.getElementById(id);
const rows = [...document.querySelectorAll("#ops tbody tr")];
function filter() {
  const words = field("words").value.toLowerCase().split(/\\s+/).filter(Boolean);
  const kind = field("kind").value, profile = field("profile").value;
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    const has = words.every(word => text.includes(word))
      && (!kind || row.dataset.kind === kind)
      && (!profile || row.dataset.profiles.split(" ").includes(profile));
    row.hidden = !has;
    shown += has;
  }
  field("count").textContent = `${shown} of ${rows.length} ops`;
}
for (const id of ["words", "kind", "profile"]) field(id).addEventListener("input", filter);
filter();
"""


def _part_of(spec: Mapping[str, Any], ops: Sequence[Mapping[str, Any]]) -> list[str]:
    """What an index says that does not list all ops of the contract."""
    if len(ops) == len(spec["ops"]):
        return []
    said = (
        f"A part of the contract: {len(ops)} of its {len(spec['ops'])} ops have a page here. The hash is that of the "
        "whole contract, and the JSON document holds all of it."
    )
    return [element("p", said)]


def _index(spec: Mapping[str, Any], ops: Sequence[Mapping[str, Any]]) -> str:
    prims = sum(op["kind"] == "prim" for op in spec["ops"])
    rows = []
    for op in ops:
        cells = [
            element("th", link(op["name"], f"op/{op['name']}.html"), scope="row"),
            element("td", op["kind"]),
            element("td", docstring(_first_sentence(op["doc"]), lambda _: None)),
            element("td", ", ".join(op["profiles"])),
        ]
        rows.append(element("tr", *cells, data_kind=op["kind"], data_profiles=" ".join(op["profiles"])))
    head = element("tr", *(element("th", name, scope="col") for name in ("op", "kind", "computes", "profiles")))
    used = [profile["name"] for profile in spec["profiles"] if profile["ops"]]
    return _document(
        "The contract of Backend SDK",
        "",
        element("h1", "The contract of Backend SDK"),
        element(
            "p",
            f"Version {spec['version']}: {prims} prims and {len(spec['ops']) - prims} composites. A backend that has "
            "the prims of a profile runs everything in it: the body of a composite takes the composite's place.",
        ),
        *_part_of(spec, ops),
        element("p", element("code", spec["hash"]), class_="hash"),
        element(
            "form",
            element("label", "Search ", element("input", id="words", type="search", placeholder="name or words")),
            _choice("kind", "Kind ", ["prim", "composite"]),
            _choice("profile", "Profile ", used),
            element("output", id="count"),
            onsubmit="return false",
        ),
        element("div", element("table", element("thead", head), element("tbody", *rows), id="ops"), class_="wide"),
        element("script", Markup(_SEARCH)),
    )


def _choice(name: str, label: str, choices: Sequence[str]) -> Markup:
    options = [element("option", "all", value=""), *(element("option", choice) for choice in choices)]
    return element("label", label, element("select", *options, id=name))


def _first_sentence(doc: str) -> str:
    """The first paragraph up to a full stop that ends a sentence."""
    paragraph = " ".join(doc.strip().split("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph if end < 0 else paragraph[: end + 1]


# ---- one op


class _Page:
    """The page of one op."""

    def __init__(
        self,
        op: Mapping[str, Any],
        pages: frozenset[str],
        asked: Sequence[Asked],
        origins: Sequence[Origin],
        users: Sequence[str],
    ) -> None:
        self._op = op
        self._pages = pages
        self._asked = asked
        self._origins = origins
        self._users = users

    def text(self) -> str:
        """The whole page."""
        op = self._op
        sections = [
            ("What it computes", docstring(op["doc"], self._place)),
            ("Signature", self._signature()),
            ("Special cases", self._special_cases()),
            ("Tolerance", self._tolerance()),
            ("Gradient", self._gradient()),
            ("Body" if op["kind"] == "composite" else "Reference", self._source()),
            ("Examples", self._calls("examples")),
            ("Empty and 0-d tensors", self._calls("edge_cases")),
            ("Who decomposes to it", self._decomposers()),
            ("Backends", self._backends()),
        ]
        about = f"{op['kind']} of the profiles {', '.join(op['profiles'])}"
        if len(op["profiles"]) == 1:
            about = f"{op['kind']} of the profile {op['profiles'][0]}"
        flags = [word for word in ("elementwise", "structural") if op[word]]
        return _document(
            f"{op['name']} - contract of Backend SDK {VERSION}",
            "../",
            element("h1", element("code", op["name"])),
            element("p", ", ".join([about, *flags])),
            element("pre", element("code", f"{op['name']}{op['signature']}"), class_="signature"),
            *(element("section", element("h2", title), content) for title, content in sections if content),
            element("p", element("code", op["hash"]), class_="hash"),
        )

    def _place(self, name: str) -> str | None:
        return f"{name}.html" if name in self._pages else None

    def _ops(self, names: Sequence[str]) -> Markup:
        linked = (link(name, f"{name}.html") if name in self._pages else element("code", name) for name in names)
        return joined(linked, ", ")

    def _signature(self) -> Markup:
        op = self._op
        rows = []
        for operand in op["operands"]:
            notes = [word for word in ("optional", "variadic") if operand[word]]
            words = {"optional": "may be absent", "variadic": "one or more"}
            rows.append((f"{operand['name']}", self._dtype(operand["dtype"]), ", ".join(words[note] for note in notes)))
        for index, result in enumerate(op["results"]):
            label = "result" if len(op["results"]) == 1 else f"result {index}"
            rows.append((label, self._dtype(result), ""))
        parts = [table(("operand", "dtype", ""), rows)]
        if op["attributes"]:
            attributes = [
                (
                    attribute["name"],
                    attribute["type"],
                    ", ".join(attribute.get("values", attribute.get("dtypes", []))),
                )
                for attribute in op["attributes"]
            ]
            parts.append(table(("attribute", "type", "values"), attributes))
        variables = [
            element("p", element("code", name), " is one of ", ", ".join(dtypes), ".")
            for name, dtypes in op["dtype_variables"].items()
        ]
        return joined([*parts, *variables])

    def _dtype(self, source: Mapping[str, str]) -> str:
        words = {
            "attribute": "the attribute ",
            "real part of": "the real counterpart of ",
            "complex of": "the complex counterpart of ",
        }
        return joined([words.get(source["from"], ""), element("code", source["name"])])

    def _special_cases(self) -> Markup:
        op = self._op
        found = special_cases.tables(CONTRACT[op["name"]], dict(op))
        parts: list[str] = []
        if found:
            said = "What the reference gives, computed when this page was made."
            if any(special_cases.UNDEFINED in row for one in found for row in one.rows):
                said += " Undefined: the contract promises no value, and a backend may give any."
            parts.append(element("p", said))
        for one in found:
            parts.append(element("h3", one.title))
            parts.append(table(one.header, one.rows, class_="numbers"))
        values = [
            (dtype, ", ".join(_value(value) for value in values)) for dtype, values in op["special_values"].items()
        ]
        listed = table(("dtype", "values"), values)
        summary = element("summary", "The special values of the op")
        checked = element(
            "p",
            "The SDK's own tests check the reference on them, in floats of elementwise ops without attributes. "
            "`backend-sdk doctor` does not put them to a backend; `backend-sdk coverage --prove --backend NAME` puts "
            "special values to it through aten's elementwise overloads.",
        )
        return joined([*parts, element("details", summary, checked, listed)])

    def _tolerance(self) -> Markup:
        by_bound: dict[str, list[str]] = {}
        for dtype, bound in self._op["tolerance"].items():
            by_bound.setdefault(in_words(bound), []).append(dtype)
        return table(("results of", "may differ by"), [(", ".join(names), bound) for bound, names in by_bound.items()])

    def _gradient(self) -> Markup:
        op, path = self._op, self._op["gradient"]
        if not op["differentiable"]:
            return element("p", "None: no gradient reaches its operands.")
        if path is None:
            return element(
                "p", "Differentiable; how the gradient reaches the contract was not measured for this definition."
            )
        said = element(
            "p",
            f"Autograd of {path['through']} with respect to {', '.join(path['operands'])} adds these aten ops, which "
            f"become prims (run in {path['dtype']} with torch {path['torch']}):",
        )
        if not path["aten"]:
            return element("p", f"Autograd of {path['through']} hands the gradient on as it is: it adds no op.")
        rows = [
            (element("code", aten), self._ops(ops) if ops else "nothing: it moves no data")
            for aten, ops in path["aten"].items()
        ]
        return joined([said, table(("aten op", "becomes"), rows)])

    def _source(self) -> Markup:
        op = self._op
        code = element("pre", element("code", op["source"]))
        if op["kind"] == "prim":
            return element("details", element("summary", "The code that defines it"), code)
        made = element("p", "On a backend that does not claim it, it becomes ", self._ops(op["prims"]), ".")
        return joined([made, code])

    def _calls(self, field: str) -> Markup:
        rows = []
        for example in self._op[field]:
            given = [*("None" if x is None else x for x in example["operands"])]
            given += [f"{name}={_attribute(value)}" for name, value in example["attributes"].items()]
            rows.append(
                (
                    element("code", f"{self._op['name']}({', '.join(given)})"),
                    element("code", ", ".join(example["results"])),
                )
            )
        return table(("call", "results"), rows) if rows else Markup("")

    def _decomposers(self) -> Markup:
        parts: list[str] = []
        if self._users:
            parts.append(element("p", "Bodies of composites: ", self._ops(self._users), "."))
        if self._origins:
            made = measured()["reductions"]
            rows = [
                (element("code", origin.overload), _YES if origin.by_rule else "", _YES if origin.measured else "")
                for origin in self._origins
            ]
            said = element(
                "p",
                'aten overloads. "A rule of ours": the rule names the op, and a call may need it. "Seen": it did, in a '
                f"proof over {made['items']} items of torch's catalogue with {_made_with(made)}.",
            )
            listed = table(("overload", "a rule of ours", "seen"), rows)
            if len(rows) > _MOST_OPEN_ROWS:
                listed = element("details", element("summary", f"{len(rows)} overloads"), listed)
            parts += [said, listed]
        return joined(parts) or element("p", "Nothing seen.")

    def _backends(self) -> Markup:
        rows = []
        for one in self._asked:
            name = f"{one.name} {one.version}".strip()
            if one.error:
                rows.append((name, f"does not load: {one.error}", ""))
                continue
            answer = one.answers[self._op["name"]]
            note = "" if one.computes else "claims only: it computes nothing"
            rows.append((name, joined([_has(answer, self._op["kind"])]), note or _refusals(answer)))
        return table(("backend", "has it in", ""), rows)


def _made_with(made: Mapping[str, Any]) -> str:
    releases = sorted({one["torch"] for one in made["made_by"]})
    return f"torch {', '.join(releases)}, {' and '.join(one['level'] for one in made['made_by'])}"


def _has(answer: Answer, kind: str) -> str:
    if answer.takes or answer.takes_some:
        some = f"; some calls in {', '.join(answer.takes_some)}" if answer.takes_some else ""
        return f"{', '.join(answer.takes)}{some}".removeprefix("; ")
    return "not whole; runs its body" if kind == "composite" else _NO


def _refusals(answer: Answer) -> str:
    by_reason: dict[str, list[str]] = {}
    for dtype, reason in answer.refusals.items():
        by_reason.setdefault(reason, []).append(dtype)
    if len(by_reason) == 1 and not answer.takes:
        return next(iter(by_reason))
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def _value(value: Any) -> str:
    return (
        f"{value[0]} + {value[1]}i"
        if isinstance(value, list)
        else str(value).lower()
        if value in (True, False)
        else str(value)
    )


def _attribute(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(_attribute, value))}{',' if len(value) == 1 else ''})"
    return str(value)


# ---- versions


def _versions(spec: Mapping[str, Any]) -> str:
    """What each version asks of a vendor who has the one before."""
    published = {version: load(version) for version in published_versions()}
    parts: list[str] = []
    names = list(published)
    if published.get(spec["version"], {}).get("hash") != spec["hash"]:
        parts.append(element("h2", "Not published"))
        parts.append(element("p", "The contract of this checkout differs from what its version publishes."))
        if names:
            parts.append(_changes(compare(published[names[0]], spec)))
    for release in RELEASES:
        parts.append(element("h2", release.version))
        parts.append(element("p", f"Released on {release.date}." if release.date else "Not released yet."))
        parts.append(element("p", release.summary))
        if release.version not in published:
            continue
        parts.append(element("p", element("code", published[release.version]["hash"]), class_="hash"))
        older = names[names.index(release.version) + 1 :]
        if older:
            parts.append(_changes(compare(published[older[0]], published[release.version])))
        else:
            parts.append(_first(published[release.version]))
    return _document("Versions of the contract", "", element("h1", "Versions of the contract"), _semver(), *parts)


def _semver() -> Markup:
    return element(
        "p",
        "A version moves by what a backend that was right for the one before is without a change: wrong or broken "
        "(major), right but without something that it may run (minor), the same (patch).",
    )


def _first(spec: Mapping[str, Any]) -> Markup:
    kinds = {op["name"]: op["kind"] for op in spec["ops"]}
    rows = []
    for profile in spec["profiles"]:
        prims = sum(kinds[name] == "prim" for name in profile["ops"])
        rows.append((profile["name"], str(prims), str(len(profile["ops"]) - prims)))
    return joined(
        [
            element("p", "To certify a profile, implement its prims. Composites are yours to claim or leave."),
            table(("profile", "prims", "composites"), rows),
        ]
    )


def _changes(found: Diff) -> Markup:
    parts: list[str] = []
    for action in Action:
        rows = [
            (
                element("code", change.op or "the contract"),
                f"{change.kind}: {change.detail}" if change.detail else change.kind,
                ("only if you claim it: " if change.if_claimed else "") + change.rule.todo,
                ", ".join(change.profiles),
            )
            for change in found.of(action)
        ]
        if rows:
            parts.append(element("h3", f"{action} ({len(rows)})"))
            parts.append(table(("op", "change", "what to do", "profiles"), rows))
    return joined(parts) or element("p", f"Nothing changed since {found.old}.")
