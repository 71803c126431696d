"""What of aten the contract does not take, as data: patterns of overload names with a class of reason and a reason.

Does not: say what fails among the ops that it does take (`known` does).
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Classes of reasons why an overload, or a call, does not reach the contract."""

    SPARSE = "sparse layout"
    NESTED = "nested tensor"
    QUANTIZED = "quantized storage"
    VENDOR = "vendor library internal"
    STORAGE = "device or storage query"
    AUTOGRAD = "autograd internal"
    TEST = "test-only"
    DATA = "data-dependent size"
    DEVICE = "other device"
    NOT_YET = "not reducible yet"


@dataclass(frozen=True)
class OutOfScope:
    """Overloads whose name (``base.overload``, in-place ``_`` taken off) matches one of ``patterns``."""

    reason: Reason
    why: str
    patterns: tuple[str, ...]


def _rows(reason: Reason, why: str, patterns: str) -> OutOfScope:
    return OutOfScope(reason, why, tuple(patterns.split()))


OUT_OF_SCOPE: tuple[OutOfScope, ...] = (
    _rows(
        Reason.SPARSE,
        "takes, makes or asks about a sparse tensor; the dialect has dense values only",
        """
        _cslt_* _sparse_* sparse_* _to_sparse* to_sparse* _coalesce.* _coalesced.* coalesce.* is_coalesced.*
        _indices.* _values.* indices.* values.* _indices_copy.* _values_copy.* indices_copy.* values_copy.*
        c*ol_indices.* c*ol_indices_copy.* crow_indices.* crow_indices_copy.* row_indices.* row_indices_copy.*
        _nnz.* _dimI.* _dimV.* dense_dim.* _spdiags.* _spsolve.* hspmm.* copy_sparse_to_sparse.* smm.*
        sspaddmm.* resize_as_sparse.*
        _embedding_bag_sparse_backward.* embedding_sparse_backward.* _gather_sparse_backward.*
        _validate_* _to_dense.* to_sparse_*
        """,
    ),
    _rows(
        Reason.NESTED,
        "takes, makes or asks about a nested tensor",
        "_nested_* to_padded_tensor.* nested_to_padded_tensor.*",
    ),
    _rows(
        Reason.QUANTIZED,
        "takes or makes a tensor with a quantizer, or weights in a packed format; the dialect has plain dtypes",
        """
        quantize_per_* quantized_* q_* qscheme.* int_repr.* dequantize.tensors* _empty_affine_quantized.*
        _empty_per_channel_affine_quantized.* empty_quantized.* _make_per_* _convert_weight_to_* _weight_int4*
        _dyn_quant_* fbgemm_linear_fp16_weight* fbgemm_linear_int8_* fbgemm_pack_* _mixed_dtypes_linear.*
        _wrapped_* *_quantized.* *.quantized
        """,
    ),
    _rows(
        Reason.VENDOR,
        "calls or asks about one library of one vendor; the portable op of the same computation is in the contract",
        """
        _cudnn_* cudnn_* _use_cudnn_* miopen_* _use_miopen_* mkldnn_* _mkldnn_* to_mkldnn.* _mps_* mps_*
        _lstm_mps.* lstm_mps_backward.* _nnpack_*
        _scaled_dot_product_attention_math_for_mps.* _scaled_dot_product_cudnn_* _efficient_attention_*
        _flash_attention_* _triton_* _cufft_* is_vulkan_available.* _fill_mem_eff_dropout_mask_.*
        """,
    ),
    _rows(
        Reason.VENDOR,
        "has no CPU kernel, and hands on the state of a device's random generator",
        "_scaled_dot_product_flash_attention.* _scaled_dot_product_flash_attention_backward.*",
    ),
    _rows(
        Reason.DEVICE,
        "has neither a CPU kernel nor a shape rule for dense tensors, so that no graph of them can show it",
        """
        matmul_backward.* max_pool2d_backward.* native_norm.* _conv_depthwise2d.* conv_depthwise3d.*
        batch_norm_elemt.* batch_norm_gather_*
        batch_norm_stats.* batch_norm_backward_elemt.* batch_norm_backward_reduce.* _thnn_fused_gru_cell*
        _scaled_grouped_mm_v2.*
        """,
    ),
    _rows(
        Reason.DEVICE,
        "has no CPU kernel: there is nothing to compare with",
        "_scaled_grouped_mm.* _philox_*",
    ),
    _rows(
        Reason.DEVICE,
        "stands for what a device outside of torch registers: torch's own kernel only raises",
        "convolution_overrideable.* convolution_backward_overrideable.*",
    ),
    _rows(
        Reason.DEVICE,
        "for XLA only",
        "_propagate_xla_data.*",
    ),
    _rows(
        Reason.NOT_YET,
        "torch cannot trace it: the kernel reads or writes the memory of a tensor, which a traced one does not have",
        """
        _grid_sampler_2d_cpu_fallback* _saturate_weight_to_fp16.* fbgemm_linear_quantize_weight.* _sobol_engine_*
        _shape_as_tensor.* _reshape_from_tensor.*
        """,
    ),
    _rows(
        Reason.NOT_YET,
        "torch cannot trace it: its rule for views refuses one that is made of two tensors",
        "slice_inverse.*",
    ),
    _rows(
        Reason.STORAGE,
        "says which kernel of attention torch would take for these arguments: a number of the host's",
        "_fused_sdp_choice.*",
    ),
    _rows(
        Reason.STORAGE,
        "takes the memory of a tensor apart from it, which values do not have",
        "set.source_Storage*",
    ),
    _rows(
        Reason.STORAGE,
        "asks about or changes memory, device or layout, which values do not have",
        """
        _copy_from.* _copy_from_and_resize.* _has_same_storage_numel.* _pin_memory.* is_pinned.* pin_memory.*
        _resize_output.* set_data.* is_set_to.* from_file.* record_stream.* shallow_copy_data.*
        _debug_has_internal_overlap.* _has_compatible_shallow_copy_type.* storage_offset.* sym_storage_offset.*
        stride.* sym_stride.* _version.* is_contiguous.* sym_is_contiguous.* output_nr.* _empty_per*.* get_device.*
        is_conj.* is_neg.* _is_zerotensor.* is_inference.* is_distributed.* is_leaf.* retains_grad.*
        """,
    ),
    _rows(
        Reason.STORAGE,
        "asks for a shape or a dtype: a constant, or a size, by the time that a graph is captured",
        """
        size.* sym_size.* numel.* sym_numel.* dim.* is_same_size.* result_type.* can_cast.* promote_types.*
        is_floating_point.* is_complex.* is_signed.*
        """,
    ),
    _rows(Reason.STORAGE, "prints a text on the host: no tensor goes in or comes out", "_print.*"),
    _rows(
        Reason.AUTOGRAD,
        "steers autograd and computes nothing",
        "_fw_primal* _make_dual* _unpack_dual.* retain_grad.* requires_grad.* _backward.*",
    ),
    _rows(Reason.AUTOGRAD, "hands out what distributed autograd has gathered, by tensor", "get_gradients.*"),
    _rows(
        Reason.AUTOGRAD,
        "wraps a tensor for vmap, which captured graphs do not show",
        "_add_batch_dim.* _remove_batch_dim.*",
    ),
    _rows(Reason.TEST, "serves torch's own tests", "_test_* _foobar.*"),
    _rows(
        Reason.DATA,
        "gives a bool of the host's, which no traced graph can hold; torch.equal and torch.allclose within "
        "backend_sdk.traceable() reach the contract",
        "equal.* allclose.* is_nonzero.*",
    ),
    _rows(
        Reason.DATA,
        "torch's own kernel reads the data while it is traced, or torch has no meta function; the function of torch "
        "within backend_sdk.traceable() reaches the contract",
        "cov.* corrcoef.* linalg_lstsq.* _ctc_loss* ctc_loss.*",
    ),
    _rows(
        Reason.DATA,
        "reads numbers off a tensor while it is traced, and branches on them to choose the parameters of a quantizer",
        "_choose_qparams_per_tensor.* choose_qparams_optimized.*",
    ),
    _rows(
        Reason.NOT_YET,
        "writes into its arguments, has no functional overload, and torch cannot functionalize it",
        "_cummax_helper.* _cummin_helper.*",
    ),
    _rows(
        Reason.NOT_YET,
        "torch cannot write the overload into a graph: its name is a keyword of Python",
        "random.from*",
    ),
    _rows(
        Reason.NOT_YET,
        "needs the derivative of the incomplete beta function, for which the contract has no op",
        "_dirichlet_grad.*",
    ),
    _rows(
        Reason.NOT_YET,
        "torch cannot functionalize the overload: no functional overload has its name",
        "adaptive_avg_pool3d_backward.grad_input",
    ),
    _rows(
        Reason.NOT_YET,
        "torch cannot trace the overload: its own decomposition takes out_dtype for beta",
        "baddbmm.dtype baddbmm.dtype_out",
    ),
)


def out_of_scope(name: str) -> OutOfScope | None:
    """The first row that an overload (``aten.base.overload``) matches, or None."""
    return next((row for row in OUT_OF_SCOPE if any(matches(name, pattern) for pattern in row.patterns)), None)


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern covers an overload, the in-place variant (``base_``) like its functional one."""
    base, _, overload = name.removeprefix("aten.").partition(".")
    return fnmatch.fnmatchcase(f"{base}.{overload}", pattern) or (
        base.endswith("_") and not base.endswith("__") and fnmatch.fnmatchcase(f"{base[:-1]}.{overload}", pattern)
    )
