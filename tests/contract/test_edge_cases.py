"""Every op says what it makes of nothing and, where it has a meaning for one, of a single number without a dim.

What a user would lose: an empty batch, at the end of an epoch, that a certified backend has never seen.
"""

from __future__ import annotations

import pytest

from backend_sdk.prims.define import CONTRACT
from backend_sdk.published.export import document

# Their results are undefined for nothing, or the library that computes the reference takes none.
WITHOUT_EMPTY = {
    "batch_norm_training": "a mean of nothing",
    "ldl": "LAPACK's sytrf takes no empty matrix",
}
# Each needs a dim: an axis, a matrix, channels, or places along an axis.
WITHOUT_0D = {
    "attention",
    "attention_grad",
    "batch_norm_inference",
    "batch_norm_training",
    "cholesky",
    "concat",
    "convolution",
    "convolution_input_grad",
    "convolution_weight_grad",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "eig",
    "eigh",
    "fft",
    "gather",
    "group_norm",
    "householder_product",
    "householder_qr",
    "iota",
    "irfft",
    "layer_norm",
    "ldl",
    "linear",
    "log_softmax",
    "logcumsumexp",
    "lu",
    "lu_solve",
    "matrix_exp",
    "max_pool",
    "qr",
    "rfft",
    "rms_norm",
    "safe_softmax",
    "scatter",
    "searchsorted",
    "softmax",
    "sort",
    "sum_pool",
    "svd",
    "triangular_solve",
}


@pytest.fixture(scope="module")
def shapes():
    """The shapes of all edge cases of an op, as the document has them."""
    return {
        op["name"]: {
            type.split("[")[1].rstrip("]")
            for case in op["edge_cases"]
            for type in (*case["operands"], *case["results"])
            if type is not None
        }
        for op in document()["ops"]
    }


def test_each_op_has_a_sample_of_nothing(shapes):
    empty = {name for name, found in shapes.items() if any("0" in shape.split(", ") for shape in found)}
    assert {op.name for op in CONTRACT} - empty == set(WITHOUT_EMPTY)


def test_each_op_that_needs_no_dim_has_a_0d_sample(shapes):
    assert {name for name, found in shapes.items() if "" not in found} == WITHOUT_0D
