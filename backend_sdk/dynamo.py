"""What `torch.compile` calls: ``backend_sdk.dynamo:acme`` is the compiler of the backend ``acme``.

A vendor's package declares it in one line, with nothing to import and nothing to write:

    [project.entry-points.torch_dynamo_backends]
    "sdk:acme" = "backend_sdk.dynamo:acme"

Does not: import torch, the pipeline or the plugin until the compiler is called. All names here but the
backends' start with an underscore, so that a backend may have any name.
"""

import functools as _functools
from collections.abc import Callable as _Callable
from typing import Any as _Any


def __getattr__(name: str) -> _Callable[..., _Any]:
    """The compiler of the backend ``name``. Whether that exists is found out when it is called."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from backend_sdk.torch_compat import dynamo_registry

    return _compiler(name, dynamo_registry.registrations(f"sdk:{name}"))


@_functools.cache
def _compiler(name: str, registrations: int) -> _Callable[..., _Any]:
    """One function a backend (for another Dynamo recompiles), and a new one when it is registered anew."""

    def compile(
        graph_module: _Any,
        example_inputs: _Any,
        *,
        options: _Any = None,
        mode: str | None = None,
        **unknown: _Any,
    ) -> _Any:
        _check(name, mode, unknown)
        from backend_sdk.pipeline.compile import compile_for_dynamo

        return compile_for_dynamo(name, graph_module, example_inputs, options)

    compile.__name__ = compile.__qualname__ = f"sdk:{name}"
    compile.__doc__ = (
        f"Compile a graph for the backend {name!r} (`torch.compile` calls this).\n\n"
        "Raises `OptionError` for an unknown option or a mode, `UnknownBackendError`,\n"
        "`PluginCollisionError` or `BrokenPluginError` when the backend cannot be had, and what the\n"
        "pipeline raises."
    )
    return compile


def _check(name: str, mode: str | None, unknown: dict[str, _Any]) -> None:
    """Raise `OptionError` for what torch.compile may pass and the SDK does not take."""
    from backend_sdk.errors import OptionError
    from backend_sdk.torch_compat.dynamo_errors import through_dynamo

    if mode not in (None, "default"):
        raise through_dynamo(
            OptionError(
                f'torch.compile(..., backend="sdk:{name}", mode={mode!r}): modes are presets of torch\'s own '
                "compiler, this backend has none",
                hint="leave out mode, or set options={...} (see backend_sdk.pipeline.options)",
            )
        )
    if unknown:
        raise through_dynamo(
            OptionError(
                f'torch.compile(..., backend="sdk:{name}"): unknown arguments {", ".join(sorted(unknown))}',
                hint="what the backend takes goes into options={...}",
            )
        )
