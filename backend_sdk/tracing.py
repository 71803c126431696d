"""Calls that torch cannot trace, in a form that it can: a mode for models that are compiled as one graph or exported.

torch's own `torch.allclose`, `torch.equal`, `torch.cov`, `torch.corrcoef`, `torch.linalg.lstsq`,
`torch.nn.functional.one_hot` (without ``num_classes``), `torch.nn.functional.gaussian_nll_loss` and
`torch.nn.functional.ctc_loss` read a number off a tensor within torch's own code, or have no meta function. So do
packed sequences, ``torch._rowwise_prune``, and ``torch._foreach_addcdiv`` and ``torch._foreach_addcmul`` with their
factors in a tensor. Dynamo breaks the graph at them, and `torch.export` refuses them. Within `traceable` the same calls
are made of functions that both can trace, with the same results::

    torch._dynamo.config.capture_scalar_outputs = True
    with backend_sdk.traceable():
        compiled = torch.compile(model, backend="sdk:acme", fullgraph=True)
        compiled(x)

Does not: change what is called outside the mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from backend_sdk import packed_sequences
from backend_sdk.torch_compat import reads_numbers
from backend_sdk.torch_compat.checks import assert_true
from backend_sdk.torch_compat.ops import aten


class traceable(TorchFunctionMode):
    """Context in which torch calls that cannot be traced are made of those that can. Works around `torch.compile` and
    `torch.export.export`, and in eager.

    Values, shapes and dtypes are eager's on the CPU, up to rounding, and so is what is refused, but for this:

    - What eager checks of the data, a compiled graph checks when it runs, with a `RuntimeError`. What it checks of
      shapes, dtypes and numbers is refused while the graph is captured, by Dynamo as its own kind of `RuntimeError`.
      The text of an error may be another.
    - `torch.linalg.lstsq` with the drivers ``gelss`` and ``gelsd`` raises a `RuntimeError` for a tall matrix that lacks
      full rank, of which eager gives no residuals. On any device it has the CPU's drivers, ``gelsy`` if none is named.
      It refuses a matrix as the right-hand side of a batch that is not as large as the matrix has rows.
    - `torch.nn.functional.ctc_loss` that is infinite, as no path fits, has a gradient of zero; eager's is NaN without
      ``zero_infinity``. Where ``log_probs`` is minus infinity, one gradient may be NaN and the other finite.
    - `torch.cov` does not warn of too few observations.
    - Packed sequences: `torch.export` captures them. Dynamo skips `torch.nn.utils.rnn.pack_padded_sequence` and
      `pad_packed_sequence`, and shows no mode torch's private functions. Of a packed sequence that comes from outside,
      it compiles `torch.nn.LSTM` (with ``torch._dynamo.config.allow_rnn``). `torch.nn.GRU` and `torch.nn.RNN` compare
      the first batch size with the state's in Python, which no tracing passes: call `torch.gru` and its like.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call the substitute of ``func``, or ``func`` itself when it has none."""
        return _SUBSTITUTES.get(func, func)(*args, **(kwargs or {}))


def _equal(input: torch.Tensor, other: torch.Tensor) -> Any:
    if input.shape != other.shape:
        return False
    return torch.eq(input, other).all().item()


