"""Known reasons, as data: calls of the catalogue that do not reach the contract, each with a class and a reason.

An entry that fits nothing in a whole run, or whose item passes, is an error: the list never says less than the truth.

Does not: name overloads that the contract does not take at all (`scope` does).
"""

from __future__ import annotations

from dataclasses import dataclass

from backend_sdk.coverage.scope import Reason


@dataclass(frozen=True)
class Known:
    """Failures of one OpInfo by full name (forward or backward), or of one overload, in some dtypes or any."""

    op: str
    reason: Reason
    why: str
    kinds: tuple[str, ...] = ("forward", "backward")
    dtypes: tuple[str, ...] = ()


def _all(reason: Reason, why: str, ops: str, kinds: tuple[str, ...] = ("forward", "backward")) -> tuple[Known, ...]:
    return tuple(Known(op, reason, why, kinds) for op in ops.split())


KNOWN: tuple[Known, ...] = (
    *_all(Reason.DATA, "how many results there are depends on the data", "tensor_split"),
    *_all(Reason.SPARSE, "takes sparse tensors", "sparse.mm.reduce sparse.sampled_addmm to_sparse"),
    *_all(
        Reason.DEVICE,
        "compiles CUDA source",
        """
        jiterator_2inputs_2outputs jiterator_4inputs_with_extra_args jiterator_binary jiterator_binary_return_by_ref
        jiterator_unary
        """,
    ),
    *_all(
        Reason.NOT_YET,
        "torch's functionalization hands the results of the overload to the wrong arguments",
        "aten._native_batch_norm_legit.out aten._batch_norm_with_update.out aten.rrelu_with_noise.out",
        ("overload",),
    ),
    *_all(
        Reason.NOT_YET,
        "writes into running statistics, of which its schema says nothing: a captured graph loses what it writes",
        "aten.native_batch_norm.out",
        ("overload",),
    ),
    *_all(
        Reason.VENDOR,
        "takes what the library's forward saved, which arguments made up from the schema are not",
        "aten.mkldnn_rnn_layer_backward.default",
        ("overload",),
    ),
    *_all(
        Reason.DEVICE,
        "for CUDA only",
        "torch.ops.aten._flash_attention_forward torch.ops.aten._efficient_attention_forward",
    ),
    *_all(
        Reason.NOT_YET,
        "torch cannot functionalize the overload: its schema says that a result is an argument, and no kernel for it",
        "aten.polygamma_.default aten.resize.out",
        ("overload",),
    ),
)

# Ops of the captured graphs that eager runs, with the reason, beside those that are out of scope. They explain any
# failure that they alone cause.
REFUSED: dict[str, tuple[Reason, str]] = {}
