"""A loaded plugin: its hook implementations, checked, and what they return, checked.

Does not: find or cache plugins (`backend_sdk.plugins.manager`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pluggy

from backend_sdk.errors import BrokenPluginError, SdkError, nearest
from backend_sdk.plugins import hookspecs
from backend_sdk.plugins.hookspecs import HOOK_PREFIX, PROJECT, ConformanceCase
from backend_sdk.plugins.unasked import Unasked, unasked_claims, unasked_rules

if TYPE_CHECKING:
    import typer

    from backend_sdk.backend import Backend
    from backend_sdk.contract import Pass

_T = TypeVar("_T")

log = logging.getLogger("backend_sdk")

HOOKS: Mapping[str, Callable[..., Any]] = {
    name: function for name, function in vars(hookspecs).items() if name.startswith(HOOK_PREFIX)
}

# What vendor code may raise: a module that calls sys.exit() is as broken as one that raises.
VENDOR_FAILURES = (Exception, SystemExit)


@dataclass(frozen=True)
class Source:
    """Where a plugin comes from. ``distribution`` is empty for one that was registered by a call."""

    name: str
    distribution: str
    version: str
    module: str

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}" if self.distribution else "registered in this process"
        return f"plugin {self.name!r} (module {self.module}, {origin})"

    def broken(self, what: str, hint: str | None = None) -> BrokenPluginError:
        """The error that says what is wrong with this plugin."""
        owner = f"{self.distribution} {self.version}" if self.distribution else f"the module {self.module}"
        return BrokenPluginError(
            f"{self}: {what}",
            hint=hint or f"`backend-sdk doctor` shows the whole traceback; the fault lies in {owner}",
        )

    def raised(self, what: str, error: BaseException) -> BrokenPluginError:
        """The error for vendor code that raised ``error`` during ``what``. Raise it ``from error``."""
        message, hint = (error.message, error.hint) if isinstance(error, SdkError) else (str(error), None)
        return self.broken(f"{what} raised {type(error).__name__}: {message}", hint)


class Plugin:
    """Hook implementations of one plugin under its own pluggy manager, so that no other plugin sees a call.

    Raises `BrokenPluginError` when it is made, or when a part is first asked for, and that part breaks the
    contract of its hook; ``__cause__`` is the plugin's own exception where there is one.
    """

    def __init__(self, source: Source, implementations: object, backend: Backend | None = None) -> None:
        self.source = source
        self._manager = _manager_of(source, implementations)
        self._rules: Mapping[Any, Callable[..., Any]] | None = None
        self.backend = backend if backend is not None else self._own_backend()
        self._warn(unasked_claims(self.backend))

    @property
    def name(self) -> str:
        return self.source.name

    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        """Rules by aten overload, for the backends of this plugin only. The hook is called once.

        Logs which rules of the SDK's they stand in for (`replaced_rules`), and warns of those that are never asked.
        """
        if self._rules is None:
            self._rules = self._checked_rules()
            self._warn(unasked_rules(self._rules))
            for line in self.replaced_rules():
                log.info("%s: %s, for its own backends only", self.source, line)
        return self._rules

    def replaced_rules(self) -> list[str]:
        """Which of its rules are asked before a rule of the SDK's for the same overload, in words."""
        from backend_sdk.decomp.registry import all_rules, rule_name

        own = self.decompositions()
        ours = all_rules() if own else {}
        return [
            f"its rule {rule_name(rule)} for {overload} comes before the SDK's rule {rule_name(ours[overload])}"
            for overload, rule in own.items()
            if overload in ours
        ]

    def unasked(self) -> list[Unasked]:
        """Its claims and rules that are never asked under `torch.compile`."""
        return [*unasked_claims(self.backend), *unasked_rules(self.decompositions())]

    def _warn(self, unasked: Iterable[Unasked]) -> None:
        for one in unasked:
            instead = f"; claim {one.instead}" if one.instead else ""
            log.warning(
                "%s: %s%s (`backend-sdk doctor --backend %s` says more)", self.source, one.sentence, instead, self.name
            )

    def _checked_rules(self) -> Mapping[Any, Callable[..., Any]]:
        from backend_sdk.decomp.registry import rule_name, signature_fault
        from backend_sdk.spec import Prim
        from backend_sdk.torch_compat.ops import is_overload, overload_advice

        rules: dict[Any, Callable[..., Any]] = {}
        for result in self._call("sdk_decompositions"):
            if not isinstance(result, Mapping):
                self._refuse("sdk_decompositions", result, "a mapping from aten overloads to rules")
            for overload, rule in result.items():
                if not is_overload(overload):
                    raise self.source.broken(
                        f"sdk_decompositions() has the key {overload!r}, which is not an overload",
                        hint=overload_advice(overload),
                    )
                if isinstance(rule, Prim):
                    raise self.source.broken(
                        f"sdk_decompositions() gives the op {rule.name} itself as the rule for {overload}: a rule gets "
                        "the type of the result first, and an op takes operands only",
                        hint=f"write a function: def rule(out, ...): return prims.{rule.name}(...)",
                    )
                if not callable(rule):
                    self._refuse("sdk_decompositions", rule, f"a function as the rule for {overload}")
                if overload in rules:
                    raise self.source.broken(
                        f"two of its implementations of sdk_decompositions() have a rule for {overload}: "
                        f"{rule_name(rules[overload])} and {rule_name(rule)}",
                        hint="keep one of the two: nothing says which should win",
                    )
                fault = signature_fault(overload, rule)
                if fault is not None:
                    raise self.source.broken(
                        f"its rule {rule_name(rule)} for {overload} cannot be used: {fault}",
                        hint="take all of the overload's arguments, and return NotImplemented for values of them that "
                        "the rule does not cover",
                    )
                rules[overload] = rule
        return rules

    def passes(self) -> tuple[Pass, ...]:
        """Graph rewrites, in order."""
        from backend_sdk.contract import Pass

        return self._collect("sdk_passes", Pass, "a sequence of backend_sdk.Pass")

    def cases(self) -> tuple[ConformanceCase, ...]:
        """Calls that the vendor wants checked beside the contract's samples."""
        from backend_sdk.prims import CONTRACT

        cases = self._collect(
            "sdk_conformance_cases", ConformanceCase, "a sequence of backend_sdk.plugins.ConformanceCase"
        )
        for case in cases:
            if case.op not in CONTRACT:
                spelling = nearest(case.op, (op.name for op in CONTRACT)).partition("known:")[0]
                raise self.source.broken(
                    f"sdk_conformance_cases() has a case for {case.op!r}, which is no contract op",
                    hint=f"{spelling}`backend-sdk spec` lists the ops",
                )
        return cases

    @property
    def has_commands(self) -> bool:
        """Whether it implements `sdk_commands`."""
        return bool(self._manager.hook.sdk_commands.get_hookimpls())

    def add_commands(self, app: typer.Typer) -> None:
        """Let the plugin add its commands to ``app``."""
        self._call("sdk_commands", app=app)

    def _own_backend(self) -> Backend:
        from backend_sdk.backend import Backend

        if not self._manager.hook.sdk_backends.get_hookimpls():
            raise self.source.broken(
                "it implements no sdk_backends() hook",
                hint=f"in {self.source.module}, mark with @hookimpl a function sdk_backends() that returns "
                "[YourBackend]",
            )
        yielded: list[Backend | type[Backend]] = []
        for result in self._call("sdk_backends"):
            for item in self._items("sdk_backends", result, "a sequence of Backend instances or classes"):
                if not isinstance(item, Backend) and not (isinstance(item, type) and issubclass(item, Backend)):
                    self._refuse("sdk_backends", item, "Backend instances or subclasses")
                yielded.append(item)
        named = [item for item in yielded if item.name == self.name]
        if len(named) != 1:
            raise self._without_own_backend(yielded, len(named))
        if isinstance(named[0], Backend):
            return named[0]
        try:
            return named[0]()
        except VENDOR_FAILURES as error:
            raise self.source.raised(f"{named[0].__qualname__}()", error) from error

    def _without_own_backend(self, yielded: list[Any], matches: int) -> BrokenPluginError:
        listing = ", ".join(f"{item.name!r} ({_class_name(item)})" for item in yielded) or "no backend at all"
        count = "none" if not matches else f"{matches} backends"
        return self.source.broken(
            f"sdk_backends() yields {listing}, {count} named {self.name!r}",
            hint=f"the entry point's name is the backend's name: set name = {self.name!r} in the class, or "
            f"rename the entry point {self.name!r} of the group {PROJECT}",
        )

    def _collect(self, hook: str, kind: type[_T], expected: str) -> tuple[_T, ...]:
        collected: list[_T] = []
        for result in self._call(hook):
            for item in self._items(hook, result, expected):
                if not isinstance(item, kind):
                    self._refuse(hook, item, expected)
                collected.append(item)
        return tuple(collected)

    def _items(self, hook: str, result: Any, expected: str) -> Iterable[Any]:
        if isinstance(result, (str, bytes, Mapping)) or not isinstance(result, Iterable):
            self._refuse(hook, result, expected)
        return result

    def _call(self, hook: str, **arguments: Any) -> list[Any]:
        try:
            results: list[Any] = getattr(self._manager.hook, hook)(**arguments)
        except VENDOR_FAILURES as error:
            raise self.source.raised(f"{hook}()", error) from error
        return results

    def _refuse(self, hook: str, got: Any, expected: str) -> NoReturn:
        raise self.source.broken(
            f"{hook}() returned {got!r}",
            hint=f"the hook {hook}{inspect.signature(HOOKS[hook])} wants {expected}",
        )

    def __repr__(self) -> str:
        return f"<{self.source}>"


