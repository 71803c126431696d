"""Token by token generation with a cache computes what eager computes.

What a user would lose: a chat that drifts from the model's own words after the first token.
"""

from __future__ import annotations

import pytest
import torch
import transformers as tf

STEPS = 4


def _decode(module, config, tokens, cache):
    """Logits of a prefill and of `STEPS` single tokens, the cache carried from call to call."""
    logits = []
    for _ in range(STEPS):
        result = module(input_ids=tokens, past_key_values=cache, use_cache=True)
        logits.append(result.logits)
        tokens, cache = result.logits[:, -1:].argmax(-1), result.past_key_values
    return logits


@pytest.mark.parametrize(("decoder", "cache"), [("gpt2", "dynamic"), ("llama", "dynamic"), ("llama", "static")])
def test_cached_decoding(decoder, cache, build, compile_strictly, in_float64, assert_as_exact):
    model = build(decoder)
    config = model.module.config

    def fresh():
        if cache == "dynamic":
            return tf.DynamicCache(config=config)
        return tf.StaticCache(config=config, max_cache_len=16)

    tokens = model.arguments["input_ids"]
    with torch.no_grad():
        eager = _decode(model.module, config, tokens, fresh())
        exact = _decode(in_float64(model).module, config, tokens, fresh())
        actual = _decode(compile_strictly(model.module), config, tokens, fresh())
    for step in range(STEPS):
        assert torch.equal(actual[step].argmax(-1), eager[step].argmax(-1))
        assert_as_exact(actual[step], eager[step], exact[step], what=f"step {step}")


def test_generate(build, compile_strictly):
    model = build("gpt2")
    arguments = {"max_new_tokens": 5, "do_sample": False, "attention_mask": torch.ones(2, 10, dtype=torch.long)}
    expected = model.module.generate(model.arguments["input_ids"], **arguments)
    model.module.forward = compile_strictly(model.module.forward)
    assert torch.equal(model.module.generate(model.arguments["input_ids"], **arguments), expected)
