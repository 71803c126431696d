"""The pages show the contract in full, link to what exists, and need nothing from elsewhere.

What a vendor would lose: the one page that says what an op has to do.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from backend_sdk import cli
from backend_sdk.prims import CONTRACT
from backend_sdk.published import special_cases
from backend_sdk.published.export import op_data
from backend_sdk.published.markup import Markup, docstring, element
from backend_sdk.published.version import VERSION

SOME = ["exp", "add", "layer_norm", "svd", "scatter", "floor_div", "concat", "full"]

VENDOR = """
import torch
from backend_sdk import Backend, implements, prims
from backend_sdk.plugins import hookimpl

class Acme(Backend):
    name = "acme"
    version = "3"

    @implements(prims.exp, dtypes={torch.float32})
    def exp(x):
        return torch.exp(x)

@hookimpl
def sdk_backends():
    return [Acme]
"""


class _Page(HTMLParser):
    """Links, text and unbalanced tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.open, self.text = [], [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.text += "" if tag in ("a", "code") else " "
        if tag == "a":
            self.links.append(given["href"])
        self.loaded += [given[name] for name in ("src", "srcset") if name in given]
        self.loaded += [given["href"]] if tag == "link" else []
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def words(text):
    return " ".join(text.split())


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = 0
        try:
            cli.main(["spec", "pages", *map(str, arguments)])
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the pages of ``site`` lie, once they are made."""
    return tmp_path_factory.mktemp("pages") / "made" / "site"


@pytest.fixture
def site(packages, run, kept):
    """The pages of some ops on a machine with a vendor's backend and a broken one, made once."""
    if kept.exists():
        return kept
    packages.add("acme-backend", {"acme": packages.module("acme_sdk", VENDOR)})
    packages.add("bad", {"bad": packages.module("bad_sdk", "raise OSError('no driver')")})
    code, output, error = run(kept, *(part for name in SOME for part in ("--op", name)))
    assert (code, error) == (0, "")
    assert f"{len(SOME) + 5} files in {kept}" in words(output)
    return kept


def _text(site, name):
    return words(_Page((site / name).read_text(encoding="utf-8")).text)


def test_pages_are_whole_and_need_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert [page.stem for page in pages if page.parent.name == "op"] == sorted(SOME)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.startswith("<!doctype html>") and 'name="viewport"' in text
        found = _Page(text)
        for target in [*found.links, *found.loaded]:
            if not re.match(r"https://arxiv\.org/abs/\d", target):
                assert (page.parent / target).is_file(), f"{page.name} links to {target}"
        assert all("//" not in target for target in found.loaded)
    assert "@import" not in (site / "style.css").read_text() and "url(" not in (site / "style.css").read_text()


def test_a_page_of_a_prim_says_all_that_a_kernel_has_to_do(site):
    text = _text(site, "op/exp.html")
    for part in (
        "exp(x: Tensor) -> Tensor",
        "e to the power x: 0 at -inf",
        "prim of the profile base, elementwise",
        "T is one of float64, float32, float16, bfloat16, complex128, complex64.",
        "float64, float32 3 ULP",
        "float16, bfloat16 1 ULP",
        "Autograd of the reference with respect to x adds these aten ops",
        "aten.mul.Tensor mul",
        "aten.exp.default yes yes",
        "return torch.exp(x)",
        "exp(float32[3, 5]) float32[3, 5]",
        "acme 3 float32",
        "bad does not load: ",
        "no driver",
        "reference 1 float64, float32, float16, bfloat16, complex128, complex64",
        "null 1",
        "claims only: it computes nothing",
        "sha256:",
    ):
        assert part in text, part
    # Its special values with what the reference gives.
    assert "-inf 0" in text and "nan nan" in text and "3.402823e+38 inf" in text


def test_a_page_of_a_composite_shows_its_body(site):
    text = _text(site, "op/layer_norm.html")
    for part in (
        "composite of the profile base",
        "On a backend that does not claim it, it becomes add, broadcast, div",
        "def layer_norm(",
        "weight T may be absent",
        "statistics_dtype dtype float64, float32, float16, bfloat16",
        "Autograd of the body with respect to x, weight, bias",
        "arXiv:1607.06450",
        "aten.native_layer_norm.default yes yes",
        "reference 1 not whole; runs its body",
        "acme 3 not whole; runs its body",
    ):
        assert part in text, part
    assert "acme 3 no" in _text(site, "op/add.html")
    assert "None: no gradient reaches its operands." in _text(site, "op/floor_div.html")
    assert "hands the gradient on as it is" in _text(site, "op/add.html")
    assert "parts T one or more" in _text(site, "op/concat.html")
    assert "the real counterpart of T" in _text(site, "op/svd.html")
    assert "mode name add, maximum, minimum, multiply, set" in _text(site, "op/scatter.html")


def test_the_index_lists_each_op_with_what_the_search_needs(site):
    source = (site / "index.html").read_text(encoding="utf-8")
    for name in SOME:
        op = CONTRACT[name]
        row = re.search(
            rf'<tr data-kind="{op.kind}" data-profiles="{" ".join(op.profiles)}"><th [^>]*><a [^>]*{name}\.', source
        )
        assert row, name
    assert "sha256:" in source and VERSION in source


def test_the_page_of_versions_says_what_the_first_asks(site):
    text = _text(site, "versions.html")
    assert "Versions of the contract A version moves by" in text
    assert "To certify a profile, implement its prims." in text
    prims = sum(op.kind == "prim" and "base" in op.profiles for op in CONTRACT)
    assert f"base {prims} " in text


def test_a_second_version_shows_what_it_asks(made, changed):
    from backend_sdk.published import site
    from backend_sdk.published.diff import compare

    tighter = changed(lambda ops, spec: ops["exp"]["tolerance"]["float32"].update(ulp=1.0), "2.0.0")
    shown = words(_Page(site._changes(compare(made, tighter))).text)
    assert shown.startswith("must act (1)") and "exp tolerance tightened: float32: was 3 ULP, is 1 ULP" in shown
    assert "Nothing changed since 1.0.0." in site._changes(compare(made, made))
    # A checkout that has moved on from what its version publishes says so.
    assert "Not published" in site._versions(tighter) and "must act (1)" in site._versions(tighter)


def test_unknown_ops_backends_and_folders_are_refused(run, tmp_path):
    code, output, error = run(tmp_path / "site", "--op", "layernorm")
    assert (code, output) == (2, "") and "no op 'layernorm': did you mean layer_norm" in error
    code, _, error = run(tmp_path / "site", "--op", "exp", "--backend", "acmee")
    assert code == 2 and "no installed package provides the backend 'acmee'" in error
    assert not (tmp_path / "site").exists()
    file = tmp_path / "file"
    file.write_text("")
    code, _, error = run(file)
    assert code == 2 and "is a file, not a folder" in error


def test_a_part_of_the_pages_says_that_it_is_one(run, tmp_path, site):
    assert run(tmp_path / "part", "--op", "exp")[0] == 0
    text = " ".join(_Page(_text(tmp_path / "part", "index.html")).text.split())
    assert f"A part of the contract: 1 of its {len(CONTRACT)} ops" in text
    assert "The hash is that of the whole contract" in text and "Version" in text


def test_files_of_others_are_not_overwritten(run, tmp_path):
    index = tmp_path / "index.html"
    index.write_text("mine")
    code, output, error = run(tmp_path, "--op", "exp")
    assert (code, output) == (2, "") and "index.html" in error and "--force" in error
    assert index.read_text() == "mine" and not (tmp_path / "op").exists()
    assert run(tmp_path, "--op", "exp", "--force")[0] == 0
    assert index.read_text() != "mine"
    # What it wrote itself it writes again, and pages of other ops beside them.
    assert run(tmp_path, "--op", "log")[0] == 0
    assert run(tmp_path, "--op", "exp")[0] == 0
    (tmp_path / "op" / "exp.html").write_text("changed by hand")
    code, _, error = run(tmp_path, "--op", "exp")
    assert code == 2 and "exp.html" in error
    assert run(tmp_path, "--op", "log")[0] == 0
    (tmp_path / ".backend-sdk-pages.json").write_text("not json")
    code, _, error = run(tmp_path, "--op", "log")
    assert code == 2 and "index.html" in error


def test_one_backend_can_be_asked_alone(packages, run, tmp_path):
    packages.add("bad", {"bad": packages.module("bad_sdk", "raise SystemExit('loaded though not named')")})
    code, _, _ = run(tmp_path, "--op", "exp", "--backend", "reference")
    assert code == 0
    text = _text(tmp_path, "op/exp.html")
    assert "reference 1" in text and "null" not in text.partition("Backends")[2] and "bad" not in text


def test_text_is_escaped_and_code_in_docstrings_marked():
    assert element("p", "<b>", title='"') == '<p title="&quot;">&lt;b&gt;</p>'
    assert element("p", Markup("<b>")) == "<p><b></p>"
    found = docstring("a ``x < y``,\n`exp` and `other`.\n\nSee arXiv:1234.56789.", {"exp": "exp.html"}.get)
    assert found == (
        "<p>a <code>x &lt; y</code>,\n"
        '<a href="exp.html"><code>exp</code></a> and <code>other</code>.</p>'
        '<p>See <a href="https://arxiv.org/abs/1234.56789">arXiv:1234.56789</a>.</p>'
    )


def test_special_cases_are_what_the_reference_gives():
    def of(name):
        op = CONTRACT[name]
        return special_cases.tables(op, op_data(op))

    (sqrt,) = of("sqrt")
    assert dict(sqrt.rows)["-inf"] == "nan" and dict(sqrt.rows)["-0"] == "-0" and sqrt.header == ("x", "sqrt(x)")
    floats, integers = of("maximum")[:2]
    assert floats.header[0] == "x \\ y" and floats.rows[0][1:] == ("nan",) * 8
    assert integers.title == "int32"
    (quotients,) = of("floor_div")
    assert quotients.rows[1][1] == "undefined" and quotients.rows[4][4] == "-4"
    whole = next(dict(table.rows) for table in of("convert") if table.title == "float32, dtype=int64")
    assert whole["nan"] == whole["inf"] == whole["-inf"] == "undefined" and whole["1"] == "1"
    (shifts,) = of("shift_left")
    row = dict(zip(shifts.header, shifts.rows[1], strict=True))
    assert row["-1"] == row["2147483647"] == "undefined" and row["2"] == "4"
    assert [table.title for table in of("gelu")] == ["float32, approximate='none'", "float32, approximate='tanh'"]
    assert not of("cumsum") and not of("select") and not of("svd")


def test_every_op_can_be_shown(made):
    from backend_sdk.published import decomposers, site

    origins, users = decomposers.origins(), decomposers.users(made)
    names = frozenset(op["name"] for op in made["ops"])
    for op in made["ops"]:
        page = site._Page(op, names, [], origins.get(op["name"], []), users.get(op["name"], []))
        found = _Page(page.text())
        inside = {Path(target).stem for target in found.links if "/" not in target}
        assert inside <= names