def _class_name(backend: Any) -> str:
    return backend.__qualname__ if isinstance(backend, type) else type(backend).__qualname__


def _manager_of(source: Source, implementations: object) -> pluggy.PluginManager:
    """A pluggy manager that holds this plugin only. Raises `BrokenPluginError` for a wrong implementation."""
    if isinstance(implementations, type):
        raise source.broken(
            f"it names the class {implementations.__qualname__}",
            hint="name the module that holds the marked hook functions, or an instance with marked methods",
        )
    _check_marks(source, implementations)
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(implementations, source.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        wrong = list(_wrong_implementations(manager, implementations))
        what, hint = wrong[0] if wrong else (str(error), None)
        raise source.broken(what, hint) from error
    return manager


def _check_marks(source: Source, implementations: object) -> None:
    """Refuse a function named like a hook but not marked: it would be ignored without a word."""
    for name in dir(implementations):
        if not name.startswith(HOOK_PREFIX):
            continue
        value = inspect.getattr_static(implementations, name)
        function = getattr(value, "__func__", value)
        own = (
            not isinstance(implementations, ModuleType)
            or getattr(function, "__module__", None) == implementations.__name__
        )
        if inspect.isfunction(function) and own and not hasattr(function, f"{PROJECT}_impl"):
            raise source.broken(
                f"its function {name}() is named like a hook but not marked as one",
                hint=f"write @hookimpl above it (from backend_sdk import hookimpl), or rename it: "
                f"{HOOK_PREFIX}* are hooks",
            )


def _wrong_implementations(manager: pluggy.PluginManager, implementations: object) -> Iterable[tuple[str, str | None]]:
    """What is wrong with each marked function, and how to mend it."""
    for name in dir(implementations):
        options = manager.parse_hookimpl_opts(implementations, name)
        if options is None:
            continue
        hook = options.get("specname") or name
        definition = f"{name}{inspect.signature(getattr(implementations, name))}"
        if hook not in HOOKS:
            yield f"{definition} implements an unknown hook {hook!r}", nearest(hook, HOOKS)
            continue
        taken = list(inspect.signature(getattr(implementations, name)).parameters)
        given = inspect.signature(HOOKS[hook]).parameters
        unknown = [argument for argument in taken if argument not in given]
        if unknown:
            offers = ", ".join(given) if given else "no arguments"
            yield (
                f"{definition} implements the hook {hook}{inspect.signature(HOOKS[hook])} but takes "
                f"{', '.join(unknown)}, which that hook does not pass",
                f"the hook passes {offers}: take some of them or none",
            )
