"""Writes what the package holds of the contract: the measurements, and the document of the present version.

Does not: choose the version (`backend_sdk.published.version` says it) or write pages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backend_sdk.errors import OptionError
from backend_sdk.published import measured
from backend_sdk.published.diff import compare
from backend_sdk.published.document import checked, text_of
from backend_sdk.published.export import document
from backend_sdk.published.measured import Proof
from backend_sdk.published.version import RELEASES, VERSION

PACKAGE = Path(__file__).parent

REGENERATE = "backend-sdk spec publish"


def publish(
    folder: Path = PACKAGE,
    *,
    proofs: Sequence[Proof] = (),
    everything: bool = False,
) -> list[Path]:
    """Write the measurements and the document of the present version into ``folder``; return the two files.

    ``proofs`` are coverage proofs that have run; without one, what is known of reductions stays. ``everything``
    measures all gradients anew. Raises `OptionError` when the version is released and
    means something else.
    """
    path = folder / "versions" / f"{VERSION}.json"
    check_release(path, document())
    data = measured.remeasured(proofs, everything=everything)
    numbers = folder / measured.FILE
    numbers.write_text(text_of(data), encoding="utf-8")
    paths = {name: {"torch": data["torch"], **one["path"]} for name, one in data["gradients"].items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(document(gradients=paths)), encoding="utf-8")
    measured.measured.cache_clear()
    return [numbers, path]


def check_release(path: Path, made: Mapping[str, Any], releases: Sequence[Any] = RELEASES) -> None:
    """Raise `OptionError` when the version of ``made`` is released and its document at ``path`` means another thing."""
    release = next(release for release in releases if release.version == made["version"])
    if not release.date or not path.is_file():
        return
    published = checked(path.read_text(encoding="utf-8"), str(path))
    if published["hash"] != made["hash"]:
        least = compare(published, made).least_version
        raise OptionError(
            f"version {release.version} of the contract was released on {release.date} with another meaning",
            hint=f"add a release to RELEASES in backend_sdk/published/version.py, {least} or higher "
            f"(`backend-sdk spec diff {release.version} installed` lists the changes), then `{REGENERATE}`",
        )


def complaint(published: Mapping[str, Any] | None, made: Mapping[str, Any], releases: Sequence[Any] = RELEASES) -> str:
    """What is wrong with the published document of the present version, and what to do; empty when it is current."""
    release = next(release for release in releases if release.version == made["version"])
    if published is None:
        return f"version {release.version} of the contract has no document: run `{REGENERATE}`"
    if published["hash"] == made["hash"]:
        same = {key: value for key, value in published.items() if key != "sdk"}
        if same == json.loads(json.dumps({key: value for key, value in made.items() if key != "sdk"})):
            return ""
        return f"the document of version {release.version} is stale (its meaning is the same): run `{REGENERATE}`"
    changes = compare(published, made)
    listed = "\n".join(f"  {one.op or 'contract'}: {one.kind} {one.detail}".rstrip() for one in changes.changes[:20])
    if release.date:
        todo = (
            f"version {release.version} is released: add a release to RELEASES in backend_sdk/published/version.py, "
            f"{changes.least_version} or higher, then run `{REGENERATE}`"
        )
    else:
        todo = f"version {release.version} is not released yet: run `{REGENERATE}`"
    return f"the contract is not what version {release.version} publishes:\n{listed}\n{todo}"
