"""The form of the contract: types, dtype rules, tolerances, and the definition of an op.

Does not: define any op (`backend_sdk.prims` does).
"""

from backend_sdk.spec.dtype_rule import ComplexOf, DtypeRule, DtypeVar, FromAttribute, RealOf
from backend_sdk.spec.prim import Composite, Prim, Registry, Sample, building, refuse, same_shape
from backend_sdk.spec.symbolic import Dim, Scalar, Shape, SymExpr, differ
from backend_sdk.spec.tolerance import Accumulated, Call, Exact, Relative, Tolerance, Ulp
from backend_sdk.spec.types import BoundaryType, TensorType

__all__ = [
    "Accumulated",
    "BoundaryType",
    "Call",
    "ComplexOf",
    "Composite",
    "Dim",
    "DtypeRule",
    "DtypeVar",
    "Exact",
    "FromAttribute",
    "Prim",
    "RealOf",
    "Registry",
    "Relative",
    "Sample",
    "Scalar",
    "Shape",
    "SymExpr",
    "TensorType",
    "Tolerance",
    "Ulp",
    "building",
    "differ",
    "refuse",
    "same_shape",
]
