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


# ---- a call is checked against what the program was exported for


class Adds(torch.nn.Module):
    def forward(self, x, y):
        return x + y


def adding(x, y, dynamic_shapes=None):
    program = torch.export.export(Adds(), (x, y), dynamic_shapes=dynamic_shapes)
    return backend_sdk.compile_program(program, backend="reference")


@pytest.mark.parametrize(
    ("x", "parts"),
    [
        (torch.ones(1, 4), ["argument 'x' is float32[1, 4]", "takes float32[2, 4]", "dynamic_shapes"]),
        (torch.ones(2, 5), ["argument 'x' is float32[2, 5]", "takes float32[2, 4]"]),
        (torch.ones(4), ["argument 'x' is float32[4]", "takes float32[2, 4]"]),
        (torch.ones(2, 4, dtype=torch.float64), ["argument 'x' is float64[2, 4]", "takes float32[2, 4]"]),
        (torch.ones(2, 4).to_sparse(), ["argument 'x'", "sparse", "takes float32[2, 4]"]),
        (3.0, ["argument 'x' is 3.0 (float)", "takes a tensor float32[2, 4]"]),
        (None, ["argument 'x' is None", "takes a tensor float32[2, 4]"]),
    ],
)
def test_an_argument_of_another_shape_dtype_or_kind_is_refused_with_its_name(x, parts):
    compiled = adding(torch.ones(2, 4), torch.ones(2, 4))
    with pytest.raises(errors.CaptureError) as caught:
        compiled(x, torch.ones(2, 4))
    for part in parts:
        assert part in str(caught.value)


def test_an_argument_on_another_device_is_a_device_error():
    compiled = adding(torch.ones(2, 4), torch.ones(2, 4))
    with pytest.raises(errors.DeviceError, match=r"argument 'y' is on 'meta', but the program takes it on 'cpu'"):
        compiled(torch.ones(2, 4), torch.ones(2, 4, device="meta"))


def test_dynamic_sizes_keep_their_range_and_agree():
    rows = torch.export.Dim("b", min=2, max=8)
    compiled = adding(torch.ones(3, 4), torch.ones(3, 4), {"x": {0: rows}, "y": {0: rows}})
    for length in (2, 5, 8):
        torch.testing.assert_close(compiled(torch.ones(length, 4), torch.ones(length, 4)), torch.full((length, 4), 2.0))
    for length in (1, 9, 20):
        with pytest.raises(errors.CaptureError, match=rf"'x' is float32\[{length}, 4\].* 2 to 8"):
            compiled(torch.ones(length, 4), torch.ones(length, 4))
    with pytest.raises(errors.CaptureError, match=r"'y' is float32\[5, 4\].* is 3 \(size 0 of argument 'x'\)"):
        compiled(torch.ones(3, 4), torch.ones(5, 4))


def test_a_size_that_is_computed_from_another_is_checked():
    class Doubles(torch.nn.Module):
        def forward(self, x, y):
            return torch.cat([x, x]) + y

    rows = torch.export.Dim("b", min=2, max=8)
    program = torch.export.export(
        Doubles(), (torch.ones(4, 4), torch.ones(8, 4)), dynamic_shapes={"x": {0: rows}, "y": {0: 2 * rows}}
    )
    compiled = backend_sdk.compile_program(program, backend="reference")
    torch.testing.assert_close(compiled(torch.ones(3, 4), torch.ones(6, 4)), torch.full((6, 4), 2.0))
    with pytest.raises(errors.CaptureError, match=r"'y' is float32\[7, 4\]"):
        compiled(torch.ones(3, 4), torch.ones(7, 4))


class Scales(torch.nn.Module):
    def forward(self, x, n: int, mode: str, factor: float, other=None, *, shift=True):
        return (x * n * factor + shift, n, other, mode)


CONSTANTS = (3, "x", 2.5, None)


