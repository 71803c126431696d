"""Plugins: how a vendor's package, or a script of one's own, brings a backend.

Does not: import torch or any plugin before a backend is asked for.
"""

from backend_sdk.plugins.hookspecs import ConformanceCase, hookimpl
from backend_sdk.plugins.manager import (
    KnownBackend,
    PluginRegistry,
    get_backend,
    known_backends,
    load_plugin,
    plugin_of,
    refresh,
    register_backend,
    unregister_backend,
)
from backend_sdk.plugins.plugin import Plugin

__all__ = [
    "ConformanceCase",
    "KnownBackend",
    "Plugin",
    "PluginRegistry",
    "get_backend",
    "hookimpl",
    "known_backends",
    "load_plugin",
    "plugin_of",
    "refresh",
    "register_backend",
    "unregister_backend",
]
