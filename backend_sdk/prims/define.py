"""The decorators by which an op enters the contract: `prim`, `composite`, and their elementwise short forms.

The decorated function is the reference: its name, its signature (operands by position, attributes by
keyword) and its docstring are the op's.

Does not: hold any op.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from backend_sdk import dtypes
from backend_sdk.prims.samples import elementwise_samples, special_values
from backend_sdk.spec.dtype_rule import DtypeRule, DtypeVar, Result, Slot
from backend_sdk.spec.prim import (
    Composite,
    Prim,
    Registry,
    SampleGenerator,
    ShapeRule,
    SpecialValues,
    same_shape,
)
from backend_sdk.spec.tolerance import Tolerance
from backend_sdk.spec.types import TensorType

CONTRACT = Registry()

# What stands for a tensor in a reference: a torch.Tensor when it runs, a graph value when a graph is built.
Operand = Any

_Reference = Callable[..., Any]


def prim(
    *,
    shape: ShapeRule,
    operands: tuple[Slot, ...],
    results: tuple[Result, ...],
    tolerance: Tolerance,
    samples: SampleGenerator,
    specials: SpecialValues = special_values,
    profiles: tuple[str, ...] = ("base",),
    variadic: bool = False,
    differentiable: bool = True,
    structural: bool = False,
    identity: Callable[..., bool] | None = None,
    undefined: Callable[..., torch.Tensor] | None = None,
) -> Callable[[_Reference], Prim]:
    """Define a prim. ``identity(type, **attributes)`` says when the op returns its operand unchanged,
    ``undefined(*operands, **attributes)`` for which elements it promises no value.
    """

    def define(reference: _Reference) -> Prim:
        return CONTRACT.add(
            Prim(
                reference,
                shape_rule=shape,
                dtype_rule=DtypeRule(operands, results, variadic),
                tolerance=tolerance,
                samples=samples,
                specials=specials,
                profiles=profiles,
                differentiable=differentiable,
                structural=structural,
                identity=identity,
                undefined=undefined,
            )
        )

    return define


def composite(
    *,
    shape: ShapeRule,
    operands: tuple[Slot, ...],
    results: tuple[Result, ...],
    tolerance: Tolerance,
    samples: SampleGenerator,
    specials: SpecialValues = special_values,
    profiles: tuple[str, ...] = ("base",),
    differentiable: bool = True,
) -> Callable[[_Reference], Composite]:
    """Define a composite: the decorated function is its body, written with contract ops only."""

    def define(body: _Reference) -> Composite:
        op = Composite(
            body,
            shape_rule=shape,
            dtype_rule=DtypeRule(operands, results),
            tolerance=tolerance,
            samples=samples,
            specials=specials,
            profiles=profiles,
            differentiable=differentiable,
        )
        CONTRACT.add(op)
        return op

    return define


def elementwise(
    domain: frozenset[torch.dtype],
    *,
    tolerance: Tolerance,
    result: torch.dtype | None = None,
    ranges: tuple[tuple[float, float], ...] = ((-4.0, 4.0),),
    profiles: tuple[str, ...] = ("base",),
    differentiable: bool = True,
    body: bool = False,
    undefined: Callable[..., torch.Tensor] | None = None,
) -> Callable[[_Reference], Prim]:
    """Define an elementwise prim (``body=True``: composite) whose operands share one dtype and one shape.

    ``ranges`` holds one ``(low, high)`` per operand for its samples, so its length is the op's arity.
    ``undefined(*operands)`` says of a prim for which elements it promises no value.
    """

    def define(reference: _Reference) -> Prim:
        variable = DtypeVar("T", domain)
        operands = "x and the result have" if len(ranges) == 1 else "the operands and the result have"
        # Said once for all of them; an op without a docstring stays without, and the registry refuses it.
        if reference.__doc__:
            reference.__doc__ = f"{inspect.getdoc(reference)}\n\nElementwise: {operands} one shape, any."

        def shape(*types: TensorType) -> Any:
            return same_shape(reference.__name__, *types)

        def shape_of_parameterized(*types: TensorType, **_: Any) -> Any:
            return same_shape(reference.__name__, *types)

        takes_attributes = getattr(reference, "__kwdefaults__", None) or reference.__code__.co_kwonlyargcount
        definer = composite if body else functools.partial(prim, undefined=undefined)
        return definer(
            shape=shape_of_parameterized if takes_attributes else shape,
            operands=(variable,) * len(ranges),
            results=(result if result is not None else variable,),
            tolerance=tolerance,
            samples=elementwise_samples(*ranges),
            profiles=profiles,
            differentiable=differentiable,
        )(reference)

    return define


FLOATING_OR_COMPLEX = dtypes.FLOATING | dtypes.COMPLEX
