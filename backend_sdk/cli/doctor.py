"""`backend-sdk doctor`: what works here, what does not, and what to do about it.

Does not: certify a backend (the conformance suite does).
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backend_sdk.cli.exit_codes import BROKEN, CHECK_FAILED, FINE
from backend_sdk.cli.output import console, print_json, table

if TYPE_CHECKING:
    from rich.console import Console

    from backend_sdk.plugins.diagnosis import Check
    from backend_sdk.selfcheck import OpResult


def command(
    backend: Annotated[
        str, typer.Option("--backend", metavar="NAME", help="Look at this backend only, and check its ops.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    private_api: Annotated[
        bool, typer.Option("--private-api", help="Print the private names of torch that the SDK relies on.")
    ] = False,
) -> None:
    """Check this machine, torch and each plugin; with --backend also each op that the backend claims.

    Each plugin is loaded in a process of its own, so a broken one spoils nothing but its own line. The check
    of ops runs each alone on a few samples against a float64 reference: a first check, not a certificate.

    Exit code 1: a check failed. 2: no backend has that name. 3: a plugin is broken or two claim one name.
    """
    if private_api:
        if backend:
            raise typer.BadParameter(
                "--private-api lists what the SDK itself uses of torch, for any backend: leave out --backend, or "
                "--private-api"
            )
        _private_api(json)
        return
    from backend_sdk.cli.environment import check_environment
    from backend_sdk.plugins.diagnosis import Status

    environment = list(check_environment())
    plugins, lines = _check_plugins(backend)
    checks = [*environment, *plugins, *lines]
    broken = any(check.status == Status.FAILED for check in plugins)
    ops = _check_ops(backend) if backend and not broken else []
    failed = any(check.status == Status.FAILED for check in checks) or any(result.failed for result in ops)
    if json:
        print_json({"checks": [_check_data(check) for check in checks], "ops": [_op_data(result) for result in ops]})
    else:
        out = console()
        _print_checks(out, checks)
        if backend and not broken:
            _print_ops(out, backend, ops)
        out.print(_summary(checks, ops))
    raise typer.Exit(BROKEN if broken else CHECK_FAILED if failed else FINE)


def _check_plugins(only: str) -> tuple[list[Check], list[Check]]:
    """Checks of loading, and of the lines for `torch.compile`. Raises `UnknownBackendError` for ``only``."""
    from backend_sdk.plugins import known_backends, load_plugin
    from backend_sdk.plugins.diagnosis import (
        check_collisions,
        check_dynamo_lines,
        check_limitations,
        check_load,
        check_unasked,
    )
    from backend_sdk.plugins.probe import probe

    names = {known.name for known in known_backends()}
    if only and only not in names:
        # Raises, and says which names there are.
        load_plugin(only)
    collisions = {check.name.removeprefix("collision "): check for check in check_collisions()}
    loads = []
    for report in probe([name for name in sorted(names - collisions.keys()) if only in ("", name)]):
        loads += [check_load(report), *check_unasked(report, _parts), *check_limitations(report)]
    relevant = [check for name, check in collisions.items() if only in ("", name)]
    return loads + relevant, list(check_dynamo_lines(only or None))


def _parts(overload: str) -> dict[str, list[str]]:
    import warnings

    from backend_sdk.coverage.parts import parts
    from backend_sdk.torch_compat.overloads import aten_overloads

    with warnings.catch_warnings():
        # The catalogue calls deprecated and beta functions on purpose.
        warnings.simplefilter("ignore")
        return parts(overload) if overload in aten_overloads() else {}


def _check_ops(name: str) -> list[OpResult]:
    from backend_sdk.plugins import get_backend
    from backend_sdk.selfcheck import check_ops

    return check_ops(get_backend(name))


def _print_checks(out: Console, checks: list[Check]) -> None:
    shown = table("check", "status", "found")
    for check in checks:
        shown.add_row(check.name, check.status, f"{check.detail}\nto fix: {check.hint}" if check.hint else check.detail)
    out.print(shown)
    for check in checks:
        if check.traceback:
            out.print(f"{check.name}:\n{check.traceback}", soft_wrap=True)


def _print_ops(out: Console, backend: str, results: list[OpResult]) -> None:
    from backend_sdk import dtypes
    from backend_sdk.plugins import get_backend
    from backend_sdk.selfcheck import Verdict

    dtypes_of_device = get_backend(backend).capability.dtypes
    by_op: dict[tuple[str, str], list[OpResult]] = defaultdict(list)
    refusals: dict[str, set[str]] = defaultdict(set)
    for result in results:
        by_op[result.source, result.op].append(result)
    shown = table("op", "passes", "fails")
    for (source, op), group in by_op.items():
        if all(result.verdict == Verdict.REFUSED for result in group):
            # That a dtype is not the device's says nothing of the op: prefer the reason for one that is.
            own = [result for result in group if result.dtype in dtypes_of_device] or group
            refusals[re.sub(rf"\b{op}\b", "OP", own[0].reason)].add(op)
            continue
        passed = ", ".join(dtypes.name(result.dtype) for result in group if result.verdict == Verdict.PASS)
        failures = [
            f"{dtypes.name(result.dtype)}: {result.verdict}: {result.reason}\n  in {result.call}"
            for result in group
            if result.failed
        ]
        shown.add_row(op if source == "contract" else f"{op} ({source})", passed, "\n".join(failures))
    if shown.row_count:
        out.print(f"Ops of {backend!r}, each alone, against the float64 reference:")
        out.print(shown)
    else:
        out.print(f"{backend!r} claims no op of the contract.")
    for reason, ops in refusals.items():
        text = reason if len(ops) > 1 else re.sub(r"\bOP\b", next(iter(ops)), reason)
        out.print(f"refuses {', '.join(sorted(ops))}: {text}", soft_wrap=True)


def _summary(checks: list[Check], ops: list[OpResult]) -> str:
    """The last line: what failed comes first, so that nobody reads a green line over a red table."""
    from backend_sdk.plugins.diagnosis import Status
    from backend_sdk.selfcheck import Verdict

    failed = sum(check.status == Status.FAILED for check in checks)
    warned = sum(check.status == Status.WARNING for check in checks)
    text = f"{len(checks)} checks: {failed} failed, {warned} warnings."
    if ops:
        count = {verdict: sum(result.verdict == verdict for result in ops) for verdict in Verdict}
        text += f" {len(ops)} ops times dtypes: " + ", ".join(f"{n} {verdict}" for verdict, n in count.items()) + "."
        wrong = sorted({result.op for result in ops if result.verdict in (Verdict.MISMATCH, Verdict.RAISED)})
        if wrong:
            text = f"FAILED: {', '.join(wrong)}. {text}"
    return text


def _check_data(check: Check) -> dict[str, str]:
    return {
        "name": check.name,
        "status": check.status.value,
        "detail": check.detail,
        "hint": check.hint,
        "traceback": check.traceback,
    }


def _op_data(result: OpResult) -> dict[str, Any]:
    from math import isfinite

    from backend_sdk import dtypes

    return {
        "op": result.op,
        "dtype": dtypes.name(result.dtype),
        "verdict": result.verdict.value,
        "ran": result.ran,
        "refused": result.refused,
        # JSON has no infinity.
        "worst": result.worst if isfinite(result.worst) else None,
        "reason": result.reason,
        "call": result.call,
        "source": result.source,
    }


def _private_api(json: bool) -> None:
    from backend_sdk.torch_compat.private_names import PRIVATE_NAMES

    if json:
        print_json(
            [{"name": one.name, "where": one.where, "why": one.why, "breaks": one.breaks} for one in PRIVATE_NAMES]
        )
        return
    shown = table("private name", "where", "why", "breaks when it moves")
    for one in PRIVATE_NAMES:
        shown.add_row(one.name, one.where, one.why, one.breaks)
    console().print(shown)
