"""Sizes that are known only when a graph runs compute like Python's numbers."""

from __future__ import annotations

import random

import pytest
import torch

from backend_sdk import errors
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.spec.symbolic import concrete, contiguous_strides, element_count, symbol

s0, s1 = symbol("s0"), symbol("s1")


def random_expression(generator, depth):
    """The same expression over symbols and over numbers."""
    if depth == 0 or generator.random() < 0.2:
        choice = generator.randrange(3)
        if choice == 2:
            number = generator.randint(1, 9)
            return number, lambda table: number
        name = f"s{choice}"
        return symbol(name), lambda table: table[name]
    (a, f), (b, g) = random_expression(generator, depth - 1), random_expression(generator, depth - 1)
    kind = generator.choice("+-*/%")
    if kind == "+":
        return a + b, lambda table: f(table) + g(table)
    if kind == "-":
        return a - b, lambda table: f(table) - g(table)
    if kind == "*":
        return a * b, lambda table: f(table) * g(table)
    divisor = generator.randint(1, 7)
    if kind == "/":
        return a // divisor, lambda table: f(table) // divisor
    return a % divisor, lambda table: f(table) % divisor


@pytest.mark.parametrize("seed", range(60))
def test_arithmetic_is_pythons(seed):
    generator = random.Random(seed)
    expression, plain = random_expression(generator, 4)
    for _ in range(5):
        table = {"s0": generator.randint(0, 40), "s1": generator.randint(0, 40)}
        value = expression.evaluate(table) if isinstance(expression, SymExpr) else expression
        assert value == plain(table), (expression, table)
        if isinstance(expression, SymExpr):
            assert eval(expression.source, {"math": __import__("math")}, table) == plain(table)


def test_equal_expressions_are_equal_and_hash_alike():
    assert s0 * 2 == s0 + s0 and hash(s0 * 2) == hash(s0 + s0)
    assert s0 * s1 == s1 * s0
    assert s0 != s1 and s0 != "s0" and s0 != 1
    assert (s0 + 1) - 1 == s0
    assert {TensorType((s0, 2), torch.float32)} == {TensorType((s0, 2), torch.float32)}


def test_constant_results_are_numbers():
    assert s0 - s0 == 0 and type(s0 - s0) is int
    assert s0 * 0 == 0 and type(s0 * 0) is int
    assert (s0 + 3) - s0 == 3


def test_reflected_operators():
    table = {"s0": 7}
    for made, expected in ((2 + s0, 9), (2 - s0, -5), (2 * s0, 14), (20 // s0, 2), (-s0, -7), (s0 % 4, 3)):
        assert made.evaluate(table) == expected


def test_symbols():
    assert (s0 * s1 + 1).symbols == {"s0", "s1"}
    assert s0.is_symbol and not (s0 + 1).is_symbol
    assert repr(s0 * s1) == "s0*s1" and repr(s0 // 2) == "s0 // 2"


def test_a_missing_symbol_is_named():
    with pytest.raises(errors.DialectError, match=r"cannot evaluate s0\*s1: no value for s1"):
        (s0 * s1).evaluate({"s0": 1})


def test_no_truth_value():
    with pytest.raises(errors.DialectError, match="the symbolic value s0 has no truth value"):
        bool(s0)


def test_shapes():
    assert element_count((s0, 3, 2)) == s0 * 6
    assert element_count(()) == 1
    assert contiguous_strides((2, s0, 3)) == (s0 * 3, 3, 1)
    assert contiguous_strides((2, 0, 3)) == (3, 3, 1)
    assert str(TensorType((s0 * 2, 3), torch.float32)) == "float32[2*s0, 3]"
    assert TensorType((s0, 3), torch.float64).nbytes == s0 * 24


def test_concrete():
    assert concrete((s0, [s1 + 1, "text"], 2.5, None), {"s0": 3, "s1": 4}) == (3, [5, "text"], 2.5, None)
