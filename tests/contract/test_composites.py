"""A composite's body, built as a graph, is the composite: same types, same numbers, prims only.

What a user would lose: a model whose answer depends on whether the backend claims a composite or not.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk.errors import DialectError
from backend_sdk.graph import GraphBuilder, runnable, verify
from backend_sdk.graph.builder import claim_prims_only
from backend_sdk.spec import Composite, Prim, TensorType, building


def _build(op, sample):
    builder = GraphBuilder(claim_prims_only)
    operands = [
        None if x is None else builder.input(f"x{i}", TensorType(tuple(x.shape), x.dtype))
        for i, x in enumerate(sample.operands)
    ]
    with building(builder):
        result = op(*operands, **sample.attributes)
    values = result if isinstance(result, tuple) else (result,)
    builder.graph.output(tuple(value.node for value in values))
    return builder.graph, values


def test_the_body_gives_what_infer_says(composite, dtype, samples_of):
    for sample in samples_of(composite, dtype):
        graph, values = _build(composite, sample)
        types = tuple(None if x is None else TensorType(tuple(x.shape), x.dtype) for x in sample.operands)
        assert tuple(value.type for value in values) == composite.infer(types, dict(sample.attributes))
        verify(graph)
        targets = [node.target for node in graph.nodes if isinstance(node.target, Prim)]
        assert targets
        assert not any(isinstance(target, Composite) for target in targets)


def test_the_built_body_computes_what_the_body_computes(composite, dtype, samples_of):
    for sample in samples_of(composite, dtype):
        graph, _ = _build(composite, sample)
        expected = composite.body(*sample.operands, **sample.attributes)
        expected = expected if isinstance(expected, tuple) else (expected,)
        actual = runnable(graph)(*(x for x in sample.operands if x is not None))
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_a_body_that_breaks_its_own_rules_is_an_error_that_names_it(composite, first_call, monkeypatch):
    types, attributes = first_call(composite)
    monkeypatch.setattr(composite, "shape_rule", lambda *_, **__: [(77,)] * composite.result_count)
    builder = GraphBuilder(claim_prims_only)
    operands = [None if type is None else builder.input(f"x{i}", type) for i, type in enumerate(types)]
    with pytest.raises(DialectError, match=rf"body of composite {composite.name} gives"), building(builder):
        composite(*operands, **attributes)
