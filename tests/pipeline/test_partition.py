"""Regions are convex, few, and found in no time; effects keep their order.

Without this a region waits for itself, or a large graph takes minutes to cut.
"""

from __future__ import annotations

import itertools
import random
import time

import pytest
import torch

import backend_sdk
from backend_sdk import Capability, prims
from backend_sdk.graph import GraphBuilder, verify
from backend_sdk.pipeline.decompose import Dialect
from backend_sdk.pipeline.partition import EagerStep, RegionStep, partition
from backend_sdk.spec import TensorType, building

VECTOR = TensorType((4,), torch.float32)


class Anything(backend_sdk.Backend):
    name = "anything"


def made(build, refuse):
    """A dialect whose graph ``build(x)`` makes; ``refuse(index)`` says which calls the backend refuses."""
    builder = GraphBuilder()
    x = builder.input("x", VECTOR)
    with building(builder):
        results = build(x)
    builder.graph.output(tuple(value.node for value in results))
    for index, node in enumerate(builder.added):
        types = tuple(argument.meta["type"] for argument in node.args)
        node.meta["call"] = backend_sdk.Node(node.target, types, (node.meta["type"],), dict(node.kwargs))
        if refuse(index):
            node.meta["refusal"] = "it was told to"
    return Dialect(builder.graph, None, [value.node for value in results], {}, None)


def chain(length, refuse):
    def build(x):
        for index in range(length):
            x = prims.sin(x) if index % 2 else prims.exp(x)
        return [x]

    return made(build, refuse)


def test_a_long_chain_is_cut_in_no_time():
    length = 4000
    dialect = chain(length, lambda index: index % 8 == 7)
    start = time.process_time()
    steps = partition(dialect, Anything(), may_demote=True)
    seconds = time.process_time() - start
    print(f"partition of {length} nodes: {seconds:.3f} s")
    assert seconds < 2
    # The smallest number: every refused call ends a region.
    assert len([step for step in steps if isinstance(step, RegionStep)]) == length // 8
    assert len([step for step in steps if isinstance(step, EagerStep)]) == length // 8
    assert [type(step) for step in steps] == [RegionStep, EagerStep] * (length // 8)


def test_time_grows_with_the_graph_and_not_with_its_square():
    def seconds(length):
        dialect = chain(length, lambda index: index % 8 == 7)
        start = time.process_time()
        partition(dialect, Anything(), may_demote=True)
        return time.process_time() - start

    small = min(seconds(1000) for _ in range(3))
    large = min(seconds(8000) for _ in range(2))
    assert large < 8 * small * 4


def random_graph(seed):
    generator = random.Random(seed)
    density = generator.choice([0.05, 0.3, 0.6, 1.0])
    refused = {index for index in range(400) if generator.random() < density / 2}

    def build(x):
        values = [x]
        for _ in range(generator.randint(1, 60)):
            recent = values[-generator.choice([2, 8, 60]) :]
            if generator.random() < 0.5:
                values.append(prims.add(generator.choice(recent), generator.choice(values)))
            else:
                values.append(generator.choice([prims.exp, prims.sin, prims.neg])(generator.choice(recent)))
        return generator.sample(values[1:], min(3, len(values) - 1))

    return made(build, refused.__contains__)


@pytest.mark.parametrize("seed", range(60))
def test_regions_of_random_graphs_run_as_units(seed):
    dialect = random_graph(seed)
    steps = partition(dialect, Anything(), may_demote=False)
    available = {node for node in dialect.graph.nodes if node.op == "placeholder"}
    ran = []
    for step in steps:
        if isinstance(step, RegionStep):
            # All that a region reads was there before it: nothing leaves it and comes back.
            assert all(source in available for source in step.inputs)
            verify(step.region.graph)
            step.region.graph.lint()
            calls = [node for node in step.region.graph.nodes if node.op == "call_function"]
            assert not any("refusal" in node.meta for node in calls)
            ran += [node.name for node in calls]
            available |= set(step.outputs)
        else:
            assert all(source in available for source in step.node.all_input_nodes)
            assert "refusal" in step.node.meta
            ran.append(step.node.name)
            available.add(step.node)
    calls = [node for node in dialect.graph.nodes if node.op == "call_function"]
    assert len(ran) == len(calls), "every call runs once"
    assert all(node in available for node in dialect.graph.output_node().all_input_nodes)
    # No two neighbouring regions could have been one.
    assert not any(
        isinstance(one, RegionStep) and isinstance(other, RegionStep) for one, other in itertools.pairwise(steps)
    )
    # Stages alternate, so there are no more regions than switches on the longest path.
    switches = {}
    for node in calls:
        native = "refusal" not in node.meta
        before = [switches[s] + (("refusal" in s.meta) == native) for s in node.all_input_nodes if s in switches]
        switches[node] = max([0 if native else 1, *before])
    regions = [step for step in steps if isinstance(step, RegionStep)]
    assert len(regions) <= max(switches.values()) // 2 + 1


def test_nothing_refused_is_one_region_and_everything_refused_none():
    (step,) = partition(chain(50, lambda index: False), Anything(), may_demote=True)
    assert isinstance(step, RegionStep) and len(step.inputs) == 1 and len(step.outputs) == 1
    steps = partition(chain(50, lambda index: True), Anything(), may_demote=True)
    assert len(steps) == 50 and all(isinstance(step, EagerStep) for step in steps)


def test_small_regions_go_to_eager_unless_that_is_forbidden():
    class Choosy(Anything):
        capability = Capability(minimum_region=5)

    def refuse(index):
        return index in (3, 20)

    steps = partition(chain(30, refuse), Choosy(), may_demote=True)
    assert [len(step.region.graph.nodes) - 2 for step in steps if isinstance(step, RegionStep)] == [16, 9]
    assert len([step for step in steps if isinstance(step, EagerStep)]) == 3 + 2
    steps = partition(chain(30, refuse), Choosy(), may_demote=False)
    assert [len(step.region.graph.nodes) - 2 for step in steps if isinstance(step, RegionStep)] == [3, 16, 9]


def test_effects_keep_their_order(make_writing):
    backend = make_writing(refused=("sin",))
    seen = []

    @torch.library.custom_op("sdk_order::note", mutates_args=("log",))
    def note(x: torch.Tensor, log: torch.Tensor, tag: int) -> None:
        seen.append(tag)
        log.mul_(2).add_(tag)

    note.register_fake(lambda x, log, tag: None)

    def f(x, log):
        y = x.exp().sin().exp().sin()
        note(y, log, 1)
        note(x, log, 2)
        note(x + 1, log, 3)
        note(y.exp(), log, 4)
        return y + log

    log, mine = torch.zeros(()), torch.zeros(())
    x = torch.randn(3)
    expected = f(x, log)
    del seen[:]
    torch.testing.assert_close(torch.compile(f, backend=f"sdk:{backend.name}", fullgraph=True)(x, mine), expected)
    assert seen == [1, 2, 3, 4]
    torch.testing.assert_close(mine, log)


def test_random_calls_in_eager_keep_their_order(make_backend):
    backend = make_backend("acme", without=("sin",))

    def f(x):
        a = torch.rand(2) * x.exp().sin().exp()
        b = torch.rand(2) + x
        return a, b, torch.rand(2).sin()

    x = torch.randn(2)
    compiled = torch.compile(f, backend=backend, options={"random": "eager"})
    torch.manual_seed(4)
    expected = f(x)
    torch.manual_seed(4)
    for one, other in zip(compiled(x), expected, strict=True):
        torch.testing.assert_close(one, other)
