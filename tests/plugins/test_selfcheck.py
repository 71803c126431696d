"""The vendor's first check. Were it blind, a wrong kernel would first show as a wrong model."""

import math

import pytest
import torch

from backend_sdk import plugins, prims
from backend_sdk.backend import Backend, implements
from backend_sdk.backends.null import NullBackend
from backend_sdk.backends.reference import ReferenceBackend
from backend_sdk.contract import YES, Kernel, no
from backend_sdk.errors import LoweringError, RegistryError
from backend_sdk.plugins import ConformanceCase, hookimpl
from backend_sdk.prims import CONTRACT
from backend_sdk.selfcheck import Verdict, check_ops
from backend_sdk.spec import Sample


class Writing(Backend):
    """Writes into its outputs with ``kernel(inputs, outputs)``, as destination passing wants it."""

    name = "writing"

    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def supports(self, node):
        return YES

    def lower(self, region):
        return Kernel(self.kernel)


def only(backend, op="exp", dtype=torch.float32):
    (result,) = check_ops(backend, ops=[op], dtypes=[dtype])
    return result


def test_the_reference_passes_the_whole_contract_and_the_null_backend_none_of_it():
    results = check_ops(ReferenceBackend(composites=True))
    wrong = [f"{r.op} {r.dtype}: {r.reason} in {r.call}" for r in results if r.verdict != Verdict.PASS]
    assert wrong == []
    assert {result.op for result in results} == {op.name for op in CONTRACT}
    assert all(result.ran for result in results)
    assert {result.verdict for result in check_ops(NullBackend())} == {Verdict.MISMATCH}


def test_a_right_kernel_passes_and_says_how_near_it_came():
    result = only(Writing(lambda inputs, outputs: outputs[0].copy_(inputs[0].exp())))
    assert result.verdict == Verdict.PASS
    assert 0.0 < result.worst <= 1.0
    assert result.ran == 6 and result.refused == 0


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda inputs, outputs: outputs[0].copy_(inputs[0].exp() * 1.0001), "times its tolerance"),
        (
            lambda inputs, outputs: outputs[0].view(-1)[:1].copy_(inputs[0].view(-1)[:1].exp()),
            "times its tolerance",
        ),
        (lambda inputs, outputs: outputs[0].copy_(inputs[0].exp_()), "wrote into its input 0"),
    ],
    ids=["inaccurate", "partly unwritten", "writes its input"],
)
def test_a_wrong_kernel_is_a_mismatch_that_names_the_call(kernel, reason):
    result = only(Writing(kernel))
    assert result.verdict == Verdict.MISMATCH and result.failed
    assert reason in result.reason
    assert result.call.startswith("exp(float32[")


@pytest.mark.parametrize(("op", "dtype"), [("eq", torch.bool), ("neg", torch.int32), ("bitwise_not", torch.uint8)])
def test_an_unwritten_output_shows_in_every_dtype(op, dtype):
    assert only(NullBackend(), op, dtype).verdict == Verdict.MISMATCH


def test_a_kernel_that_raises_is_reported_with_its_exception():
    def fail(inputs, outputs):
        raise OSError("device lost")

    result = only(Writing(fail))
    assert result.verdict == Verdict.RAISED and result.failed
    assert "device lost" in result.reason
    assert isinstance(result.error, OSError)


def test_a_result_of_the_wrong_dtype_is_reported():
    class Wide(Backend):
        name = "wide"

        @staticmethod
        @implements(prims.exp)
        def exp(x):
            return torch.exp(x.double())

    result = only(Wide())
    assert result.verdict == Verdict.RAISED
    assert "float64" in result.reason and "expected float32" in result.reason


def test_a_lower_that_returns_no_kernel_is_reported():
    class Empty(Writing):
        def lower(self, region):
            return None

    result = only(Empty(None))
    assert result.verdict == Verdict.RAISED
    assert isinstance(result.error, LoweringError)


