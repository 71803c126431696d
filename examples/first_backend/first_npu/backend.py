"""`FirstNpu`: a backend made of plain functions, one per op. Read it beside docs/vendors.md.

Each function takes and returns tensors in host memory; a real one would call the driver where these call
torch.
"""

import datetime
import math

import torch

from backend_sdk import YES, Backend, Capability, Limitation, Node, Support, implements, no, prims
from first_npu import simulator


class FirstNpu(Backend):
    """Float32, int64 and bool, up to rank 5. Exact gelu, convolutions, sorting and random numbers it lacks."""

    name = "first_npu"
    version = "0.1.0"
    capability = Capability(dtypes=frozenset({torch.float32, torch.int64, torch.bool}), max_rank=5)
    limitations = (
        Limitation(
            op="pow",
            reason="negative bases give NaN before firmware 2.1",
            url="https://example.com/first-npu/errata#7",
            expires=datetime.date(2030, 12, 31),
        ),
    )


# ---- arithmetic


@implements(prims.add)
def add(x, y):
    return x + y


@implements(prims.sub)
def sub(x, y):
    return x - y


@implements(prims.mul)
def mul(x, y):
    return x * y


@implements(prims.div)
def div(x, y):
    return x / y


@implements(prims.neg)
def neg(x):
    return -x


@implements(prims.maximum)
def maximum(x, y):
    return torch.maximum(x, y)


@implements(prims.minimum)
def minimum(x, y):
    return torch.minimum(x, y)


@implements(prims.exp, dtypes={torch.float32})
def exp(x):
    return torch.exp(x)


@implements(prims.log)
def log(x):
    return torch.log(x)


@implements(prims.tanh)
def tanh(x):
    return torch.tanh(x)


@implements(prims.sqrt)
def sqrt(x):
    return torch.sqrt(x)


@implements(prims.rsqrt)
def rsqrt(x):
    return torch.rsqrt(x)


@implements(prims.pow)
def pow(x, y):
    return torch.pow(x, y)


# ---- comparison and selection


@implements(prims.eq)
def eq(x, y):
    return torch.eq(x, y)


@implements(prims.ne)
def ne(x, y):
    return torch.ne(x, y)


@implements(prims.lt)
def lt(x, y):
    return torch.lt(x, y)


@implements(prims.le)
def le(x, y):
    return torch.le(x, y)


@implements(prims.gt)
def gt(x, y):
    return torch.gt(x, y)


@implements(prims.ge)
def ge(x, y):
    return torch.ge(x, y)


@implements(prims.select)
def select(condition, x, y):
    return torch.where(condition, x, y)


@implements(prims.convert)
def convert(x, *, dtype):
    return x.to(dtype)


# ---- shape


@implements(prims.full)
def full(*, shape, value, dtype):
    return torch.full(shape, value, dtype=dtype)


@implements(prims.iota)
def iota(*, length, dtype):
    return torch.arange(length, dtype=dtype)


@implements(prims.reshape)
def reshape(x, *, shape):
    return x.reshape(shape)


@implements(prims.permute)
def permute(x, *, dims):
    return x.permute(dims)


@implements(prims.broadcast)
def broadcast(x, *, shape, dims):
    sizes = [1] * len(shape)
    for size, dim in zip(x.shape, dims, strict=True):
        sizes[dim] = size
    return x.reshape(sizes).expand(shape)


@implements(prims.slice)
def slice_(x, *, starts, limits, strides):
    return x[tuple(map(slice, starts, limits, strides))]


def _adds_only(node: Node) -> Support:
    sizes = (*node.attributes["low"], *node.attributes["high"])
    if all(isinstance(size, int) and size >= 0 for size in sizes) and not any(node.attributes["interior"]):
        return YES
    return no("its copy engine adds elements at the edges, it neither cuts nor spreads")


@implements(prims.pad, when=_adds_only)
def pad(x, *, low, high, interior, value):
    sizes = [before + size + after for before, size, after in zip(low, x.shape, high, strict=True)]
    padded = torch.full(sizes, value, dtype=x.dtype)
    padded[tuple(slice(before, before + size) for before, size in zip(low, x.shape, strict=True))] = x
    return padded


@implements(prims.concat)
def concat(*parts, axis):
    return torch.cat(parts, dim=axis)


@implements(prims.take)
def take(x, indices, *, axis):
    rows = x.index_select(axis, indices.reshape(-1))
    return rows.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


# ---- reductions and products


@implements(prims.reduce_sum)
def reduce_sum(x, *, axes):
    return x.sum(dim=axes)


@implements(prims.reduce_max)
def reduce_max(x, *, axes):
    return x.amax(dim=axes)


@implements(prims.dot_general)
def dot_general(x, y, *, contract, batch):
    """Brings both operands into the one form that the matrix unit takes, ``[batch, m, k] @ [batch, k, n]``."""
    x_free = [dim for dim in range(x.ndim) if dim not in (*contract[0], *batch[0])]
    y_free = [dim for dim in range(y.ndim) if dim not in (*contract[1], *batch[1])]

    def sizes(tensor, dims):
        return [tensor.shape[dim] for dim in dims]

    def flat(tensor, *groups):
        order = [dim for group in groups for dim in group]
        return tensor.permute(order).reshape([math.prod(sizes(tensor, group)) for group in groups])

    product = simulator.matmul(flat(x, batch[0], x_free, contract[0]), flat(y, batch[1], contract[1], y_free))
    return product.reshape([*sizes(x, batch[0]), *sizes(x, x_free), *sizes(y, y_free)])


# ---- composites that the device has units for


def _tanh_form(node: Node) -> Support:
    if node.attributes["approximate"] == "tanh":
        return YES
    return no("its activation unit knows the tanh form only")


@implements(prims.gelu, when=_tanh_form)
def gelu(x, *, approximate):
    return simulator.gelu_tanh(x)


def _last_axis(node: Node) -> Support:
    rank = node.operands[0].rank
    axis = node.attributes["axis"]
    return YES if axis == rank - 1 else no(f"its softmax unit takes the last dim, not dim {axis} of {rank}")


@implements(prims.softmax, when=_last_axis)
def softmax(x, *, axis):
    return simulator.softmax_rows(x)


def _fits_the_matrix_unit(node: Node) -> Support:
    length = node.operands[0].shape[-1]
    if isinstance(length, int) and length <= simulator.LONGEST_DOT:
        return YES
    return no(f"its matrix unit holds rows of up to {simulator.LONGEST_DOT} elements, not {length}")


@implements(prims.linear, when=_fits_the_matrix_unit)
def linear(x, weight, bias):
    product = simulator.matmul(x.reshape(1, -1, x.shape[-1]), weight.T[None])
    product = product.reshape(*x.shape[:-1], weight.shape[0])
    return product if bias is None else product + bias


# ---- an aten op that the contract does not have, but the device does


@implements(torch.ops.aten.hardswish.default, dtypes={torch.float32})
def hardswish(x):
    return simulator.hard_swish(x)
