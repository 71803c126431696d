"""`compile_program` runs an exported program: same results, same mutated buffers, same nesting."""

from __future__ import annotations

import pytest
import torch

import backend_sdk
from backend_sdk import errors


class Counting(torch.nn.Module):
    """Parameters, persistent and other buffers, one of them mutated, keyword arguments and a dict of results."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)

    def forward(self, x, *, shift):
        self.calls.add_(1)
        y = self.norm(self.layer(x)) * self.scale + shift
        return {"y": y, "pair": (y.sum(), torch.tensor([1.0, 2.0]) + shift[:2])}


def exported(model, x, shift):
    return torch.export.export(
        model, (x,), {"shift": shift}, dynamic_shapes={"x": {0: torch.export.Dim("n")}, "shift": None}
    )


def test_results_nesting_buffers_and_sizes_are_the_programs():
    torch.manual_seed(0)
    model = Counting().train()
    x, shift = torch.randn(3, 4), torch.randn(4)
    program = exported(model, x, shift)
    compiled = backend_sdk.compile_program(program, backend="reference", options={"fallback": "error"})
    eager = Counting().train()
    eager.load_state_dict(model.state_dict())
    for length in (3, 7, 5):
        x = torch.randn(length, 4)
        got, expected = compiled(x, shift=shift), eager(x, shift=shift)
        torch.testing.assert_close(got, expected)
        assert not got["y"].requires_grad
    state = compiled.state_dict
    assert state["calls"] == 3
    torch.testing.assert_close(state["norm.running_mean"], eager.norm.running_mean)
    torch.testing.assert_close(state["norm.running_var"], eager.norm.running_var)


def test_an_input_that_the_program_mutates_is_mutated():
    class Adds(torch.nn.Module):
        def forward(self, x, y):
            x.add_(y)
            return x * 2

    program = torch.export.export(Adds(), (torch.ones(3), torch.ones(3)))
    compiled = backend_sdk.compile_program(program, backend="reference")
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x, torch.ones(3)), torch.full((3,), 4.0))
    torch.testing.assert_close(x, torch.full((3,), 2.0))


def test_torch_compile_of_an_exported_program():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
    x = torch.randn(2, 4)
    program = torch.export.export(model, (x,))
    compiled = torch.compile(program.module(), backend="sdk:reference", options={"fallback": "error"})
    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("call", [lambda run: run(torch.ones(3, 4)), lambda run: run(torch.ones(3, 4), scale=1)])
def test_arguments_nested_otherwise_are_refused_with_the_right_call(call):
    program = exported(Counting().eval(), torch.randn(3, 4), torch.randn(4))
    compiled = backend_sdk.compile_program(program, backend="reference")
    with pytest.raises(errors.CaptureError) as caught:
        call(compiled)
    assert "program(..., shift=...)" in str(caught.value)


def test_a_refused_op_and_a_typo_are_errors_of_the_sdk():
    class Sparse(torch.nn.Module):
        def forward(self, x):
            return x.to_sparse().to_dense()

    program = torch.export.export(Sparse(), (torch.rand(3),))
    with pytest.raises(errors.UnsupportedOpError, match="to_sparse"):
        backend_sdk.compile_program(program, backend="reference", options={"fallback": "error"})
    with pytest.raises(errors.UnknownBackendError):
        backend_sdk.compile_program(program, backend="nowhere")
