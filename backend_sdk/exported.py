"""`compile_program`: a ``torch.export`` program through the pipeline, without Dynamo.

Does not: capture models (``torch.export.export`` does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from backend_sdk.errors import CaptureError
from backend_sdk.pipeline.capture import INFERENCE, Captured
from backend_sdk.pipeline.compile import compile_captured
from backend_sdk.pipeline.options import Options
from backend_sdk.pipeline.report import current_listeners
from backend_sdk.plugins import get_backend
from backend_sdk.torch_compat import trees


class CompiledProgram:
    """An exported program compiled for a backend: called like the model that was exported.

    Parameters and buffers are those of the program; buffer mutations are applied to them.
    """

    def __init__(self, program: ExportedProgram, runner: Callable[[list[Any]], Any]) -> None:
        self._program = program
        self._runner = runner
        signature = program.graph_signature
        self._inputs = [self._source(spec) for spec in signature.input_specs]
        self._outputs = signature.output_specs
        self._tree = trees.ProgramTree(program)

    @property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """The program's parameters and persistent buffers, as the calls so far have left them."""
        return dict(self._program.state_dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. Raises `CaptureError` when the arguments are not nested like the exported ones."""
        supplied = self._tree.flatten(args, kwargs)
        if supplied is None:
            raise CaptureError(
                "the arguments are not nested like those the program was exported with",
                hint=f"call it like {self._tree.expected}",
            )
        values = [supplied[index] if isinstance(index, int) else index for index in self._inputs]
        results = self._runner(values)
        returned = []
        for spec, result in zip(self._outputs, results, strict=True):
            if spec.kind == OutputKind.USER_OUTPUT:
                returned.append(result)
            elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                self._mutated(spec, supplied).copy_(result)
        return self._tree.unflatten(returned)

    def _source(self, spec: Any) -> Any:
        """The tensor of a lifted input, or the position of a user input."""
        if spec.kind == InputKind.USER_INPUT:
            names = self._program.graph_signature.user_inputs
            return list(names).index(getattr(spec.arg, "name", spec.arg))
        if spec.kind == InputKind.BUFFER and not spec.persistent:
            return self._program.constants[spec.target]
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            return self._program.state_dict[spec.target]
        if spec.kind in (InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ):
            return self._program.constants[spec.target]
        raise CaptureError(f"exported programs with inputs of kind {spec.kind.name} are not supported")

    def _mutated(self, spec: Any, supplied: list[Any]) -> torch.Tensor:
        target = spec.target
        if spec.kind == OutputKind.USER_INPUT_MUTATION:
            tensor = supplied[list(self._program.graph_signature.user_inputs).index(target)]
        else:
            state = self._program.state_dict
            tensor = state[target] if target in state else self._program.constants[target]
        assert isinstance(tensor, torch.Tensor)
        return tensor


def compile_program(
    program: ExportedProgram, *, backend: str, options: Mapping[str, Any] | None = None
) -> CompiledProgram:
    """Compile an exported program for ``backend`` (its name, without ``sdk:``), for inference.

    Raises `UnknownBackendError`, `OptionError`, `CaptureError` and what compiling raises.
    """
    target, parsed = get_backend(backend), Options.parse(options)
    functional = program.run_decompositions({})
    outputs = functional.graph.output_node().args[0]
    captured = Captured(functional.graph_module, INFERENCE, len(outputs))
    with torch.no_grad():
        runner = compile_captured(captured, target, parsed, current_listeners())

    def run(values: list[Any]) -> Any:
        with torch.no_grad():
            return runner(values)

    return CompiledProgram(functional, run)