def test_constant_arguments_are_taken_and_must_be_those_of_the_export():
    program = torch.export.export(Scales(), (torch.ones(2), *CONSTANTS), {"shift": True})
    compiled = backend_sdk.compile_program(program, backend="reference", options={"fallback": "error"})
    got = compiled(torch.ones(2), *CONSTANTS, shift=True)
    torch.testing.assert_close(got[0], torch.full((2,), 8.5))
    assert got[1:] == (3, None, "x")
    wrong = [(4, "x", 2.5, None), (3.0, "x", 2.5, None), (3, "y", 2.5, None), (3, "x", 2, None), (3, "x", 2.5, 1)]
    for constants, name in zip(wrong, ("n", "n", "mode", "factor", "other"), strict=True):
        with pytest.raises(errors.CaptureError, match=rf"argument '{name}' .*the constant"):
            compiled(torch.ones(2), *constants, shift=True)
    with pytest.raises(errors.CaptureError, match=r"argument 'shift' is 1 \(int\)"):
        compiled(torch.ones(2), *CONSTANTS, shift=1)


def test_a_symbolic_number_is_an_argument_that_may_change():
    class Times(torch.nn.Module):
        def forward(self, x, n: int):
            return x * n

    program = torch.export.export(
        Times(), (torch.ones(2), 3), dynamic_shapes={"x": None, "n": torch.export.Dim.DYNAMIC}
    )
    compiled = backend_sdk.compile_program(program, backend="reference")
    torch.testing.assert_close(compiled(torch.ones(2), 7), torch.full((2,), 7.0))
    with pytest.raises(errors.CaptureError, match="argument 'n'"):
        compiled(torch.ones(2), "7")


def test_kernels_get_the_strides_of_the_export(make_writing):
    """A kernel that was compiled for dense memory would read elsewhere; `make_writing`'s look at the strides."""
    name = make_writing().name
    for dynamic_shapes in (None, {"x": {0: torch.export.Dim("n")}, "y": {0: torch.export.Dim("n")}}):
        program = torch.export.export(Adds(), (torch.ones(3, 4), torch.ones(3, 4)), dynamic_shapes=dynamic_shapes)
        compiled = backend_sdk.compile_program(program, backend=name)
        x, y = torch.randn(4, 3).T, torch.randn(3, 8)[:, ::2]
        torch.testing.assert_close(compiled(x, y), x + y)


def test_arguments_nested_in_containers_are_named():
    class Nested(torch.nn.Module):
        def forward(self, pair, table):
            return pair[0] + table["a"]

    arguments = (torch.ones(2), torch.ones(2)), {"a": torch.ones(2)}
    compiled = backend_sdk.compile_program(torch.export.export(Nested(), arguments), backend="reference")
    torch.testing.assert_close(compiled(*arguments), torch.full((2,), 2.0))
    with pytest.raises(errors.CaptureError, match=r"argument 'table_a' is float32\[3\]"):
        compiled((torch.ones(2), torch.ones(2)), {"a": torch.ones(3)})
    with pytest.raises(errors.CaptureError, match="not nested like"):
        compiled((torch.ones(2), torch.ones(2)), {"b": torch.ones(2)})


def test_gradients_are_not_taken():
    compiled = adding(torch.ones(2, 4), torch.ones(2, 4))
    assert not compiled(torch.ones(2, 4, requires_grad=True), torch.ones(2, 4)).requires_grad


def test_a_model_that_was_not_exported_is_refused_with_the_way_to_do_it():
    with pytest.raises(errors.CaptureError, match=r"not ReLU\n.*torch\.export\.export\(model, args\) first"):
        backend_sdk.compile_program(torch.nn.ReLU(), backend="reference")
    program = torch.export.export(Adds(), (torch.ones(2), torch.ones(2)))
    with pytest.raises(errors.OptionError, match="must be a dict"):
        backend_sdk.compile_program(program, backend="reference", options=2)