def test_a_refusal_is_no_pass_and_carries_its_reason():
    class Picky(ReferenceBackend):
        name = "picky"

        def supports(self, node):
            if node.operands[0].dtype == torch.float64:
                return no("float64 is too wide")
            if node.operands[0].rank == 3:
                return no("rank 3")
            return super().supports(node)

    results = {result.dtype: result for result in check_ops(Picky(), ops=["exp"])}
    assert results[torch.float64].verdict == Verdict.REFUSED
    assert results[torch.float64].reason == "float64 is too wide"
    assert not results[torch.float64].failed
    partly = results[torch.float32]
    assert (partly.verdict, partly.ran, partly.refused) == (Verdict.PASS, 5, 1)


def test_a_supports_that_raises_is_reported():
    class Fragile(ReferenceBackend):
        name = "fragile"

        def supports(self, node):
            return node.attributes["missing"]

    assert only(Fragile()).verdict == Verdict.RAISED


def test_the_contracts_dtypes_are_covered():
    results = check_ops(ReferenceBackend(), ops=["exp", prims.convert, "random_bits", "iota"])
    dtypes = {op: [r.dtype for r in results if r.op == op] for op in ("exp", "convert", "random_bits", "iota")}
    assert torch.bfloat16 in dtypes["exp"] and torch.complex64 in dtypes["exp"]
    assert torch.int32 not in dtypes["exp"]
    assert len(dtypes["convert"]) == 12
    assert dtypes["random_bits"] == [torch.int32]
    assert torch.int64 in dtypes["iota"] and torch.bool not in dtypes["iota"]


def test_the_plugins_own_cases_are_checked_for_its_own_backend_only(registered):
    class Own(ReferenceBackend):
        name = "own"

    class Hooks:
        @hookimpl
        def sdk_conformance_cases(self):
            return [ConformanceCase("exp", Sample((torch.full((2,), math.nan),)), "all NaN")]

    plugins.register_backend(Own, hooks=Hooks())
    registered.append("own")
    sources = [result.source for result in check_ops(plugins.get_backend("own"), dtypes=[torch.float32])]
    assert sources.count("own: all NaN") == 1
    assert {result.source for result in check_ops(Own(), ops=["exp"])} == {"contract"}


def test_an_unknown_op_is_an_error():
    with pytest.raises(RegistryError, match="no op 'exq'"):
        check_ops(ReferenceBackend(), ops=["exq"])


@pytest.mark.parametrize("dtypes", [{"float32"}, {torch.float32, None}])
def test_what_is_no_dtype_is_refused_where_it_is_written(dtypes):
    with pytest.raises(RegistryError, match="is no dtype"):
        implements(prims.exp, dtypes=dtypes)(lambda x: torch.exp(x))
    with pytest.raises(RegistryError, match="is no dtype"):
        implements(torch.ops.aten.exp.default, dtypes=dtypes)(lambda self: torch.exp(self))
    with pytest.raises(RegistryError, match="is no dtype"):
        check_ops(NullBackend(), ["exp"], dtypes)


def test_dtypes_that_the_op_never_has_are_refused():
    with pytest.raises(RegistryError, match="exp has none of these dtypes") as raised:
        implements(prims.exp, dtypes={torch.int64})(lambda x: torch.exp(x))
    assert "float32" in str(raised.value.hint)


def test_a_class_is_no_backend():
    with pytest.raises(RegistryError, match="is a class, not a backend"):
        check_ops(NullBackend, ["exp"])


def test_help_shows_how_an_op_is_called():
    for op in CONTRACT:
        first, *rest = op.__doc__.splitlines()
        assert first.startswith(f"{op.name}(") and ") -> " in first
        assert op.doc.splitlines()[0] in rest and any(line.startswith("Dtypes: ") for line in rest)
    assert prims.gather.__doc__.startswith("gather(x: Tensor, indices: Tensor, *, axis: int) -> Tensor\n")
