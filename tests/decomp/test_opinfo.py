"""Every op of torch's own catalogue of sample calls computes what eager computes, and reaches the contract.

What a user would lose: an answer that is silently wrong at an edge of an op's arguments (an empty tensor, a 0-d
index, an integer dtype), or an op that runs in eager without anybody having decided so.
"""

from __future__ import annotations

import functools
import itertools
import logging

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from backend_sdk.decomp import all_rules

SEED = 42

# Samples for each op, by dtype: what two cores do in about a minute.
SAMPLES = {torch.float32: 2, torch.int64: 1, torch.bool: 1}

# Calls that torch itself cannot capture: a Dynamo graph breaks at them, so they never reach the SDK.
NOT_CAPTURED = {
    **dict.fromkeys(
        ("allclose", "corrcoef", "cov", "equal", "item", "narrow", "nn.functional.gaussian_nll_loss", "tensor_split"),
        "reads a number off a tensor while it is traced",
    ),
    **dict.fromkeys(
        (
            "argwhere",
            "bincount",
            "combinations",
            "linalg.lstsq",
            "masked_select",
            "nn.functional.ctc_loss",
            "nn.functional.one_hot",
            "nonzero",
            "repeat_interleave",
            "unique",
            "unique_consecutive",
        ),
        "the size of the result depends on the data",
    ),
    **dict.fromkeys(("sparse.mm", "sparse.sampled_addmm", "to_sparse"), "takes sparse tensors"),
    **dict.fromkeys(
        (
            "jiterator_2inputs_2outputs",
            "jiterator_4inputs_with_extra_args",
            "jiterator_binary",
            "jiterator_binary_return_by_ref",
            "jiterator_unary",
        ),
        "for CUDA only",
    ),
}

# Ops whose values eager leaves undefined: only their types are compared.
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

# Ops that may place equal elements in any order, with the position of ``dim`` after the tensor: what they place is
# compared, not where it came from.
TIES_IN_ANY_ORDER = {"argsort": 0, "kthvalue": 1, "mode": 0, "sort": 0, "topk": 1}

_SPARSE = "makes a sparse tensor"

# Aten ops without any rule that eager runs, with the reason.
NO_RULE = {
    **dict.fromkeys(["aten._to_sparse.default", "aten._to_sparse.sparse_dim"], _SPARSE),
}

# Ops with a rule that leaves some calls to eager, with the calls.
SOME_CALLS = {
    "aten._to_copy.default": "a dtype outside the contract",
    "aten.as_strided.default": "memory outside the tensor's own elements, or a tensor whose elements are out of order",
}

CASES = [
    pytest.param(op, dtype, id=f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}")
    for op in op_db
    for dtype in SAMPLES
    if dtype in op.supported_dtypes("cpu")
]


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_samples_compute_what_eager_computes(op, dtype, compiled_call, assert_as_eager, caplog):
    caplog.set_level(logging.ERROR, logger="backend_sdk")
    ran = 0
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES[dtype]):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        try:
            eager = _leaves(op, args, kwargs)
            compiled = compiled_call(op.op, args, kwargs, random="eager")
        except Exception:
            if op.name in NOT_CAPTURED:
                continue
            raise
        ran += 1
        unexpected = {name for name in compiled.left_to_eager if not _allowed(name)}
        assert not unexpected, f"{unexpected} run in eager: write a rule, or a reason in this module"
        assert len(compiled.leaves) == len(eager)
        if op.name in UNDEFINED:
            _assert_types(compiled.leaves, eager)
        elif op.name in TIES_IN_ANY_ORDER:
            _assert_same_order(op, sample, compiled.leaves, eager)
        else:
            for position, (actual, expected) in enumerate(zip(compiled.leaves, eager, strict=True)):
                assert_as_eager(actual, expected, functools.partial(_exact, op, args, kwargs, position))
    assert ran or op.name in NOT_CAPTURED


# The catalogue calls deprecated and beta functions on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _leaves(op, args, kwargs):
    torch.manual_seed(SEED)
    return pytree.tree_leaves(op.op(*args, **kwargs))


def _exact(op, args, kwargs, position):
    def wide(leaf):
        return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf

    return _leaves(op, pytree.tree_map(wide, args), pytree.tree_map(wide, kwargs))[position]


def _allowed(name):
    return name in NO_RULE or name in SOME_CALLS or _is_random(name)


def _is_random(name):
    namespace, op, overload = name.split(".")
    return torch.Tag.nondeterministic_seeded in getattr(getattr(getattr(torch.ops, namespace), op), overload).tags


def _assert_types(actual, expected):
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())


def _assert_same_order(op, sample, actual, expected):
    """Values agree, and each index (the last result) leads to a value that agrees."""
    position = TIES_IN_ANY_ORDER[op.name]
    dim = sample.args[position] if position < len(sample.args) else sample.kwargs.get("dim", -1)
    if sample.input.dim() > 0:
        for results in (actual, expected):
            index = results[-1]
            index = index if index.dim() == sample.input.dim() else index.unsqueeze(dim)
            results[-1] = sample.input.gather(dim, index)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_an_op_called_ruleless_has_no_rule():
    with_rule = {str(overload) for overload in all_rules()}
    assert with_rule.isdisjoint(NO_RULE)
    assert with_rule.issuperset(SOME_CALLS)


def test_a_name_in_the_tables_is_in_the_catalogue():
    known = {op.name for op in op_db}
    assert known.issuperset(NOT_CAPTURED)
    assert known.issuperset(UNDEFINED | TIES_IN_ANY_ORDER.keys())
