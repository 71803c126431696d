"""The plan's memory and what it leaves on disk: buffers never overlap while they live, results are the user's.

Without this two tensors of a model share memory and nobody sees it until the loss is wrong.
"""

from __future__ import annotations

import random
import threading
import traceback
import weakref

import pytest
import torch
import torch.nn.functional as F

import backend_sdk
from backend_sdk import errors
from backend_sdk.graph import verify
from backend_sdk.pipeline import compile as driver
from backend_sdk.runtime.runner import Runner

CUTS = ("sin",)


@pytest.fixture
def runners(monkeypatch):
    """The runners that the test compiles."""
    found = []

    class Recorded(Runner):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            found.append(self)

    monkeypatch.setattr(driver, "Runner", Recorded)
    return found


def deep(x):
    """A chain of regions with an eager call between each two."""
    for scale in (0.5, 0.25, 2.0, 0.125, 1.5):
        x = (x.exp() * scale).sin() + x.mean()
    return x


def test_several_regions_with_destination_passing(make_writing, runners):
    backend = make_writing(refused=CUTS)
    compiled = torch.compile(deep, backend=f"sdk:{backend.name}")
    for _ in range(3):
        x = torch.randn(5, 7)
        torch.testing.assert_close(compiled(x), deep(x))
    (runner,) = runners
    assert len(backend.regions) == 6
    buffers = [buffer for buffer in runner.plan.buffers if buffer.in_arena]
    assert len(buffers) >= 5


def test_memory_is_reused(make_writing, runners):
    backend = make_writing(refused=CUTS)
    x = torch.randn(64, 64)
    torch.compile(deep, backend=f"sdk:{backend.name}")(x)
    (runner,) = runners
    total = sum(buffer.type.nbytes for buffer in runner.plan.buffers if buffer.in_arena)
    assert runner.arena.nbytes(()) < 0.6 * total


def test_arena_serves_dynamic_sizes(make_writing, runners):
    backend = make_writing(refused=CUTS)
    compiled = torch.compile(deep, backend=f"sdk:{backend.name}", dynamic=True)
    for n in (3, 9, 4, 30, 3, 5, 6, 7, 8, 10, 11, 12, 3):
        x = torch.randn(n, 7)
        torch.testing.assert_close(compiled(x), deep(x))
    assert len(runners) == 1


def random_model(seed):
    """A random function whose intermediates live for random spans, cut at random by ``sin``."""

    def f(x):
        generator = random.Random(seed)
        values = [x]
        for _ in range(30):
            a, b = generator.choice(values[-4:]), generator.choice(values)
            values.append(
                generator.choice(
                    [
                        lambda a, b: a.sin(),
                        lambda a, b: a.tanh() + b,
                        lambda a, b: a * b.sin(),
                        lambda a, b: (a @ b.t()).sin() @ a / 8,
                        lambda a, b: a.sum(0, keepdim=True).sin() + b,
                        lambda a, b: torch.cat([a, b], 0).sin()[: a.shape[0]],
                        lambda a, b: a.t().sin().t() - b,
                        lambda a, b: (a > b).to(a.dtype) + a.sin(),
                    ]
                )(a, b)
            )
        return values[-1], values[-2].sin(), values[15] + 1, values[-3].sum()

    return f


