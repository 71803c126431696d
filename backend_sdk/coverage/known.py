"""Known reasons, as data: calls of the catalogue that do not reach the contract, each with a class and a reason.

An entry that fits nothing in a whole run, or whose item passes, is an error: the list never says less than the truth.

Does not: name overloads that the contract does not take at all (`scope` does).
"""

from __future__ import annotations

from dataclasses import dataclass

from backend_sdk.coverage.scope import Reason


@dataclass(frozen=True)
class Known:
    """Failures of one OpInfo by full name (forward or backward), or of one overload, that do not compute other numbers
    than eager; ``other_numbers`` says that they may. ``dtypes``: in these only; empty, in all.
    """

    op: str
    reason: Reason
    why: str
    kinds: tuple[str, ...] = ("forward", "backward")
    other_numbers: bool = False
    dtypes: tuple[str, ...] = ()


def _all(
    reason: Reason,
    why: str,
    ops: str,
    kinds: tuple[str, ...] = ("forward", "backward"),
    *,
    other_numbers: bool = False,
    dtypes: tuple[str, ...] = (),
) -> tuple[Known, ...]:
    return tuple(Known(op, reason, why, kinds, other_numbers, dtypes) for op in ops.split())


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
        "torch cannot trace the number that a complex tensor holds",
        "item",
        ("forward",),
        dtypes=("complex64",),
    ),
    *_all(
        Reason.NOT_YET,
        "the derivative asks the data whether it depends on the phases of the vectors, which torch cannot trace",
        "svd linalg.svd svd_lowrank pca_lowrank",
        ("backward",),
        dtypes=("complex64",),
    ),
    *_all(
        Reason.NOT_YET,
        "of the largest magnitude eager's gradient is NaN, and ours is not",
        "renorm",
        ("backward",),
        other_numbers=True,
        dtypes=("complex64",),
    ),
    *_all(
        Reason.NOT_YET,
        "eager's exp overflows float16 where its logarithm does not; ours computes in float32, as torch's own rule",
        "nn.functional.soft_margin_loss",
        other_numbers=True,
        dtypes=("float16",),
    ),
    *_all(
        Reason.NOT_YET,
        "eager's gradient in float16 is NaN at hundreds of places where the true one is below 2, and ours is finite",
        "grid_sampler_3d",
        ("backward",),
        other_numbers=True,
        dtypes=("float16",),
    ),
    *_all(
        Reason.NOT_YET,
        "eager's product of a segment overflows float16, and its gradient with it; ours is carried in float32",
        "_segment_reduce.lengths _segment_reduce.offsets",
        ("backward",),
        other_numbers=True,
        dtypes=("float16",),
    ),
    *_all(
        Reason.NOT_YET,
        "which of equal elements the gradient goes to is up to eager's unstable sort, and 16 bits make more of them",
        "mode",
        ("backward",),
        other_numbers=True,
        dtypes=("bfloat16", "float16"),
    ),
    *_all(
        Reason.NOT_YET,
        "torch's functionalization hands the results of the overload to the wrong arguments",
        """
        aten._native_batch_norm_legit.out aten._batch_norm_with_update.out aten.rrelu_with_noise.out
        aten._amp_foreach_non_finite_check_and_unscale.out aten._amp_update_scale.out
        aten._fused_adagrad.out aten._fused_adagrad.tensor_lr_out aten._fused_adam.out aten._fused_adam.tensor_lr_out
        aten._fused_adamw.out aten._fused_adamw.tensor_lr_out aten._fused_sgd.out aten._fused_sgd.tensor_lr_out
        aten._fused_moving_avg_obs_fq_helper.out
        """,
        ("overload",),
        other_numbers=True,
    ),
    *_all(
        Reason.NOT_YET,
        "writes into running statistics, of which its schema says nothing: a captured graph loses what it writes",
        "aten.native_batch_norm.out",
        ("overload",),
        other_numbers=True,
    ),
    *_all(
        Reason.NOT_YET,
        "torch's fake kernel gives one number more of rows in bags than eager, with include_last_offset",
        """
        aten._embedding_bag_forward_only.default aten._embedding_bag_forward_only.out aten.embedding_bag.default
        aten.embedding_bag.padding_idx
        """,
        ("overload",),
        other_numbers=True,
    ),
    *_all(
        Reason.VENDOR,
        "its fourth result is the library's workspace, which torch's own fake kernel takes for empty; aten.lstm.input "
        "compares the others",
        "aten.mkldnn_rnn_layer.default aten.mkldnn_rnn_layer.out",
        ("overload",),
        other_numbers=True,
    ),
    *_all(
        Reason.DEVICE,
        "for CUDA only",
        "torch.ops.aten._flash_attention_forward torch.ops.aten._efficient_attention_forward",
    ),
    *_all(
        Reason.NOT_YET,
        "torch cannot functionalize the overload: its schema says that a result is an argument, and no kernel for it",
        """
        aten.polygamma_.default aten.resize.out aten._slow_conv2d_backward.grad_input aten.lift.out
        aten.set.source_Tensor_out
        """,
        ("overload",),
    ),
    *_all(
        Reason.NOT_YET,
        "torch has no meta kernel for the in-place overload, which functionalization runs before the functional one",
        """
        aten._fused_adagrad_.default aten._fused_adagrad_.tensor_lr aten._fused_sgd_.default aten._fused_sgd_.tensor_lr
        aten._fused_adam_.tensor_lr aten._fused_adamw_.tensor_lr
        """,
        ("overload",),
    ),
    *_all(
        Reason.NOT_YET,
        "torch has no meta kernel for the overload, and its own asks for a bound on the CPU, where a fake one never is",
        "aten.randint_like.Tensor_generator aten.randint_like.Tensor_generator_out",
        ("overload",),
    ),
    *_all(
        Reason.NOT_YET,
        "torch cannot trace the out= overload: it makes a signature of the schema, and from is a keyword of Python",
        "aten.uniform.out",
        ("overload",),
    ),
    *_all(
        Reason.NOT_YET,
        "functionalization calls the functional overload itself, of which torch's own fake kernel gives packed rows "
        "the shape of one sequence",
        "aten._pack_padded_sequence.out",
        ("overload",),
    ),
    *_all(
        Reason.STORAGE,
        "torch cannot trace the overload: its own kernel takes the memory of a tensor apart from it",
        "aten.set_.source_Tensor_storage_offset",
        ("overload",),
    ),
    *_all(
        Reason.NOT_YET,
        "torch's own fake kernel gives a token of the default dtype, whatever dtype is asked for",
        "aten._make_dep_token.default",
        ("overload",),
        other_numbers=True,
    ),
    *_all(
        Reason.DATA,
        "torch has no fake kernel for the overload; torch.unique_consecutive with dim reaches the contract",
        "aten.unique_dim_consecutive.default aten.unique_dim_consecutive.out",
        ("overload",),
    ),
    *_all(
        Reason.DEVICE,
        "no CPU kernel: there is nothing to compare with",
        """
        aten._fused_dropout.default aten._fused_dropout.out aten._fused_rms_norm_backward.default
        aten._masked_scale.default aten._masked_scale.out aten.linear_backward.default aten.linear_backward.out
        aten._scaled_dot_product_efficient_attention.default
        aten._scaled_dot_product_efficient_attention_backward.default
        aten._scaled_dot_product_fused_attention_overrideable.default
        aten._scaled_dot_product_fused_attention_overrideable_backward.default
        aten._thnn_fused_lstm_cell.default aten._thnn_fused_lstm_cell.out aten._thnn_fused_lstm_cell_backward.default
        aten._thnn_fused_lstm_cell_backward_impl.default aten._thnn_fused_lstm_cell_backward_impl.out
        aten.addmm.dtype aten.addmm.dtype_out aten.bmm.dtype aten.bmm.dtype_out aten.mm.dtype aten.mm.dtype_out
        """,
        ("overload",),
    ),
)
