"""Small models with random weights, and the measure by which compiled results are accepted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers as tf

_VOCABULARY = 64
_TOKENS = {"vocab_size": _VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass
class Model:
    """A model in evaluation mode, the arguments of one call, and the name of the result to compare."""

    module: torch.nn.Module
    arguments: dict[str, torch.Tensor]
    output: str

    def call(self, module: Callable[..., Any] | None = None) -> torch.Tensor:
        called = self.module if module is None else module
        return getattr(called(**self.arguments), self.output)


def _tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, _VOCABULARY, (batch, length))


def _bert() -> Model:
    config = tf.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        **_TOKENS,
    )
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, 6:] = 0
    arguments = {"input_ids": _tokens(2, 10), "attention_mask": mask}
    return Model(tf.BertModel(config), arguments, "last_hidden_state")


def _gpt2(dropout: float = 0.0) -> Model:
    config = tf.GPT2Config(
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=32,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        resid_pdrop=dropout,
        **_TOKENS,
    )
    return Model(tf.GPT2LMHeadModel(config), {"input_ids": _tokens(2, 10)}, "logits")


def _llama() -> Model:
    config = tf.LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        **_TOKENS,
    )
    return Model(tf.LlamaForCausalLM(config), {"input_ids": _tokens(2, 10)}, "logits")


def _t5() -> Model:
    config = tf.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, **_TOKENS)
    arguments = {"input_ids": _tokens(2, 10), "decoder_input_ids": _tokens(2, 5)}
    return Model(tf.T5ForConditionalGeneration(config), arguments, "logits")


def _vit() -> Model:
    config = tf.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=16,
        patch_size=8,
    )
    return Model(tf.ViTModel(config), {"pixel_values": torch.randn(2, 3, 16, 16)}, "last_hidden_state")


def _resnet() -> Model:
    config = tf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16], depths=[1, 1, 1], layer_type="basic", num_labels=4
    )
    module = tf.ResNetForImageClassification(config)
    return Model(module, {"pixel_values": torch.randn(2, 3, 32, 32)}, "logits")


def _convnext() -> Model:
    config = tf.ConvNextConfig(hidden_sizes=[8, 16, 16], depths=[1, 1, 1], num_stages=3, num_labels=4)
    module = tf.ConvNextForImageClassification(config)
    return Model(module, {"pixel_values": torch.randn(2, 3, 32, 32)}, "logits")


def _mobilenet() -> Model:
    config = tf.MobileNetV2Config(image_size=32, depth_multiplier=0.25, num_labels=4)
    module = tf.MobileNetV2ForImageClassification(config)
    return Model(module, {"pixel_values": torch.randn(2, 3, 32, 32)}, "logits")


def _whisper() -> Model:
    config = tf.WhisperConfig(
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=16,
        max_target_positions=16,
        num_mel_bins=8,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        **_TOKENS,
    )
    arguments = {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": _tokens(2, 5)}
    return Model(tf.WhisperForConditionalGeneration(config), arguments, "logits")


_MODELS = {
    "bert": _bert,
    "convnext": _convnext,
    "gpt2": _gpt2,
    "llama": _llama,
    "mobilenet": _mobilenet,
    "resnet": _resnet,
    "t5": _t5,
    "vit": _vit,
    "whisper": _whisper,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``name`` runs once for each model."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", list(_MODELS))


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """No compiled code of one test is met by another, and no source of random numbers either."""
    torch._dynamo.reset()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def build():
    """``build(name, **config)`` makes a model from a fixed seed, with weights large enough to show a fault."""

    def make(name: str, **config: Any) -> Model:
        torch.manual_seed(0)
        model = _MODELS[name](**config)
        model.module.eval()
        return model

    return make


@pytest.fixture
def compile_strictly():
    """``compile_strictly(module, **arguments)`` compiles for the reference, and no op may run in eager."""

    def compile(module: Any, *, options: dict[str, Any] | None = None, **arguments: Any) -> Any:
        options = {"fallback": "error", **(options or {})}
        return torch.compile(module, backend="sdk:reference", options=options, **arguments)

    return compile


@pytest.fixture
def in_float64():
    """``in_float64(model)``: the same model and arguments with every float widened."""

    def widen(model: Model) -> Model:
        arguments = {
            name: value.double() if value.is_floating_point() else value for name, value in model.arguments.items()
        }
        return Model(copy.deepcopy(model.module).double(), arguments, model.output)

    return widen


@pytest.fixture
def assert_as_exact():
    """``assert_as_exact(actual, eager, exact)``: as near to the float64 result as eager's float32 is.

    The largest error may be four times eager's, or ``floor`` epsilons of the largest magnitude where eager happens
    to be exact (another order of the same sums rounds otherwise).
    """

    def check(
        actual: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, *, floor: float = 32, what: str = "result"
    ) -> None:
        assert (actual.dtype, actual.shape) == (eager.dtype, eager.shape)
        error, of_eager = ((x.double() - exact).abs().max() for x in (actual, eager))
        least = floor * torch.finfo(eager.dtype).eps * exact.abs().max()
        bound = torch.maximum(4 * of_eager, least)
        assert error <= bound, f"{what}: error {error:.3g} against float64, eager's is {of_eager:.3g}"

    return check