@pytest.mark.parametrize("seed", range(10))
def test_random_models_on_poisoned_memory(make_writing, runners, seed):
    """Kernels fill their buffers with NaN first: any overlap of living buffers shows."""
    backend = make_writing(refused=CUTS)
    function = random_model(seed)
    compiled = torch.compile(function, backend=f"sdk:{backend.name}", dynamic=False)
    kept = []
    for step in range(3):
        torch.manual_seed(step)
        x = torch.randn(6, 5)
        results, expected = compiled(x), function(x)
        kept.append((results, [result.clone() for result in results]))
        for one, other in zip(results, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    for results, copies in kept:
        for one, other in zip(results, copies, strict=True):
            assert torch.equal(one, other), "a later call wrote into an earlier result"
    arena = runners[0].arena.take(())
    for result in kept[-1][0]:
        assert not arena.holds(result)


@pytest.mark.parametrize("seed", range(4))
def test_training_on_poisoned_memory(make_writing, seed):
    backend = make_writing(refused=CUTS)
    function = random_model(seed)
    compiled = torch.compile(function, backend=f"sdk:{backend.name}", dynamic=False)
    x = torch.randn(6, 5, requires_grad=True)

    def gradient(f, x):
        return torch.autograd.grad(sum(result.sum() for result in f(x) if result.requires_grad), x)[0]

    first, second = compiled(x), compiled(x * 2)  # two forward graphs before any backward
    del second
    torch.testing.assert_close(first[0], function(x)[0], atol=1e-4, rtol=1e-4)
    for _ in range(2):
        torch.testing.assert_close(gradient(compiled, x), gradient(function, x), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dynamic", [False, True])
def test_concurrent_calls(make_writing, dynamic):
    backend = make_writing(refused=CUTS)
    compiled = torch.compile(deep, backend=f"sdk:{backend.name}", dynamic=dynamic)
    sizes = (20, 20, 20, 20) if not dynamic else (20, 21, 22, 20)
    for n in dict.fromkeys(sizes):
        compiled(torch.randn(n, 30))
    wrong = []

    def work(index):
        generator = torch.Generator().manual_seed(index)
        for _ in range(25):
            x = torch.randn(sizes[index], 30, generator=generator)
            if not torch.allclose(compiled(x), deep(x), atol=1e-4):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_of_intermediates_is_freed(make_backend):
    """A plan holds a value no longer than it is read."""
    import gc
    import weakref

    alive = []

    def exp(x):
        gc.collect()
        alive.append(sum(reference() is not None for reference in references))
        result = torch.exp(x)
        references.append(weakref.ref(result))
        return result

    references = []
    backend = make_backend("acme", kernels={"exp": exp}, without=("sin",))

    def f(x):
        for _ in range(8):
            x = (x.exp() * 0.1).sin()
        return x

    compiled = torch.compile(f, backend=backend, options={"check": "never"})
    compiled(torch.randn(3))
    assert max(alive) <= 1


def test_eager_views_keep_their_memory_alive(make_writing, make_backend):
    """What eager returns may be a view of a buffer in the arena."""
    backend = make_writing(refused=("permute", "reshape", "slice"))

    def f(x):
        y = x.exp()
        view = y.t()
        for _ in range(4):
            y = (y * 2).t().tanh().t()
        return view + 1, y, view

    x = torch.randn(4, 4)
    compiled = torch.compile(f, backend=f"sdk:{backend.name}")
    for _ in range(2):
        for one, other in zip(compiled(x), f(x), strict=True):
            torch.testing.assert_close(one, other)


# ---- what lower() gets


def test_every_region_verifies_and_declares_what_it_gets(make_writing):
    backend = make_writing(refused=("dot_general", "sin", "gather"))

    def f(x, w, index):
        y = F.layer_norm(F.gelu(x @ w), (6,))
        y = y.t().sin().softmax(-1).t()
        return y, torch.cat([y, y[:, index]], 1).cumsum(0), F.dropout(y, 0.5), y.argmax(1)

    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(f, backend=f"sdk:{backend.name}", dynamic=dynamic)
        x, w = torch.randn(4, 5, requires_grad=True), torch.randn(5, 6)
        compiled(x, w, torch.tensor([0, 2]))[0].sum().backward()
    assert len(backend.regions) >= 6
    for region in backend.regions:
        verify(region.graph)
        region.graph.lint()
        placeholders = [node for node in region.graph.nodes if node.op == "placeholder"]
        assert len(placeholders) == len(region.inputs)
        for node, declared in zip(placeholders, region.inputs, strict=True):
            assert node.meta["type"] == (declared if isinstance(declared, backend_sdk.SymExpr) else declared.type)
        outputs = region.graph.output_node().args[0]
        assert [node.meta["type"] for node in outputs] == [declared.type for declared in region.outputs]
        for node in region.graph.nodes:
            if node.op == "call_function" and node.target is not __import__("operator").getitem:
                assert node.meta["call"].op is node.target
        order = [isinstance(declared, backend_sdk.SymExpr) for declared in region.inputs]
        assert order == sorted(order), "sizes come after the tensors"


# ---- what a user can look at


def test_dump_writes_each_stage_as_text(make_backend, tmp_path):
    backend = make_backend("acme", without=("sin",))

    def f(x):
        return (x.exp() * 2).sin()

    x = torch.randn(3, requires_grad=True)
    torch.compile(f, backend=backend, options={"dump": str(tmp_path / "dump")})(x).sum().backward()
    folders = sorted((tmp_path / "dump").iterdir())
    assert [folder.name.rsplit("-", 1)[1] for folder in folders] == ["forward", "backward"]
    for folder in folders:
        texts = {path.stem: path.read_text() for path in folder.iterdir()}
        assert {"aten", "dialect", "plan", "run"} <= texts.keys()
        assert all(text.strip() for text in texts.values())
    forward = {path.stem: path.read_text() for path in folders[0].iterdir()}
    assert "aten.exp.default" in forward["aten"]
    assert "exp: float32[3] = exp(" in forward["dialect"] and "eager: it has no kernel for sin" in forward["dialect"]
    assert "region_0" in forward["plan"] and "eager sin" in forward["plan"]
    compile(forward["run"], "run.txt", "exec")
    assert "def run(inputs):" in forward["run"]


def test_generated_source_is_shown_in_tracebacks(make_backend):
    def exp(x):
        raise ValueError("here")

    backend = make_backend("acme", kernels={"exp": exp})
    with pytest.raises(errors.KernelRaisedError) as caught:
        torch.compile(lambda x: x.exp(), backend=backend, options={"check": "never"})(torch.ones(2))
    shown = "".join(traceback.format_exception(caught.value))
    assert "<backend_sdk region_0 #" in shown or "<backend_sdk acme inference #" in shown
    assert 'raise ValueError("here")' in shown
    assert "KERNEL_" in shown, "the generated line itself"


def test_null_backend_runs_and_keeps_types():
    def f(x):
        return x.exp().t(), (x > 0).sum(), x.argmax()

    x = torch.randn(3, 4)
    got = torch.compile(f, backend="sdk:null")(x)
    assert [(one.shape, one.dtype, one.stride()) for one in got] == [(o.shape, o.dtype, o.stride()) for o in f(x)]
    y = torch.randn(3, 4, requires_grad=True)
    torch.compile(lambda x: x.exp().sum(), backend="sdk:null")(y).backward()
    assert y.grad.shape == y.shape


# ---- kernels that outlast the call that started them


class Queue(backend_sdk.Device):
    """A device whose kernels run when it is synchronized, over memory that holds NaN until then."""

    asynchronous = True

    def __init__(self):
        self.started = []
        self.waits = 0

    def synchronize(self):
        self.waits += 1
        while self.started:
            self.started.pop(0)()

    def allocate(self, nbytes):
        return torch.full((nbytes,), 255, dtype=torch.uint8)

    def empty(self, shape, strides, dtype):
        result = super().empty(shape, strides, dtype)
        return result.fill_(float("nan") if dtype.is_floating_point else 1)


def queueing(writing):
    """Of the class ``writing``, one whose kernels only go into the queue of its device; with ``returning`` they
    allocate what they return."""

    class QueueingBackend(writing):
        returning = False

        def __init__(self):
            super().__init__()
            self.device = Queue()

        def lower(self, region):
            kernel = super().lower(region)
            queue = self.device.started

            def start(inputs, outputs):
                # A driver is told addresses: it does not keep memory alive.
                arguments = [weakly(value) for value in inputs]
                results = [weakly(value) for value in outputs]
                queue.append(lambda: kernel.run([value() for value in arguments], [value() for value in results]))

            def returning(inputs):
                outputs = [
                    torch.full(tuple(int(dim) for dim in output.type.shape), 0, dtype=output.type.dtype)
                    for output in region.outputs
                ]
                queue.append(lambda: kernel.run(inputs, outputs))
                return outputs

            if self.returning:
                return backend_sdk.Kernel(returning, allocates_outputs=True)
            return backend_sdk.Kernel(start)

    return QueueingBackend


def weakly(value):
    if not isinstance(value, torch.Tensor):
        return lambda: value
    reference, storage = weakref.ref(value), value.untyped_storage().data_ptr()

    def find():
        found = reference()
        assert found is not None and found.untyped_storage().data_ptr() == storage, "a kernel's memory was given up"
        return found

    return find


@pytest.fixture
def make_queueing(register, make_writing):
    writing = type(make_writing()).__base__

    def make(*, refused=(), **attributes):
        attributes = {"name": "queueing", "refused": frozenset(refused), **attributes}
        backend = type("Queueing", (queueing(writing),), attributes)()
        register(backend)
        return backend

    return make


@pytest.mark.parametrize("check", ["first", "always", "never"])
@pytest.mark.parametrize("returning", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_asynchronous_kernels_finish_before_anybody_looks(make_queueing, check, returning, seed):
    backend = make_queueing(refused=CUTS, returning=returning)
    function = random_model(seed)
    compiled = torch.compile(function, backend="sdk:queueing", dynamic=False, options={"check": check})
    for step in range(3):
        torch.manual_seed(step)
        x = torch.randn(6, 5)
        results = compiled(x)
        assert not backend.device.started
        for one, other in zip(results, function(x), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_asynchronous_backend_trains(make_queueing):
    make_queueing(refused=CUTS)
    compiled = torch.compile(deep, backend="sdk:queueing")
    x = torch.randn(5, 7, requires_grad=True)
    for _ in range(2):
        (got,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(got, torch.autograd.grad(deep(x).sum(), x)[0])


def test_synchronized_only_where_somebody_looks(make_queueing):
    backend = make_queueing(refused=("sin", "cos"))

    def f(x):
        y = x.sin() + 1  # eager reads the user's tensor; a kernel reads that
        z = x.cos()  # eager, of what no kernel wrote
        return (y * z).sin() * 2  # eager reads what a kernel wrote; and a result

    compiled = torch.compile(f, backend="sdk:queueing", options={"check": "never"})
    x = torch.randn(4)
    torch.testing.assert_close(compiled(x), f(x))
    assert backend.device.waits == 2


def test_change_of_an_input_waits_for_who_reads_it(make_queueing):
    make_queueing(refused=("sin",))

    def f(x):
        y = x.exp() * 2
        x.copy_(x.sin())
        return y

    compiled = torch.compile(f, backend="sdk:queueing", options={"check": "never"})
    ours = torch.randn(4)
    eager = ours.clone()
    torch.testing.assert_close(compiled(ours), f(eager))
    torch.testing.assert_close(ours, eager)


def test_the_host_is_never_synchronized(make_writing, runners):
    class Counting(backend_sdk.Device):
        def synchronize(self):
            raise AssertionError("a device that is not asynchronous has nothing to wait for")

    backend = make_writing(refused=CUTS)
    backend.device = Counting()
    compiled = torch.compile(deep, backend=f"sdk:{backend.name}")
    for _ in range(2):
        x = torch.randn(5, 7)
        torch.testing.assert_close(compiled(x), deep(x))
    assert "SYNCHRONIZE" not in runners[0].source


def test_kernel_that_fails_when_synchronized_is_named(make_queueing):
    class Broken(Queue):
        def synchronize(self):
            super().synchronize()
            if self.waits == 2:
                raise RuntimeError("bus error")

    backend = make_queueing(refused=CUTS)
    backend.device = Broken()

    def f(x):
        return (x.exp() * 2).sin()

    compiled = torch.compile(f, backend="sdk:queueing", options={"check": "never"})
    x = torch.randn(4)
    torch.testing.assert_close(compiled(x), f(x))
    with pytest.raises(errors.KernelRaisedError) as caught:
        compiled(x)
    text = str(caught.value)
    assert "backend 'queueing': the kernel of region_0 (exp, full, mul) raised RuntimeError: bus error" in text
    assert "return (x.exp() * 2).sin()" in text
    torch.testing.assert_close(compiled(x), f(x))
