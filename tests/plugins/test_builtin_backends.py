"""The built-in backends. Were the reference wrong, nothing that is compared with it would mean anything."""

import torch

from backend_sdk import plugins, prims
from backend_sdk.backends.null import NullBackend
from backend_sdk.backends.reference import ReferenceBackend
from backend_sdk.contract import Node
from backend_sdk.spec import Composite, Exact, Prim, TensorType
from backend_sdk.spec.prim import same_shape

VECTOR = TensorType((3,), torch.float32)


def node(op, operands=1):
    return Node(op, (VECTOR,) * operands, (VECTOR,), {})


def impostor():
    """An op that looks like the contract's exp and is not registered there."""

    def exp(x):
        """Something else."""
        return x

    return Prim(
        exp,
        shape_rule=lambda x: same_shape("exp", x),
        dtype_rule=prims.exp.dtype_rule,
        tolerance=Exact(),
        samples=prims.exp.samples,
        specials=prims.exp.specials,
        profiles=("base",),
    )


def test_the_reference_takes_prims_and_lets_composites_descend():
    reference = ReferenceBackend()
    assert reference.supports(node(prims.exp))
    refusal = reference.supports(node(prims.gelu))
    assert not refusal and "gelu is a composite" in refusal.reason
    assert ReferenceBackend(composites=True).supports(node(prims.gelu))
    assert isinstance(prims.gelu, Composite)


def test_neither_takes_what_is_not_in_the_contract():
    for backend in (ReferenceBackend(composites=True), NullBackend()):
        for op in (torch.ops.aten.exp.default, impostor()):
            refusal = backend.supports(node(op))
            assert not refusal and "is not an op of the contract" in refusal.reason


def test_null_keeps_composites_whole_and_writes_nothing():
    backend = NullBackend()
    assert backend.supports(node(prims.gelu))
    output = torch.full((3,), 7.0)
    kernel = backend.lower(None)
    assert not kernel.allocates_outputs
    assert kernel.run([torch.zeros(3)], [output]) is None
    assert torch.equal(output, torch.full((3,), 7.0))


def test_they_are_found_like_a_vendors():
    assert isinstance(plugins.get_backend("reference"), ReferenceBackend)
    assert isinstance(plugins.get_backend("null"), NullBackend)
