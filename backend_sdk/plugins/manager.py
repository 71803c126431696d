"""Finds backends by name: loads the one plugin that is named, once, and no other.

Does not: import torch or any plugin before a backend is asked for; check what plugins return
(`backend_sdk.plugins.plugin`).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from backend_sdk.errors import PluginCollisionError, RegistryError, UnknownBackendError, nearest
from backend_sdk.plugins import discovery
from backend_sdk.plugins.discovery import BACKEND_GROUP, DYNAMO_PREFIX, Declaration
from backend_sdk.plugins.plugin import VENDOR_FAILURES, Plugin, Source
from backend_sdk.torch_compat import dynamo_registry

if TYPE_CHECKING:
    from backend_sdk.backend import Backend

_B = TypeVar("_B", bound="Backend | type[Backend]")


@dataclass(frozen=True)
class KnownBackend:
    """A backend that can be asked for by name.

    ``distribution`` and ``version`` are empty for one that was registered by a call in this process.
    """

    name: str
    distribution: str
    version: str
    module: str


class PluginRegistry:
    """The plugins of one process: installed ones, loaded on demand, and registered ones. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # One lock a name: a plugin that is slow to load holds up nobody who wants another.
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._loading: set[str] = set()
        self._loaded: dict[str, Plugin] = {}
        self._registered: dict[str, Plugin] = {}

    def get_backend(self, name: str) -> Backend:
        """The backend ``name``, loaded now if it is not yet. See `load_plugin` for what is raised."""
        return self.load_plugin(name).backend

    def plugin_of(self, name: str) -> Plugin | None:
        """The plugin of the backend ``name`` if it is loaded or registered; loads nothing.

        A backend object that merely has that name is not the plugin's: compare with ``plugin.backend``.
        """
        return self._registered.get(name) or self._loaded.get(name)

    def load_plugin(self, name: str) -> Plugin:
        """The plugin that provides the backend ``name``, loaded now if it is not yet.

        Raises `UnknownBackendError` when nothing provides it, `PluginCollisionError` when two distributions
        do, `BrokenPluginError` when its plugin cannot be loaded. A failure is not remembered: the next call
        tries again.
        """
        plugin = self.plugin_of(name)
        if plugin is not None:
            return plugin
        with self._lock:
            lock = self._locks[name]
        with lock:
            plugin = self._loaded.get(name)
            if plugin is None:
                plugin = self._loaded[name] = self._load(name)
        return plugin

    def known_backends(self) -> tuple[KnownBackend, ...]:
        """All backends that have a name here, sorted; nothing is loaded. A name that two distributions claim
        appears twice.
        """
        declared = [
            KnownBackend(one.name, one.distribution, one.version, one.module)
            for declarations in discovery.installed().backends.values()
            for one in declarations
        ]
        with self._lock:
            registered = [
                KnownBackend(plugin.name, "", "", plugin.source.module) for plugin in self._registered.values()
            ]
        return tuple(sorted([*declared, *registered], key=lambda known: (known.name, known.distribution)))

    def register_backend(self, backend: _B, *, hooks: object | None = None) -> _B:
        """Make a backend of one's own script, notebook or test available by its name; return ``backend``.

        Takes an instance, or a class that needs no arguments (so it also works as a class decorator).
        ``torch.compile(model, backend="sdk:NAME")`` then works too. ``hooks`` is a module or an object with
        further hook implementations (decompositions, passes, ...) for this backend. The same class may be
        registered again, as when a notebook's cell runs twice: the newer one counts.

        Raises `RegistryError` for something that is not a backend, `PluginCollisionError` for a name that an
        installed package or another class has, `BrokenPluginError` for wrong ``hooks``.
        """
        from backend_sdk.backend import Backend, check_name

        made = backend() if isinstance(backend, type) and issubclass(backend, Backend) else backend
        if not isinstance(made, Backend):
            raise RegistryError(
                f"register_backend({backend!r}): not a backend",
                hint="pass an instance or a subclass of backend_sdk.Backend",
            )
        check_name(made)  # Its constructor may have changed it after the check.
        name, cls = made.name, type(made)
        declared = discovery.installed().backends.get(name)
        if declared:
            raise PluginCollisionError(
                f"backend {name!r}: cannot register {cls.__module__}.{cls.__qualname__}, the installed "
                f"package {declared[0].package} has that name",
                hint=f"give the class another name, or uninstall {declared[0].distribution}",
            )
        plugin = Plugin(Source(name, "", "", cls.__module__), hooks if hooks is not None else ModuleType(name), made)
        with self._lock:
            present = self._registered.get(name)
            if present is not None and not _same_definition(type(present.backend), cls):
                other = type(present.backend)
                raise PluginCollisionError(
                    f"backend {name!r}: cannot register {cls.__module__}.{cls.__qualname__}, "
                    f"{other.__module__}.{other.__qualname__} is registered under that name",
                    hint=f"give one of them another name, or call unregister_backend({name!r}) first",
                )
            self._registered[name] = plugin
            dynamo_registry.register(*discovery.dynamo_line(name))
        return backend

    def unregister_backend(self, name: str) -> None:
        """Take back `register_backend`. Raises `UnknownBackendError` when no call registered ``name``."""
        with self._lock:
            if name not in self._registered:
                raise UnknownBackendError(
                    f"cannot unregister the backend {name!r}, no call registered it: {nearest(name, self._registered)}",
                    hint="a backend of an installed package goes with its package",
                )
            del self._registered[name]
            dynamo_registry.unregister(discovery.dynamo_line(name)[0])

    def refresh(self) -> None:
        """Read the installed entry points again and forget the plugins that were loaded from them.

        For tests, and for a notebook in which a package was just installed. Registered backends stay.
        """
        with self._lock:
            discovery.forget()
            self._loaded.clear()

    def _load(self, name: str) -> Plugin:
        declaration = self._declaration(name)
        source = Source(name, declaration.distribution, declaration.version, declaration.module)
        if name in self._loading:
            raise source.broken(
                "while it loads, it asks for its own backend",
                hint="get the backend inside a function, not when the module is imported",
            )
        self._loading.add(name)
        try:
            return Plugin(source, _import(source, declaration))
        finally:
            self._loading.discard(name)

    def _declaration(self, name: str) -> Declaration:
        declared = discovery.installed().backends.get(name, ())
        if len(declared) > 1:
            claims = " and ".join(f"{one.package} (module {one.module})" for one in declared)
            raise PluginCollisionError(
                f"backend {name!r} is claimed by {len(declared)} packages: {claims}",
                hint="uninstall all but one: " + " or ".join(f"pip uninstall {one.distribution}" for one in declared),
            )
        if not declared:
            self._unknown(name)
        return declared[0]

    def _unknown(self, name: str) -> NoReturn:
        known = {backend.name for backend in self.known_backends()}
        if name.startswith(DYNAMO_PREFIX) and name.removeprefix(DYNAMO_PREFIX) in known:
            bare = name.removeprefix(DYNAMO_PREFIX)
            raise UnknownBackendError(
                f"no backend is named {name!r}",
                hint=f"leave out {DYNAMO_PREFIX!r}, which is for torch.compile only: {bare!r}",
            )
        half = "".join(
            f"\n  {line.package} declares {line.name!r} for torch.compile, but no entry point {name!r} in "
            f"the group {BACKEND_GROUP}"
            for line in discovery.installed().dynamo_lines.get(DYNAMO_PREFIX + name, ())
        )
        raise UnknownBackendError(
            f"no backend is named {name!r}: {nearest(name, known)}{half}",
            hint=f"install the package that provides it (with an entry point {name!r} in the group "
            f"{BACKEND_GROUP}), or pass your own to backend_sdk.register_backend",
        )


def _import(source: Source, declaration: Declaration) -> object:
    try:
        loaded: object = declaration.entry_point.load()
    except VENDOR_FAILURES as error:
        raise source.raised(
            f"loading the entry point {declaration.name} = {declaration.value!r} of {BACKEND_GROUP}", error
        ) from error
    return loaded


def _same_definition(old: type, new: type) -> bool:
    """Whether ``new`` is ``old`` defined again: a notebook's cell, or a script's module, that ran twice."""
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


REGISTRY = PluginRegistry()

get_backend = REGISTRY.get_backend
plugin_of = REGISTRY.plugin_of
load_plugin = REGISTRY.load_plugin
known_backends = REGISTRY.known_backends
register_backend = REGISTRY.register_backend
unregister_backend = REGISTRY.unregister_backend
refresh = REGISTRY.refresh
