"""Valid arguments, as data, for the overloads that neither a sample of the catalogue nor a guess reaches.

An entry is found by an overload's own name (``gradient.array``) or by what it computes (``_fused_adam``): functional,
in-place and out= overloads share one. It gives arguments by schema name; what the schema of one of them does not name
is left out of its call, and a number stands for a tensor where the schema asks for one.

Does not: make a call of them (`generated` does).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

Tensor = torch.Tensor


class Draw:
    """Tensors of one entry's arguments, from a generator of its own."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(7)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self._generator).to(dtype)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [0.1, 1.1): valid as scales, variances and weights."""
        return torch.rand(shape, generator=self._generator) + 0.1

    def integers(self, high: int, *shape: int, low: int = 0, dtype: torch.dtype = torch.int64) -> Tensor:
        """Integers in [low, high)."""
        return torch.randint(low, high, shape, generator=self._generator, dtype=dtype)

    def truth(self, *shape: int) -> Tensor:
        """Bools."""
        return torch.rand(shape, generator=self._generator) < 0.5


Entry = Callable[[Draw], dict[str, Any]]


# ---- what several entries have in common


def _without(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


def _positive_definite(draw: Draw) -> dict[str, Any]:
    x = draw.normal(4, 4)
    return {"self": x @ x.T + 4 * torch.eye(4)}


def _dropout(x: Tensor) -> dict[str, Any]:
    """In training: else nothing is drawn. What is dropped in place is called otherwise."""
    return {"input": x, "self": x, "p": 0.3, "train": True}


def _batch_norm(draw: Draw) -> dict[str, Any]:
    return {
        "input": draw.normal(4, 3, 5),
        "weight": draw.normal(3),
        "bias": draw.normal(3),
        "running_mean": draw.normal(3),
        "running_var": draw.uniform(3),
        "momentum": 0.1,
        "eps": 1e-5,
        "cudnn_enabled": False,
    }


def _convolution(draw: Draw, dims: int, *, transposed: bool = False) -> dict[str, Any]:
    """Six steps each way, of two channels to three, by a window of three."""
    return {
        "self": draw.normal(2, 2, *(6,) * dims),
        "weight": draw.normal(*((2, 3) if transposed else (3, 2)), *(3,) * dims),
        "bias": draw.normal(3),
        "kernel_size": [3] * dims,
        "stride": [2] * dims,
        "padding": [1] * dims,
    }


def _slow_conv2d_backward(draw: Draw) -> dict[str, Any]:
    given = _without(_convolution(draw, 2), "bias")
    return {**given, "grad_output": draw.normal(2, 3, 3, 3), "output_mask": [True] * 3}


def _convolution_double_backward(draw: Draw) -> dict[str, Any]:
    return {
        **_without(_convolution(draw, 2), "bias", "kernel_size"),
        "ggI": draw.normal(2, 2, 6, 6),
        "ggW": draw.normal(3, 2, 3, 3),
        "ggb": draw.normal(3),
        "gO": draw.normal(2, 3, 3, 3),
        "dilation": [1, 1],
        "transposed": False,
        "output_padding": [0, 0],
        "groups": 1,
        "output_mask": [True] * 3,
    }


def _rows(draw: Draw) -> dict[str, Any]:
    """Three bags of a table of ten rows, two if the last offset is an end. Their mean: eager fills in all results."""
    return {
        "weight": draw.normal(10, 3),
        "indices": draw.integers(10, 5),
        "offsets": torch.tensor([0, 2, 5]),
        "scale_grad_by_freq": False,
        "mode": 1,
        "sparse": False,
        "per_sample_weights": None,
        "include_last_offset": False,
        "padding_idx": -1,
    }


def _embedding_bag_backward(draw: Draw) -> dict[str, Any]:
    return {
        "grad": draw.normal(2, 3),
        "indices": draw.integers(10, 5),
        "offset2bag": torch.tensor([0, 0, 1, 1, 1]),
        "bag_size": torch.tensor([2, 3]),
        "maximum_indices": torch.zeros(2, dtype=torch.int64),
        "num_weights": 10,
        "scale_grad_by_freq": False,
        "mode": 1,
        "per_sample_weights": None,
    }


def _quantization(draw: Draw, channels: int) -> dict[str, Any]:
    return {
        "self": draw.normal(3, 4),
        "scale": draw.uniform(channels) / 8,
        "zero_point": draw.integers(5, channels),
        "quant_min": 0,
        "quant_max": 15,
    }


def _learnable(draw: Draw, channels: int) -> dict[str, Any]:
    """Quantization whose zero point is learnt, and so a float."""
    given = _quantization(draw, channels)
    return {**given, "zero_point": given["zero_point"].float()}


def _observed(draw: Draw) -> dict[str, Any]:
    return {
        "self": draw.normal(3, 4),
        "observer_on": torch.tensor([1]),
        "fake_quant_on": torch.tensor([1]),
        "running_min": torch.tensor([-1.0]),
        "running_max": torch.tensor([1.0]),
        "scale": torch.tensor([0.1]),
        "zero_point": torch.tensor([3], dtype=torch.int32),
        "averaging_const": 0.1,
        "quant_min": 0,
        "quant_max": 255,
        "ch_axis": -1,
    }


def _optimizer(draw: Draw) -> dict[str, Any]:
    """Two parameters after their first step."""

    def of_each(make: Callable[..., Tensor]) -> list[Tensor]:
        return [make(3, 4), make(5)]

    return {
        "self": of_each(draw.normal),
        "grads": of_each(draw.normal),
        "state_steps": [torch.tensor(1.0), torch.tensor(1.0)],
        "lr": 0.1,
        "weight_decay": 0.01,
        "eps": 1e-8,
        "maximize": False,
    }


def _adam(draw: Draw) -> dict[str, Any]:
    return {
        **_optimizer(draw),
        "exp_avgs": [draw.normal(3, 4), draw.normal(5)],
        "exp_avg_sqs": [draw.uniform(3, 4), draw.uniform(5)],
        "max_exp_avg_sqs": [draw.uniform(3, 4), draw.uniform(5)],
        "beta1": 0.9,
        "beta2": 0.99,
        "amsgrad": True,
    }


def _adagrad(draw: Draw) -> dict[str, Any]:
    return {**_optimizer(draw), "state_sums": [draw.uniform(3, 4), draw.uniform(5)], "lr_decay": 0.1}


def _sgd(draw: Draw) -> dict[str, Any]:
    return {
        **_without(_optimizer(draw), "state_steps", "eps"),
        "momentum_buffer_list": [draw.normal(3, 4), draw.normal(5)],
        "momentum": 0.9,
        "dampening": 0.1,
        "nesterov": False,
        "is_first_step": False,
    }


def _cell(draw: Draw, gates: int) -> dict[str, Any]:
    """A recurrent cell: a batch of 2, 4 inputs, 5 hidden."""
    return {
        "input": draw.normal(2, 4),
        "hx": draw.normal(2, 5),
        "w_ih": draw.normal(5 * gates, 4),
        "w_hh": draw.normal(5 * gates, 5),
        "b_ih": draw.normal(5 * gates),
        "b_hh": draw.normal(5 * gates),
    }


def _layer(draw: Draw, gates: int) -> dict[str, Any]:
    """A recurrent layer over three steps: a batch of 2, 4 inputs, 5 hidden."""
    cell = _cell(draw, gates)
    return {
        "input": draw.normal(3, 2, 4),
        "hx": draw.normal(1, 2, 5),
        "params": [cell[name] for name in ("w_ih", "w_hh", "b_ih", "b_hh")],
        "has_biases": True,
        "num_layers": 1,
        "dropout": 0.0,
        "train": False,
        "bidirectional": False,
        "batch_first": False,
    }


def _with_cells(given: dict[str, Any], draw: Draw) -> dict[str, Any]:
    """The arguments of an LSTM: beside the hidden values it has cells."""
    return {**given, "hx": [given["hx"], draw.normal(*given["hx"].shape)]}


def _packed(draw: Draw) -> dict[str, Any]:
    """Three sequences of at most four steps, of four values: eight rows."""
    return {"data": draw.normal(8, 4), "batch_sizes": torch.tensor([3, 3, 1, 1]), "batch_first": True}


def _packed_layer(draw: Draw, gates: int) -> dict[str, Any]:
    """Two recurrent layers, both ways, over packed sequences: 4 inputs, 4 hidden each way."""
    wide = [(4 * gates, 4), (4 * gates, 4), (4 * gates,), (4 * gates,)]
    deep = [(4 * gates, 8), *wide[1:]]
    return {
        **_without(_packed(draw), "batch_first"),
        "hx": draw.normal(4, 3, 4),
        "params": [draw.normal(*shape) for shapes in (wide, wide, deep, deep) for shape in shapes],
        "has_biases": True,
        "num_layers": 2,
        "dropout": 0.0,
        "train": False,
        "bidirectional": True,
    }


def _mkldnn_rnn_layer(draw: Draw) -> dict[str, Any]:
    """One direction of an LSTM, which is mode 2."""
    layer = _layer(draw, 4)
    weights = {f"weight{place}": weight for place, weight in enumerate(layer.pop("params"))}
    kept = {
        name: layer[name] for name in ("input", "has_biases", "num_layers", "train", "bidirectional", "batch_first")
    }
    return {
        **kept,
        **weights,
        "hx_": layer["hx"],
        "cx_": draw.normal(1, 2, 5),
        "reverse": False,
        "batch_sizes": [],
        "mode": 2,
        "hidden_size": 5,
    }


def _mkldnn_rnn_layer_backward(draw: Draw) -> dict[str, Any]:
    """What the layer gave, with the workspace that the library left."""
    given = {**_mkldnn_rnn_layer(draw), "train": True}
    output, hidden, cell, workspace = torch.ops.aten.mkldnn_rnn_layer(**given)
    weights = {f"weight{place + 1}": given.pop(f"weight{place}") for place in range(4)}
    cell_before = given.pop("cx_")
    return {
        **given,
        **weights,
        "cx_tmp": cell_before,
        "output": output,
        "hy_": hidden,
        "cy_": cell,
        "grad_output": draw.normal(3, 2, 5),
        "grad_hy": draw.normal(1, 2, 5),
        "grad_cy": draw.normal(1, 2, 5),
        "workspace": workspace,
    }


def _attention(draw: Draw) -> dict[str, Any]:
    """Two heads over three positions of four values."""
    x = draw.normal(2, 3, 4)
    return {
        "embed_dim": 4,
        "qkv_weight": draw.normal(12, 4),
        "qkv_bias": draw.normal(12),
        "proj_weight": draw.normal(4, 4),
        "proj_bias": draw.normal(4),
        "src": x,
    }


def _multi_head_attention(draw: Draw) -> dict[str, Any]:
    given = _attention(draw)
    x = given.pop("src")
    # Without weights eager gives none, where torch's own fake kernel says that there is an empty tensor.
    return {**given, "query": x, "key": x, "value": x, "num_head": 2, "need_weights": True}


def _encoder_layer(draw: Draw) -> dict[str, Any]:
    return {
        **_attention(draw),
        "num_heads": 2,
        "use_gelu": True,
        "norm_first": False,
        "eps": 1e-5,
        "norm_weight_1": draw.normal(4),
        "norm_bias_1": draw.normal(4),
        "norm_weight_2": draw.normal(4),
        "norm_bias_2": draw.normal(4),
        "ffn_weight_1": draw.normal(6, 4),
        "ffn_bias_1": draw.normal(6),
        "ffn_weight_2": draw.normal(4, 6),
        "ffn_bias_2": draw.normal(4),
    }


def _istft(draw: Draw) -> dict[str, Any]:
    window = torch.hann_window(8)
    frames = torch.stft(draw.normal(64), 8, 2, window=window, return_complex=True)
    return {"self": frames, "n_fft": 8, "hop_length": 2, "window": window, "length": 64}


def _classes(draw: Draw, *dims: int) -> dict[str, Any]:
    """Logarithms of the probabilities of five classes, and which is right."""
    return {
        "self": draw.normal(3, 5, *dims).log_softmax(1),
        "target": draw.integers(5, 3, *dims),
        "weight": draw.uniform(5),
    }


def _volume(draw: Draw) -> dict[str, Any]:
    return {"input": draw.normal(1, 2, 2, 3, 2), "output_size": [3, 5, 4], "scale_factors": None}


def _distances_back(x: Tensor, grad: Tensor) -> dict[str, Any]:
    return {"grad": grad, "self": x, "p": 2.0, "pdist": torch.pdist(x, 2.0)}


def _transform(draw: Draw, dtype: torch.dtype) -> dict[str, Any]:
    """Over the last two axes, divided by their number of elements."""
    return {"self": draw.normal(2, 3, 4, dtype=dtype), "dim": [1, 2], "normalization": 2}


def _range(draw: Draw) -> dict[str, Any]:
    return {"self": draw.normal(3, 4), "min": -0.5, "max": 0.5}


def _weight_norm(draw: Draw) -> dict[str, Any]:
    return {"v": draw.normal(2, 3, 4), "g": draw.uniform(2, 1, 1), "dim": 0}


def _grid(draw: Draw) -> dict[str, Any]:
    return {"size": [2, 3, 4, 5], "align_corners": False, "theta": draw.normal(2, 2, 3)}


def _tangent_of_glu(draw: Draw) -> dict[str, Any]:
    return {"x": draw.normal(3, 4), "dx": draw.normal(3, 4), "dim": 1}


def _tangent_of_glu_backward(draw: Draw) -> dict[str, Any]:
    """Eager reads the gradient that backward gave: it must be that of x."""
    given, grad = _tangent_of_glu(draw), draw.normal(3, 2)
    return {
        **given,
        "grad_glu": grad,
        "grad_x": torch.ops.aten.glu_backward(grad, given["x"], given["dim"]),
        "dgrad_glu": draw.normal(3, 2),
    }


# ---- the table

ARGUMENTS: Mapping[str, Entry] = {
    # Checks.
    "_assert_async.msg": lambda draw: {"self": torch.tensor(True), "assert_msg": "is not so"},
    "_assert_scalar": lambda draw: {"self": 1, "assert_msg": "is not so"},
    "_functional_assert_async.msg": lambda draw: {
        "self": torch.tensor(True),
        "assert_msg": "is not so",
        "dep_token": torch.zeros(()),
    },
    "_functional_assert_scalar.default": lambda draw: {
        "self": 1,
        "assert_msg": "is not so",
        "dep_token": torch.zeros(()),
    },
    # Elementwise.
    "clip": _range,
    "float_power_.Scalar": lambda draw: {"self": draw.uniform(3, 4).double(), "exponent": 1.5},
    "float_power_.Tensor": lambda draw: {"self": draw.uniform(3, 4).double(), "exponent": draw.normal(3, 4)},
    "glu_jvp": lambda draw: {**_tangent_of_glu(draw), "glu": draw.normal(3, 2)},
    "glu_backward_jvp": _tangent_of_glu_backward,
    "_amp_foreach_non_finite_check_and_unscale": lambda draw: {
        "self": [draw.normal(3, 4), draw.normal(5)],
        "found_inf": torch.zeros(()),
        "inv_scale": torch.tensor(0.5),
    },
    "_amp_update_scale": lambda draw: {
        "self": torch.tensor([8.0]),
        "growth_tracker": torch.tensor([1], dtype=torch.int32),
        "found_inf": torch.zeros(1),
        "scale_growth_factor": 2.0,
        "scale_backoff_factor": 0.5,
        "growth_interval": 2,
    },
    # Random.
    **dict.fromkeys(
        ("randint_like.Tensor_generator", "randint_like.Tensor_generator_out"),
        lambda draw: {"self": draw.normal(3, 4), "high": torch.tensor(9), "generator": None},
    ),
    # Normalization.
    **dict.fromkeys(("batch_norm", "_batch_norm_impl_index"), lambda draw: {**_batch_norm(draw), "training": False}),
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit"),
        lambda draw: {**_without(_batch_norm(draw), "cudnn_enabled"), "training": True},
    ),
    "_batch_norm_with_update": lambda draw: _without(_batch_norm(draw), "cudnn_enabled"),
    "_batch_norm_impl_index_backward": lambda draw: {
        **_without(_batch_norm(draw), "bias", "momentum", "cudnn_enabled"),
        "impl_index": 0,
        "grad_output": draw.normal(4, 3, 5),
        "save_mean": draw.normal(3),
        "save_var_transform": draw.uniform(3),
        "train": True,
        "output_mask": [True] * 3,
        "reservedSpace": torch.empty(0, dtype=torch.uint8),
    },
    "instance_norm": lambda draw: {**_batch_norm(draw), "use_input_stats": True},
    "_weight_norm": _weight_norm,
    "_weight_norm_interface": _weight_norm,
    # Convolutions.
    "slow_conv3d": lambda draw: _convolution(draw, 3),
    "slow_conv3d_forward": lambda draw: _convolution(draw, 3),
    "thnn_conv2d": lambda draw: _convolution(draw, 2),
    "_slow_conv2d_forward": lambda draw: _convolution(draw, 2),
    "_slow_conv2d_backward": _slow_conv2d_backward,
    "slow_conv_dilated2d": lambda draw: {**_convolution(draw, 2), "dilation": [2, 2]},
    "slow_conv_dilated3d": lambda draw: {**_convolution(draw, 3), "dilation": [2, 2, 2]},
    "slow_conv_transpose2d": lambda draw: {**_convolution(draw, 2, transposed=True), "output_padding": [1, 0]},
    "slow_conv_transpose3d": lambda draw: {**_convolution(draw, 3, transposed=True), "output_padding": [1, 0, 0]},
    "conv_tbc": lambda draw: {
        "self": draw.normal(5, 2, 3),
        "weight": draw.normal(3, 3, 4),
        "bias": draw.normal(4),
        "pad": 1,
    },
    "_convolution_mode": lambda draw: {
        "input": draw.normal(2, 2, 6, 6),
        "weight": draw.normal(3, 2, 3, 3),
        "bias": draw.normal(3),
        "stride": [1, 1],
        "padding": "same",
        "dilation": [1, 1],
        "groups": 1,
    },
    "_convolution_double_backward": _convolution_double_backward,
    # Embeddings.
    "_embedding_bag": _rows,
    "_embedding_bag_forward_only": _rows,
    "embedding_bag": _rows,
    "_embedding_bag_dense_backward": _embedding_bag_backward,
    "embedding_backward": lambda draw: {
        "grad": draw.normal(5, 3),
        "indices": draw.integers(10, 5),
        "num_weights": 10,
        "padding_idx": -1,
        "scale_grad_by_freq": False,
        "sparse": False,
    },
    "index_select_backward": lambda draw: {
        "grad": draw.normal(3, 2),
        "self_sizes": [3, 4],
        "dim": 1,
        "index": torch.tensor([0, 2]),
    },
    "value_selecting_reduction_backward": lambda draw: {
        "grad": draw.normal(3),
        "dim": 1,
        "indices": draw.integers(4, 3),
        "sizes": [3, 4],
        "keepdim": False,
    },
    # Quantization.
    "_fake_quantize_learnable_per_tensor_affine": lambda draw: _learnable(draw, 1),
    "_fake_quantize_learnable_per_tensor_affine_backward": lambda draw: {
        **_learnable(draw, 1),
        "grad": draw.normal(3, 4),
    },
    "_fake_quantize_learnable_per_channel_affine_backward": lambda draw: {
        **_learnable(draw, 3),
        "grad": draw.normal(3, 4),
        "axis": 0,
    },
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": lambda draw: {
        **_quantization(draw, 1),
        "fake_quant_enabled": torch.tensor([1]),
    },
    "fused_moving_avg_obs_fake_quant": _observed,
    "_fused_moving_avg_obs_fq_helper": _observed,
    # Lists of tensors with a factor each.
    **dict.fromkeys(
        (
            f"_foreach_{op}{overload}"
            for op in ("addcdiv", "addcmul")
            for overload in (".Tensor", "_.Tensor", ".Tensor_out")
        ),
        lambda draw: {
            **{name: [draw.normal(3, 4), draw.normal(5)] for name in ("self", "tensor1")},
            "tensor2": [draw.uniform(3, 4), draw.uniform(5)],
            "scalars": torch.tensor([0.5, -2.0]),
        },
    ),
    "_rowwise_prune": lambda draw: {
        "weight": draw.normal(4, 3),
        "mask": torch.tensor([True, False, True, True]),
        "compressed_indices_dtype": torch.int32,
    },
    # Optimizers.
    "_fused_adam": _adam,
    "_fused_adamw": _adam,
    "_fused_adagrad": _adagrad,
    "_fused_sgd": _sgd,
    # Products.
    "_foreach_mm.default": lambda draw: {
        "self": [draw.normal(3, 4), draw.normal(2, 5)],
        "mat2": [draw.normal(4, 2), draw.normal(5, 3)],
    },
    # Without train, eager drops and torch's traced kernel does not.
    "native_dropout": lambda draw: {"input": draw.normal(3, 4), "p": 0.3, "train": True},
    "dropout": lambda draw: _dropout(draw.normal(3, 4)),
    "alpha_dropout": lambda draw: _dropout(draw.normal(3, 4)),
    "feature_dropout": lambda draw: _dropout(draw.normal(2, 5, 3)),
    "feature_alpha_dropout": lambda draw: _dropout(draw.normal(2, 5, 3)),
    "binomial": lambda draw: {"count": draw.integers(60, 4, 5).float(), "prob": draw.uniform(4, 5) - 0.1},
    "_int_mm": lambda draw: {
        "self": draw.integers(9, 3, 8, low=-9, dtype=torch.int8),
        "mat2": draw.integers(9, 8, 4, low=-9, dtype=torch.int8),
    },
    "_weight_int8pack_mm": lambda draw: {
        "self": draw.normal(4, 32),
        "mat2": draw.integers(9, 32, 32, low=-9, dtype=torch.int8),
        "scales": draw.uniform(32),
    },
    "_grouped_mm": lambda draw: {
        "self": draw.normal(8, 16, dtype=torch.bfloat16),
        "mat2": draw.normal(2, 16, 8, dtype=torch.bfloat16),
        "offs": torch.tensor([3, 8], dtype=torch.int32),
    },
    "einsum": lambda draw: {"equation": "ij,jk->ki", "tensors": [draw.normal(3, 4), draw.normal(4, 2)]},
    "tensordot": lambda draw: {
        "self": draw.normal(3, 4, 2),
        "other": draw.normal(4, 3, 5),
        "dims_self": [0, 1],
        "dims_other": [1, 0],
    },
    **dict.fromkeys(("mm.default", "mm.out"), lambda draw: {"self": draw.normal(3, 4), "mat2": draw.normal(4, 2)}),
    # Distances and transforms, which check nothing.
    "_pdist_backward": lambda draw: _distances_back(draw.normal(4, 3), draw.normal(6)),
    "_fft_c2c": lambda draw: {**_transform(draw, torch.complex64), "forward": True},
    "_fft_r2c": lambda draw: {**_transform(draw, torch.float32), "onesided": True},
    # Linear algebra.
    "cholesky": _positive_definite,
    **dict.fromkeys(
        ("linalg_cond.p_str", "linalg_cond.p_str_out"), lambda draw: {**_positive_definite(draw), "p": "fro"}
    ),
    **dict.fromkeys(
        ("linalg_norm.ord_str", "linalg_norm.ord_str_out"), lambda draw: {"self": draw.normal(3, 4), "ord": "fro"}
    ),
    **dict.fromkeys(
        ("nuclear_norm.dim", "nuclear_norm.dim_out"), lambda draw: {"self": draw.normal(3, 4), "dim": [0, 1]}
    ),
    "orgqr": lambda draw: {"self": draw.normal(4, 3), "input2": draw.uniform(3)},
    # Recurrent layers.
    "lstm.input": lambda draw: _with_cells(_layer(draw, 4), draw),
    "gru.input": lambda draw: _layer(draw, 3),
    "rnn_tanh.input": lambda draw: _layer(draw, 1),
    "rnn_relu.input": lambda draw: _layer(draw, 1),
    "lstm_cell": lambda draw: _with_cells(_cell(draw, 4), draw),
    "gru_cell": lambda draw: _cell(draw, 3),
    "mkldnn_rnn_layer": _mkldnn_rnn_layer,
    "mkldnn_rnn_layer_backward": _mkldnn_rnn_layer_backward,
    # Attention.
    "_masked_softmax": lambda draw: {
        "self": draw.normal(2, 2, 3, 4),
        "mask": draw.truth(2, 2, 3, 4),
        "dim": -1,
        "mask_type": 2,
    },
    "_masked_softmax_backward": lambda draw: {
        "grad_output": draw.normal(2, 2, 3, 4),
        "output": draw.normal(2, 2, 3, 4).softmax(-1),
        "mask": draw.truth(2, 2, 3, 4),
        "dim": -1,
    },
    "_native_multi_head_attention": _multi_head_attention,
    "_transformer_encoder_layer_fwd": _encoder_layer,
    # Losses.
    "cosine_embedding_loss": lambda draw: {
        "input1": draw.normal(3, 4),
        "input2": draw.normal(3, 4),
        "target": torch.tensor([1, -1, 1]),
    },
    "cross_entropy_loss": lambda draw: _classes(draw),
    "nll_loss": lambda draw: _classes(draw),
    "nll_loss_nd": lambda draw: _classes(draw),
    "nll_loss2d": lambda draw: _classes(draw, 2, 4),
    "kl_div": lambda draw: {
        "self": draw.normal(3, 4).log_softmax(1),
        "target": draw.normal(3, 4).softmax(1),
        "reduction": 2,
    },
    # Images and signals.
    "affine_grid_generator": _grid,
    "affine_grid_generator_backward": lambda draw: {
        "grad": draw.normal(2, 4, 5, 2),
        "size": [2, 3, 4, 5],
        "align_corners": False,
    },
    "grid_sampler": lambda draw: {
        "input": draw.normal(1, 2, 4, 5),
        "grid": draw.normal(1, 3, 3, 2),
        "interpolation_mode": 0,
        "padding_mode": 0,
        "align_corners": False,
    },
    "upsample_nearest3d.vec": _volume,
    "_upsample_nearest_exact3d.vec": _volume,
    "native_channel_shuffle": lambda draw: {"self": draw.normal(2, 6, 3, 2), "groups": 3},
    "istft": _istft,
    # Differences along axes.
    "gradient.array": lambda draw: {"self": draw.normal(4, 5), "dim": [0, 1]},
    "gradient.scalararray": lambda draw: {"self": draw.normal(4, 5), "spacing": 0.5, "dim": [0, 1]},
    "gradient.scalarrayarray": lambda draw: {"self": draw.normal(4, 5), "spacing": [0.5, 2.0], "dim": [0, 1]},
    "gradient.tensorarray": lambda draw: {
        "self": draw.normal(4, 5),
        "spacing": [draw.uniform(4).cumsum(0), draw.uniform(5).cumsum(0)],
        "dim": [0, 1],
    },
    "gradient.tensorarrayint": lambda draw: {
        "self": draw.normal(4, 5),
        "spacing": [draw.uniform(5).cumsum(0)],
        "dim": 1,
    },
    # Packed sequences.
    "_pack_padded_sequence": lambda draw: {
        "input": draw.normal(3, 5, 4),
        "lengths": torch.tensor([4, 2, 2]),
        "batch_first": True,
    },
    "_pack_padded_sequence_backward": lambda draw: {
        **_without(_packed(draw), "data"),
        "grad": draw.normal(8, 4),
        "input_size": [3, 5, 4],
    },
    "_pad_packed_sequence": lambda draw: {**_packed(draw), "padding_value": -1.5, "total_length": 6},
    "lstm.data": lambda draw: _with_cells(_packed_layer(draw, 4), draw),
    "gru.data": lambda draw: _packed_layer(draw, 3),
    "rnn_tanh.data": lambda draw: _packed_layer(draw, 1),
    "rnn_relu.data": lambda draw: _packed_layer(draw, 1),
    # Rows one after another.
    "_jagged_to_padded_dense_forward": lambda draw: {
        "values": draw.normal(7, 4),
        "offsets": [torch.tensor([0, 2, 2, 7])],
        "max_lengths": [4],
        "padding_value": -1.5,
    },
    "_padded_dense_to_jagged_forward": lambda draw: {
        "dense": draw.normal(3, 4, 2),
        "offsets": [torch.tensor([0, 2, 2, 6])],
    },
    "_transform_bias_rescale_qkv": lambda draw: {
        "qkv": draw.normal(2, 3, 12),
        "qkv_bias": draw.normal(12),
        "num_heads": 2,
    },
    # Rows of a sparse matrix, which eager does not check.
    "_convert_indices_from_coo_to_csr": lambda draw: {"self": torch.tensor([0, 0, 2, 3, 3, 3]), "size": 5},
    "_convert_indices_from_csr_to_coo": lambda draw: {
        "crow_indices": torch.tensor([[0, 2, 2, 3], [0, 0, 1, 3]]),
        "col_indices": draw.integers(4, 2, 3),
    },
    # Shapes and places.
    "one_hot": lambda draw: {"self": draw.integers(5, 3, 2), "num_classes": 5},
    # Of the places, not of the number of parts: that many results a graph cannot have.
    "tensor_split.tensor_indices_or_sections": lambda draw: {
        "self": draw.normal(7, 3),
        "tensor_indices_or_sections": torch.tensor([2, 5]),
    },
    # What it writes into the running statistics its schema does not say.
    "batch_norm_update_stats": lambda draw: {
        "input": draw.normal(4, 3, 5),
        "running_mean": None,
        "running_var": None,
        "momentum": 0.1,
    },
    "count_nonzero.dim_IntList_out": lambda draw: {"self": draw.integers(2, 3, 4), "dim": [0]},
    # Whose memory the result shows it does not ask.
    "_reshape_alias": lambda draw: {"self": draw.normal(3, 4), "size": [4, 3], "stride": [3, 1]},
    # Not sorted, the order is any.
    "topk": lambda draw: {"self": draw.normal(3, 7), "k": 3, "dim": 1, "largest": False, "sorted": True},
    "moveaxis.intlist": lambda draw: {"self": draw.normal(2, 3, 4), "source": [0, 1], "destination": [2, 0]},
    "unflatten_dense_tensors": lambda draw: {
        "flat": draw.normal(10),
        "tensors": [draw.normal(2, 3), draw.normal(4)],
    },
    "unique_dim_consecutive": lambda draw: {"self": draw.integers(2, 6, 1).expand(6, 2), "dim": 0},
}


