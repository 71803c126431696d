"""Gradients of results whose size is made of several that the data decide.

What a user would lose: the backward of a model that joins what two masks pick.
"""

from __future__ import annotations

import pytest
import torch

from backend_sdk.coverage.calls import COMPOSITES, Call, prove

X = torch.tensor([1.5, -2.0, 0.5, -0.25, 3.0, 0.0, -1.0])
JOINED = {
    "one mask twice": lambda x: torch.cat([x[x > 0], x[x > 0].exp()]),
    "two masks": lambda x: torch.cat([x[x > 0], x[x < 0].exp()]) * 1,
    "three masks": lambda x: torch.cat([x[x > 0].sin(), x[x < 0].exp(), x[x > 1] * x[x > 1]]).cos(),
    "two results": lambda x: (
        torch.cat([x[x > 0], x[x < 0].exp()]).sin(),
        torch.cat([x[x < 0], x[x > 1].exp()]).cos(),
    ),
    "a known part": lambda x: torch.cat([x[x > 0], x[:2].exp()]).sin(),
    "twice": lambda x: x[x > 0].sin().repeat(2).cos(),
    "rows": lambda x: torch.cat([x[x > 0], x[x < 0].exp()]).unsqueeze(1).expand(-1, 3).sin(),
}


@pytest.mark.parametrize("x", [X, X.abs() + 1, -X.abs() - 1], ids=["some", "all", "none"])
@pytest.mark.parametrize("name", JOINED)
def test_the_gradient_of_a_joined_result(name, x):
    call = Call(JOINED[name], (x.clone().requires_grad_(),), backward=True)
    assert prove(call, COMPOSITES) is not None


@pytest.mark.parametrize("name", JOINED)
def test_through_dynamo(name):
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(JOINED[name], backend="sdk:reference", options={"fallback": "error"})
        x, y = (X.clone().requires_grad_() for _ in range(2))
        for function, leaf in ((compiled, x), (JOINED[name], y)):
            results = function(leaf)
            sum((part * part).sum() for part in (results if isinstance(results, tuple) else (results,))).backward()
    torch.testing.assert_close(x.grad, y.grad)
    torch._dynamo.reset()
