"""Ahead-of-time autograd: from a Dynamo graph to functional aten graphs, forward and backward.

Does not: compile them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from backend_sdk.torch_compat.kept_whole import kept_whole

# compile(graph, example inputs, number of outputs that the user sees) -> callable on a list of inputs
GraphCompiler = Callable[[fx.GraphModule, Sequence[Any], int], Callable[[list[Any]], Sequence[Any]]]


def compile_ahead_of_time(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    forward: GraphCompiler,
    backward: GraphCompiler,
    inference: GraphCompiler,
) -> Callable[..., Any]:
    """Functionalize, differentiate and partition ``module`` (min-cut), compiling each graph that comes out.

    Input mutations, outputs that alias inputs and saved tensors are handled around the compiled graphs. The
    backward graph is compiled when it first runs.
    """
    from functorch.compile import min_cut_rematerialization_partition  # type: ignore[import-untyped]
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch.compiler import disable

    def boxed(compiler: GraphCompiler, *, is_forward: bool) -> Callable[..., Any]:
        def compile_graph(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
            visible = visible_output_count(graph) if is_forward else output_count(graph)
            run = compiler(graph, example_inputs, visible)
            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        return compile_graph

    def without_dynamo(compile_graph: Callable[..., Any]) -> Callable[..., Any]:
        # Both the backward compiler and what it returns run inside autograd, where Dynamo may be active.
        def compile_backward(*args: Any) -> Any:
            compiled = disable(compile_graph, reason="backend compiler")(*args)
            return disable(compiled, reason="compiled backward graph")

        compile_backward._is_wrapped_bw_compiler = True  # type: ignore[attr-defined]
        return compile_backward

    with kept_whole():
        # Dynamo itself keeps its hands off what a backend returns, so no `disable` here: it costs 3 us a call.
        return aot_module_simplified(
            module,
            inputs,
            fw_compiler=boxed(forward, is_forward=True),
            bw_compiler=without_dynamo(boxed(backward, is_forward=False)),
            inference_compiler=boxed(inference, is_forward=False),
            partition_fn=min_cut_rematerialization_partition,
            decompositions={},
            keep_inference_input_mutations=False,
        )


@contextlib.contextmanager
def open_sizes(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Within, `compile_ahead_of_time` captures sizes and numbers that only the data decide, as it does for Dynamo under
    ``capture_dynamic_output_shape_ops`` and ``capture_scalar_outputs``. Gives what stands for ``tensors`` there; their
    own sizes stay numbers.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    environment = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    mode = FakeTensorMode(shape_env=environment)
    with torch._guards.tracing(torch._guards.TracingContext(mode)):
        yield [mode.from_tensor(tensor, static_shapes=True) for tensor in tensors]


def visible_output_count(graph: fx.GraphModule) -> int:
    """How many leading outputs of a forward graph the user sees; the others are saved for the backward graph."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return output_count(graph) if metadata is None else min(metadata.num_forward_returns, output_count(graph))


def output_count(graph: fx.GraphModule) -> int:
    """Number of outputs of a graph."""
    return len(graph.graph.output_node().args[0])  # type: ignore[arg-type]