# What else an overload of the table may be called with, beside its other arguments: modes, and tensors that may be left
# out. Each is a call of its own. Booleans are turned over without being named here.
_SCALED: tuple[Entry, ...] = (
    lambda draw: {"grad_scale": torch.tensor(4.0)},
    lambda draw: {"grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(1.0)},
    lambda draw: {"found_inf": torch.tensor(0.0)},
)
CHANGES: Mapping[str, tuple[Entry, ...]] = {
    "_amp_foreach_non_finite_check_and_unscale": (
        lambda draw: {"self": [torch.tensor([1.0, math.inf]), draw.normal(5)]},
        lambda draw: {"self": [draw.normal(3), torch.tensor([math.nan, 1.0])]},
        lambda draw: {"found_inf": torch.ones(())},
    ),
    "_amp_update_scale": (
        lambda draw: {"found_inf": torch.ones(1)},
        lambda draw: {"growth_tracker": torch.tensor([0], dtype=torch.int32)},
    ),
    **dict.fromkeys(("_fused_adam", "_fused_adamw", "_fused_adagrad", "_fused_sgd"), _SCALED),
    # In place torch cannot functionalize an empty list.
    **dict.fromkeys(
        ("_fused_adam.default", "_fused_adamw.default"),
        (*_SCALED, lambda draw: {"amsgrad": False, "max_exp_avg_sqs": []}),
    ),
    "_embedding_bag_dense_backward": (
        lambda draw: {"mode": 0},
        lambda draw: {"mode": 0, "per_sample_weights": draw.normal(5)},
        lambda draw: {"mode": 0, "padding_idx": 3},
        lambda draw: {"mode": 2, "maximum_indices": draw.integers(10, 2, 3)},
    ),
    "_masked_softmax": (
        lambda draw: {"self": draw.normal(2, 2, 4, 4), "mask": draw.truth(4, 4), "mask_type": 0},
        lambda draw: {"self": draw.normal(2, 2, 4, 4), "mask": draw.truth(2, 4), "mask_type": 1},
    ),
    "_fused_moving_avg_obs_fq_helper": (
        lambda draw: {"observer_on": torch.tensor([0])},
        lambda draw: {"fake_quant_on": torch.tensor([0])},
    ),
    **dict.fromkeys(("_weight_norm", "_weight_norm_interface"), (lambda draw: {"g": draw.uniform(1, 3), "dim": 1},)),
}


def changed_arguments(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Changes of the arguments that `valid_arguments` gives for ``names``, one for each further call."""
    found: tuple[Entry, ...] = next((CHANGES[name] for name in names if name in CHANGES), ())
    return [change(Draw()) for change in found]


def valid_arguments(names: tuple[str, ...]) -> dict[str, Any] | None:
    """Arguments of the first of ``names`` that the table has, or None."""
    found = next((ARGUMENTS[name] for name in names if name in ARGUMENTS), None)
    return None if found is None else found(Draw())