def _allclose(
    input: torch.Tensor, other: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    return torch.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item()


_NOT_INTEGRAL = (torch.bool, torch.complex32, torch.complex64, torch.complex128)
_LAPACK = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _cov(
    input: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The formula of `torch.cov`'s documentation: weighted products of what is left when the mean is taken off."""
    if input.dim() > 2 or input.dtype == torch.bool:
        raise RuntimeError(f"cov(): input must have at most two dimensions and not be bool, not {_described(input)}")
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    count = rows.shape[1]
    if fweights is not None and (fweights.is_floating_point() or fweights.dtype in _NOT_INTEGRAL):
        raise RuntimeError(f"cov(): fweights must be of an integral dtype, not {fweights.dtype}")
    if aweights is not None and not aweights.is_floating_point():
        raise RuntimeError(f"cov(): aweights must be of a floating point dtype, not {aweights.dtype}")
    weights = None
    for given, name in ((fweights, "fweights"), (aweights, "aweights")):
        if given is not None:
            if given.dim() > 1 or given.numel() != count:
                raise RuntimeError(f"cov(): {name} must be one number for each of {count}, not {_described(given)}")
            assert_true((given >= 0).all(), f"cov(): {name} cannot be negative")
            weights = given if weights is None else weights * given
    total: Any = count if weights is None else weights.sum()
    if weights is not None:
        assert_true(total != 0, "cov(): weights sum to zero, can't be normalized")
    mean: torch.Tensor = rows.sum(1) / total if weights is None else (rows * weights).sum(1) / total
    if weights is None:
        norm: Any = count - correction
    elif aweights is None or correction == 0:
        norm = total - correction
    else:
        norm = total - correction * (weights * aweights).sum() / total
    centered = rows - mean.unsqueeze(1)
    weighted = centered if weights is None else centered * weights
    product = centered @ weighted.t().conj()
    scale = torch.as_tensor(norm, dtype=product.real.dtype).clamp(min=0)
    return (product / scale).squeeze()


def _corrcoef(input: torch.Tensor) -> torch.Tensor:
    """Covariances over the products of the standard deviations, clipped to what rounding cannot exceed."""
    found = _cov(input)
    if found.dim() == 0:
        return found / found
    deviation = found.diagonal().sqrt() if not found.is_complex() else found.diagonal().real.sqrt()
    found = found / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if found.is_complex():
        return torch.complex(found.real.clip(-1, 1), found.imag.clip(-1, 1))
    return found.clip(-1, 1)


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if num_classes != -1 or tensor.numel() == 0:
        return torch.nn.functional.one_hot(tensor, num_classes)
    if tensor.dtype != torch.int64:
        raise RuntimeError(f"one_hot(): classes must be int64, not {tensor.dtype}")
    assert_true((tensor >= 0).all(), "Class values must be non-negative.")
    classes = torch.arange(tensor.max().item() + 1, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """log(var) + (input - target)^2 / var, halved, with ``eps`` as the least variance (gradients do not see that)."""
    if isinstance(var, float):
        return torch.nn.functional.gaussian_nll_loss(input, target, var, full, eps, reduction)
    assert_true((var >= 0).all(), "var has negative entry/entries")
    if input.shape[:-1] == var.shape:
        var = var.unsqueeze(-1)
    elif input.dim() != var.dim() or [b for a, b in zip(input.shape, var.shape, strict=True) if a != b] not in (
        [],
        [1],
    ):
        raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _lstsq(input: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """The solution of least norm, by the pseudo-inverse; what a driver does not give is empty."""
    driver = driver or "gelsy"
    if driver not in ("gels", "gelsy", "gelss", "gelsd"):
        raise RuntimeError(f"torch.linalg.lstsq: driver must be gels, gelsy, gelss or gelsd on the CPU, not {driver!r}")
    if input.dtype != b.dtype or input.dtype not in _LAPACK:
        raise RuntimeError(
            f"torch.linalg.lstsq: both sides must be of one dtype, float or double, not {input.dtype} and {b.dtype}"
        )
    is_vector = input.dim() - 1 == b.dim() and b.shape == input.shape[:-1]
    # Eager takes a matrix for a batch of matrices only where its rows are also the size of the batch.
    is_matrix = min(input.dim(), b.dim()) >= 2 and input.shape[-2] == b.shape[-2]
    is_matrix = is_matrix and (input.dim() == b.dim() or input.shape[:-2] == b.shape[:-1])
    if input.dim() < 2 or not (is_vector or is_matrix):
        raise RuntimeError(
            f"torch.linalg.lstsq: a right-hand side {list(b.shape)} does not fit a matrix {list(input.shape)}"
        )
    rows, columns = input.shape[-2:]
    right = b.unsqueeze(-1) if is_vector else b
    cutoff = rcond if rcond is not None else torch.finfo(input.dtype).eps * max(rows, columns)
    solution = torch.linalg.pinv(input, rtol=None if driver == "gels" else cutoff) @ right
    values = torch.linalg.svdvals(input.detach())
    rank = (values > cutoff * values[..., :1]).sum(-1)
    residuals = input.new_empty(0, dtype=values.dtype)
    if rows > columns and driver != "gelsy":
        if driver != "gels":
            assert_true((rank == columns).all(), "torch.linalg.lstsq: residuals of a matrix that lacks full rank")
        difference = input @ solution - right
        residuals = (difference * difference.conj()).real.sum(-2)
    # torch makes the type as it is imported: no stub names it.
    return torch.return_types.linalg_lstsq(  # type: ignore[attr-defined]
        (
            solution.squeeze(-1) if is_vector else solution,
            residuals,
            rank if driver != "gels" else rank.new_empty(0),
            values if driver in ("gelss", "gelsd") else values.new_empty(0),
        )
    )


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """The forward recursion of Graves et al., "Connectionist Temporal Classification", 2006, section 4.1: over the
    labels with blanks between them, from step to step, the log-probabilities of all paths that end at each.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if log_probs.dtype not in (torch.float32, torch.float64):
        raise NotImplementedError(f"ctc_loss(): log_probs must be float or double, not {log_probs.dtype}")
    if log_probs.dim() not in (2, 3) or targets.dim() not in (1, 2):
        raise RuntimeError(
            "ctc_loss(): log_probs must have two or three dimensions and targets one or two, "
            f"not {_described(log_probs)} and {_described(targets)}"
        )
    single = log_probs.dim() == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
    if log_probs.numel() == 0:
        raise RuntimeError("ctc_loss(): log_probs must not be empty")
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"ctc_loss(): blank must be one of {classes} classes, not {blank}")
    if targets.dim() == 2 and targets.shape[0] != batch:
        raise RuntimeError(f"ctc_loss(): targets must be {batch} rows, not {targets.shape[0]}")
    if isinstance(input_lengths, torch.Tensor) != isinstance(target_lengths, torch.Tensor):
        raise TypeError("ctc_loss(): input_lengths and target_lengths must both be tensors, or both numbers")
    device = log_probs.device
    lengths = _lengths(input_lengths, "input_lengths", batch, steps).to(device)
    counts = _lengths(target_lengths, "target_lengths", batch, targets.shape[-1]).to(device)
    if targets.dim() == 1:
        text = f"ctc_loss(): target_lengths must add up to the {targets.shape[0]} targets"
        if isinstance(target_lengths, torch.Tensor):
            assert_true(counts.sum() == targets.shape[0], text)
        elif sum(target_lengths) != targets.shape[0]:
            raise RuntimeError(text)
    labels = _padded_targets(targets, counts)
    blanks = torch.full_like(labels[:, :1], blank)
    # A blank, then each label with a blank after it.
    path = torch.cat([blanks, torch.stack([labels, blanks.expand_as(labels)], -1).flatten(1)], 1)
    place = torch.arange(path.shape[1], device=device)
    exists = place <= 2 * counts.unsqueeze(1)
    # A blank between two labels may be left out, unless they are equal.
    skips = torch.zeros_like(path, dtype=torch.bool)
    skips[:, 2:] = (path[:, 2:] != blank) & (path[:, 2:] != path[:, :-2])
    emitted = log_probs.gather(2, path.unsqueeze(0).expand(steps, batch, path.shape[1]))
    # In place of an infinity, whose gradient would be NaN: no sum of log-probabilities comes near it.
    never = log_probs.new_full((), -1e30)
    alpha = torch.where((place < 2) & exists, emitted[0], never)
    for step in range(1, steps):
        one, two = (torch.nn.functional.pad(alpha, (back, 0), value=-1e30)[:, :-back] for back in (1, 2))
        reached = torch.stack([alpha, one, torch.where(skips, two, never)]).logsumexp(0) + emitted[step]
        alpha = torch.where((step < lengths.unsqueeze(1)) & exists, reached, alpha)
    # A count that is refused must not be an index before that is said.
    last = alpha.gather(1, (2 * counts).clamp(0, path.shape[1] - 1).unsqueeze(1)).squeeze(1)
    before = alpha.gather(1, (2 * counts - 1).clamp(0, path.shape[1] - 1).unsqueeze(1)).squeeze(1)
    loss = -torch.logaddexp(last, torch.where(counts > 0, before, never))
    # Without a step there is one path, of no labels.
    loss = torch.where(lengths == 0, torch.where(counts > 0, -never, 0.0), loss)
    # Eager's gradient is that of what a softmax is given: on top of this function's own, the probabilities themselves.
    seen = torch.arange(steps, device=device).unsqueeze(1) < lengths
    mass = (log_probs.exp().sum(2) * seen).sum(0)
    loss = loss + (mass - mass.detach())
    impossible = loss > 1e29
    loss = torch.where(impossible, 0.0 if zero_infinity else math.inf, loss)
    if reduction == "mean":
        return (loss / counts.clamp(min=1)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss.squeeze(0) if single else loss


def _lengths(given: Any, name: str, batch: int, most: int) -> torch.Tensor:
    """Lengths as int64 ``[batch]``, each from 0 to ``most``. A tensor's are checked when the graph runs."""
    text = f"ctc_loss(): {name} must be {batch} integers from 0 to {most}"
    if isinstance(given, torch.Tensor):
        if given.is_floating_point() or given.dtype in _NOT_INTEGRAL or given.numel() != batch:
            raise RuntimeError(f"{text}, not {_described(given)}")
        assert_true(((given >= 0) & (given <= most)).all(), text)
        return given.reshape(-1).to(torch.int64)
    if len(given) != batch or any(not 0 <= length <= most for length in given):
        raise RuntimeError(f"{text}, not {list(given)}")
    return torch.tensor(list(given), dtype=torch.int64)


def _padded_targets(targets: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Labels as ``[batch, most]``. Of targets that come one after another, ``most`` is the number of all."""
    if targets.numel() == 0:
        return counts.new_zeros(counts.shape[0], 1)
    if targets.dim() == 2:
        return targets.to(torch.int64)
    most = targets.shape[0]
    start = (counts.cumsum(0) - counts).unsqueeze(1)
    return targets.to(torch.int64)[(start + torch.arange(most, device=counts.device)).clamp(max=most - 1)]


def _unique_consecutive(
    input: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """A negative ``dim`` counted from the front: torch's shape rule takes it for a size that is inserted there."""
    if dim is not None and dim < 0:
        dim += input.dim()
    return torch.unique_consecutive(input, return_inverse=return_inverse, return_counts=return_counts, dim=dim)


def _recurrent(of_padded: Callable[..., Any], of_packed: Callable[..., Any]) -> Callable[..., Any]:
    """A recurrent layer, which torch calls by position with batch sizes behind the data where these are packed."""

    def run(data: torch.Tensor, second: Any, third: Any, *settings: Any) -> Any:
        packed_rows = isinstance(third, torch.Tensor) or isinstance(settings[0], (list, tuple))
        return (of_packed if packed_rows else of_padded)(data, second, third, *settings)

    return run


# addcdiv or addcmul of one tensor of a list, in place or not: (self, tensor1, tensor2) -> result.
_OfOne = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _each(of_one: _OfOne, self: Any, tensor1: Any, tensor2: Any, scalars: torch.Tensor) -> list[torch.Tensor]:
    """``of_one`` for each of a list of tensors, with a factor each: int, float or complex numbers ``scalars[n]``."""
    if scalars.dim() != 1 or len(scalars) != len(self):
        raise RuntimeError(f"a list of {len(self)} tensors takes as many factors, not {_described(scalars)}")
    return [
        of_one(one, factor * left, right)
        for one, left, right, factor in zip(self, tensor1, tensor2, scalars.unbind(), strict=True)
    ]


def _function_of_lists(op: Callable[..., Any], of_one: _OfOne, *, writes: bool) -> Callable[..., Any]:
    """torch's function of lists; with the factors in a tensor, that of one for each."""

    def run(self: Any, tensor1: Any, tensor2: Any, *rest: Any, **named: Any) -> Any:
        given = [*rest, *named.values()]
        if len(given) != 1 or not isinstance(given[0], torch.Tensor):
            return op(self, tensor1, tensor2, *rest, **named)
        found = _each(of_one, self, tensor1, tensor2, given[0])
        return self if writes else found

    return run


def _overloads_of_lists(name: str, op: Any, in_place: Any, of_one: _OfOne, within: _OfOne) -> dict[Any, Any]:
    """The overloads of an op of lists that take the factors in a tensor."""

    def run(self: Any, tensor1: Any, tensor2: Any, scalars: torch.Tensor) -> list[torch.Tensor]:
        return _each(of_one, self, tensor1, tensor2, scalars)

    def write(self: Any, tensor1: Any, tensor2: Any, scalars: torch.Tensor) -> None:
        _each(within, self, tensor1, tensor2, scalars)

    def fill(self: Any, tensor1: Any, tensor2: Any, scalars: torch.Tensor, *, out: Any) -> None:
        for one, result in zip(out, run(self, tensor1, tensor2, scalars), strict=True):
            one.copy_(result)

    run.__name__ = write.__name__ = fill.__name__ = name
    return {op.Tensor: run, in_place.Tensor: write, op.Tensor_out: fill}


# What takes the place of an overload that is called as itself, by overload.
OVERLOADS: Mapping[Any, Callable[..., Any]] = {
    aten._pack_padded_sequence.default: packed_sequences.pack,
    aten._pack_padded_sequence_backward.default: packed_sequences.pack_backward,
    aten._pad_packed_sequence.default: packed_sequences.pad,
    aten.lstm.data: packed_sequences.lstm,
    aten.gru.data: packed_sequences.gru,
    aten.rnn_tanh.data: packed_sequences.rnn_tanh,
    aten.rnn_relu.data: packed_sequences.rnn_relu,
    aten._rowwise_prune.default: packed_sequences.prune_rows,
    **_overloads_of_lists(
        "addcdiv", aten._foreach_addcdiv, aten._foreach_addcdiv_, torch.addcdiv, torch.Tensor.addcdiv_
    ),
    **_overloads_of_lists(
        "addcmul", aten._foreach_addcmul, aten._foreach_addcmul_, torch.addcmul, torch.Tensor.addcmul_
    ),
}

_SUBSTITUTES: Mapping[Any, Callable[..., Any]] = {
    **OVERLOADS,
    reads_numbers.PACK: packed_sequences.pack,
    reads_numbers.PAD: packed_sequences.pad,
    reads_numbers.PRUNE_ROWS: packed_sequences.prune_rows,
    torch.lstm: _recurrent(torch.lstm, packed_sequences.lstm),
    torch.gru: _recurrent(torch.gru, packed_sequences.gru),
    torch.rnn_tanh: _recurrent(torch.rnn_tanh, packed_sequences.rnn_tanh),
    torch.rnn_relu: _recurrent(torch.rnn_relu, packed_sequences.rnn_relu),
    reads_numbers.ADDCDIV: _function_of_lists(reads_numbers.ADDCDIV, torch.addcdiv, writes=False),
    reads_numbers.ADDCDIV_: _function_of_lists(reads_numbers.ADDCDIV_, torch.Tensor.addcdiv_, writes=True),
    reads_numbers.ADDCMUL: _function_of_lists(reads_numbers.ADDCMUL, torch.addcmul, writes=False),
    reads_numbers.ADDCMUL_: _function_of_lists(reads_numbers.ADDCMUL_, torch.Tensor.addcmul_, writes=True),
    torch.allclose: _allclose,
    torch.Tensor.allclose: _allclose,
    torch.equal: _equal,
    torch.Tensor.equal: _equal,
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef,
    torch.linalg.lstsq: _lstsq,
    torch.nn.functional.one_hot: _one_hot,
    torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
    torch.nn.functional.ctc_loss: _ctc_loss,
    torch.unique_consecutive: _unique_consecutive,
    torch.Tensor.unique_consecutive: _unique_consecutive,
}
