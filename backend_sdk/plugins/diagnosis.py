"""What is wrong with the installed plugins, as data: broken ones, collisions, `torch.compile` lines.

Does not: print (`backend_sdk.cli` does), look at the machine, or run a backend's ops
(`backend_sdk.selfcheck`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from backend_sdk.plugins import discovery
from backend_sdk.plugins.discovery import DYNAMO_GROUP, DYNAMO_PREFIX, Declaration
from backend_sdk.plugins.probe import LoadReport
from backend_sdk.plugins.unasked import Unasked


class Status(StrEnum):
    """``warning`` means that something may not work, ``failed`` that something does not."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, what was found, and what to do about it."""

    name: str
    status: Status
    detail: str
    hint: str = ""
    traceback: str = ""


def check_load(report: LoadReport) -> Check:
    """Whether a plugin loads."""
    if report.loads:
        given = ", ".join(f"{count} {what}" for what, count in report.contributes.items() if count)
        detail = f"{report.backend}, version {report.backend_version}" + (f"; adds {given}" if given else "")
        detail = "\n".join([f"{detail} ({report.seconds:.1f} s)", *report.replaces])
        return Check(f"plugin {report.name}", Status.OK, detail)
    return Check(
        f"plugin {report.name}",
        Status.FAILED,
        f"{report.error_type}: {report.error}",
        traceback=report.traceback,
    )


def check_unasked(report: LoadReport, parts: Callable[[str], Mapping[str, list[str]]]) -> Iterator[Check]:
    """A warning for each claim or rule of a plugin that `torch.compile` never asks.

    ``parts(overload)`` gives what a captured graph holds in place of it, each with the contract's ops that it becomes.
    """
    for one in (Unasked(**fields) for fields in report.unasked):
        held = parts(one.overload)
        held = {name: ops for name, ops in held.items() if ops or len(held) == 1}
        listed = ", ".join(f"{name} (contract: {', '.join(ops)})" if ops else name for name, ops in held.items())
        advice = [f"claim {one.instead}"] if one.instead else []
        if held:
            advice.append(f"{'or ' if advice else ''}claim what a captured graph holds in its place: {listed}")
        if not advice:
            advice = ["claim what a captured graph holds in its place: `backend-sdk explain` shows it"]
        yield Check(
            f"plugin {report.name}: {one.overload}",
            Status.WARNING,
            f"{one.sentence} (a program of torch.export may keep it)",
            ", ".join(advice),
        )


def check_limitations(report: LoadReport) -> Iterator[Check]:
    """A warning for each declared limitation whose day has passed."""
    for explanation in report.expired:
        yield Check(
            f"plugin {report.name}: limitation",
            Status.WARNING,
            f"{explanation}; it still holds: such nodes run in eager",
            "take the limitation out of the backend's `limitations` if the fault is mended, else set a new day",
        )


def check_collisions() -> Iterator[Check]:
    """A failed check for each backend name that several distributions claim."""
    for name, declared in sorted(discovery.installed().backends.items()):
        if len(declared) > 1:
            yield Check(
                f"collision {name}",
                Status.FAILED,
                f"backend {name!r} is claimed by " + " and by ".join(f"{d.package} ({d.module})" for d in declared),
                "uninstall all but one: " + " or ".join(f"pip uninstall {d.distribution}" for d in declared),
            )


def check_dynamo_lines(only: str | None = None) -> Iterator[Check]:
    """For each backend (or the one called ``only``): whether `torch.compile` reaches it as ``sdk:NAME``.

    Also a failed check for each ``sdk:`` line that leads to no backend.
    """
    found = discovery.installed()
    for name, declared in sorted(found.backends.items()):
        if only in (None, name):
            yield _check_line(name, declared, found.dynamo_lines.get(DYNAMO_PREFIX + name, ()))
    for line_name, lines in sorted(found.dynamo_lines.items()):
        name = line_name.removeprefix(DYNAMO_PREFIX)
        if name not in found.backends and only in (None, name):
            yield Check(
                f"torch.compile {line_name}",
                Status.FAILED,
                f"{lines[0].package} declares {line_name!r}, but no package has the backend {name!r}",
                f'add to [project.entry-points.{discovery.BACKEND_GROUP}]: {name} = "MODULE"',
            )


def has_dynamo_line(name: str) -> bool:
    """Whether ``sdk:NAME`` is declared and leads to the SDK's compiler for ``name``."""
    line, value = discovery.dynamo_line(name)
    return any(declared.target == value for declared in discovery.installed().dynamo_lines.get(line, ()))


def _check_line(name: str, declared: tuple[Declaration, ...], lines: tuple[Declaration, ...]) -> Check:
    line, value = discovery.dynamo_line(name)
    what = f"torch.compile {line}"
    fix = f'"{line}" = "{value}"'
    if not lines:
        return Check(
            what,
            Status.FAILED,
            f'{declared[0].package} lacks the line by which torch.compile(..., backend="{line}") finds it',
            f"{_place(declared[0])}, add: {fix}",
        )
    elsewhere = [one for one in lines if one.target != value]
    if elsewhere:
        return Check(
            what,
            Status.FAILED,
            f"{elsewhere[0].package} declares {line!r} = {elsewhere[0].value!r}, which is not the SDK's "
            f"compiler for the backend {name!r}",
            f"{_place(elsewhere[0])}, write: {fix}",
        )
    return Check(what, Status.OK, f"{lines[0].package} declares {fix}")


def _place(declaration: Declaration) -> str:
    return f"in [project.entry-points.{DYNAMO_GROUP}] of {declaration.distribution}, then reinstall it"
