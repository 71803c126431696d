"""What a compiled function may not change: inputs, other results, strides; and what it must: mutated inputs.

Without this a user's in-place change of one result silently changes another, and a training run diverges.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

BACKENDS = ("sdk:reference", "sdk:writing", "sdk:gappy")


@pytest.fixture(autouse=True)
def backends(make_backend, make_writing):
    """Allocating kernels, destination passing, and each of them cut by fallbacks."""
    make_writing()
    make_backend("gappy", without=("exp", "permute", "mul", "add"))


# ---- property: object by object like eager


def leaf(shape=(2, 3)):
    return torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape) / 4


def cache_update(x, cache):
    cache[:, 1:2] = x[:, 1:2] * 2
    return cache.sum(), cache


def index_copy(x, cache):
    cache.index_copy_(1, torch.tensor([0, 2]), x[:, :2])
    return cache + 1


def mutate_twice(x):
    x.add_(1)
    y = x * 2
    x.mul_(3)
    return y, x


def mutate_view(x):
    x[0].zero_()
    return x.exp()


def mutate_and_return_view(x):
    x.add_(1)
    return x.view(-1)


def clones(x):
    y = x.exp()
    return y.clone(), y.clone(), y


def several_views_of_one(x):
    y = x + 1
    return y, y.view(-1), y[0], y.t()


FUNCTIONS = {
    "in-place add": lambda x: x.add_(1),
    "in-place add, another returned": lambda x: (x.add_(1) * 2, x),
    "mutate twice": mutate_twice,
    "mutate a view": mutate_view,
    "mutate, return a view": mutate_and_return_view,
    "in-place on one of two": lambda x, y: (y.copy_(x + 1), x * y),
    "cache slice": cache_update,
    "cache index_copy": index_copy,
    "input as is": lambda x: x,
    "input and a result": lambda x: (x, x + 1),
    "input twice": lambda x: (x, x),
    "view of the input": lambda x: x.view(-1),
    "views of the input": lambda x: (x, x.view(-1), x[1], x.t()),
    "view and clone of the input": lambda x: (x.view(3, 2), x.clone(), x.clone()),
    "clone of the input": lambda x: x.clone(),
    "conversion that converts nothing": lambda x: (x.to(torch.float32), x.to(torch.float32, copy=True)),
    "detach": lambda x: (x.detach(), x + 0),
    "same result twice": lambda x: (lambda y: (y, y))(x + 1),
    "result and its views": several_views_of_one,
    "clones of one result": clones,
    "equal expressions": lambda x: (x + 1, x + 1, 1 + x),
    "identity operations": lambda x: (x + 0, x * 1, x.reshape(2, 3), x.permute(0, 1), x.expand(2, 3)),
    "expand of a result": lambda x: (x.exp().unsqueeze(0).expand(4, 2, 3), x),
    "expand of an input": lambda x: x.unsqueeze(0).expand(4, 2, 3),
    "constants": lambda x: (torch.ones(2, 3), torch.ones(2, 3), torch.zeros_like(x)),
    "constant of the function": lambda x, c=torch.tensor([1.0, 2.0, 3.0]): (c, x + c),  # noqa: B008
    "None and numbers": lambda x: (None, x + 1, 3, x.shape[0]),
    "nothing but None": lambda x: (None,),
    "nested": lambda x: {"a": [x + 1, (x * 2,)], "b": x},
    "integers": lambda x: (x > 1, x.argmax(-1), x.to(torch.int32), torch.arange(3)),
    "0-d": lambda x: (x.sum(), x.mean(), x.max()),
    "empty": lambda x: (x[:0], x[:0] + 1, x[:, :0].exp(), x[:0].sum(), torch.empty(0, 3).t()),
    "chunk": lambda x: x.chunk(3, 1),
    "split of a result": lambda x: (x + 1).split(1, 0),
    "unused input": lambda x, y: x + 1,
    "output of an output": lambda x: (lambda y: (y, y * 2))(x.exp()),
    "disjoint views of one result": lambda x: (lambda y: (y[0], y[1]))(x.exp()),
    "overlapping views of one result": lambda x: (lambda y: (y[:, :2], y[:, 1:], y[:, :2].t()))(x.exp()),
    "windows of a result": lambda x: (lambda y: (y, y.view(-1).unfold(0, 3, 1), y + 1))(x.exp()),
    "only windows": lambda x: x.exp().view(-1).unfold(0, 3, 2),
    "other dtype's view": lambda x: (x.view(torch.int32), x + 1),
    "expand beside its base": lambda x: (lambda y: (y, y.unsqueeze(0).expand(2, 2, 3)))(x.exp()),
    "diagonal": lambda x: (x @ x.t()).diagonal(),
    "chain through all": lambda x: ((x.exp().t() + 1).t() * 2, x.exp()),
}


def arguments_of(function):
    count = function.__code__.co_argcount - len(function.__defaults__ or ())
    return [leaf() + 10 * index for index in range(count)]


def flat(result):
    leaves, _ = torch.utils._pytree.tree_flatten(result)
    return leaves


def state(tensors):
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in tensors]


def overlapping(tensor):
    """Whether in-place arithmetic on it is an error in eager."""
    try:
        tensor.add_(0)
    except RuntimeError:
        return True
    return False


def strides_that_count(tensor):
    """Strides of the dimensions along which there is more than one element: torch's own fake tensors and kernels
    do not agree on others."""
    return [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1 and tensor.numel()]


def assert_same(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        if isinstance(other, torch.Tensor):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one, other)
        else:
            assert one == other and type(one) is type(other)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_like_eager_object_by_object_and_after_a_change_in_place(name, backend):
    function = FUNCTIONS[name]
    compiled = torch.compile(function, backend=backend, dynamic=False)
    eager_arguments, arguments = arguments_of(function), arguments_of(function)
    for _ in range(2):
        expected, got = flat(function(*eager_arguments)), flat(compiled(*arguments))
        assert_same(got, expected)
        assert_same(arguments, eager_arguments)
        for index, value in enumerate(expected):
            if isinstance(value, torch.Tensor):
                assert strides_that_count(got[index]) == strides_that_count(value), f"result {index}"
        # Same objects where eager gives the same objects.
        eager_objects, objects = [*eager_arguments, *expected], [*arguments, *got]
        for i in range(len(objects)):
            for j in range(i):
                if isinstance(objects[i], torch.Tensor):
                    assert (objects[i] is objects[j]) == (eager_objects[i] is eager_objects[j]), (i, j)
    # The user changes a result in place: what else changes is what changes in eager.
    for index, value in enumerate(flat(function(*arguments_of(function)))):
        if not isinstance(value, torch.Tensor) or value.dtype == torch.bool or overlapping(value):
            continue
        eager_arguments, arguments = arguments_of(function), arguments_of(function)
        expected, got = flat(function(*eager_arguments)), flat(compiled(*arguments))
        expected[index].add_(7)
        got[index].add_(7)
        assert_same(got, expected)
        assert_same(arguments, eager_arguments)
        # A constant of the function is the user's to change.
        if name != "constant of the function":
            assert_same(flat(compiled(*arguments_of(function))), flat(function(*arguments_of(function))))


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_do_not_change_when_the_function_is_called_again(backend):
    def f(x):
        y = (x.exp() + 1).tanh()
        return y, (y * 2).exp().sum(0), y.t() + 1

    compiled = torch.compile(f, backend=backend, dynamic=False)
    first_input, second_input = leaf(), leaf() + 1
    first = compiled(first_input)
    before = state(first)
    second = compiled(second_input)
    assert_same(first, before)
    assert_same(second, f(second_input))


# ---- training


TRAINED = {
    "result changed after saving": lambda x: x.exp().clone(),
    "saved clone": lambda x: (lambda y: (y.clone(), y.sin()))(x.exp()),
    "view of a saved value": lambda x: x.exp().view(-1) * 2,
    "transposed product": lambda x: (x.t().contiguous() @ x.tanh()).exp(),
    "several results": lambda x: (x.exp(), x.exp().t(), x.sum()),
    "permuted saved": lambda x: (x.unsqueeze(0).permute(2, 0, 1) * 2).exp().sum(0),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_are_right_after_results_change_in_place(name, backend):
    function = TRAINED[name]
    compiled = torch.compile(function, backend=backend, dynamic=False)

    def gradient(f, change):
        x = leaf().requires_grad_()
        results = flat(f(x))
        if change:
            results[0] = results[0].mul_(2)
        sum(result.sum() for result in results).backward()
        return x.grad

    torch.testing.assert_close(gradient(compiled, False), gradient(function, False))
    try:
        expected = gradient(function, True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return
    torch.testing.assert_close(gradient(compiled, True), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_norm_buffers(backend):
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU())
    other = copy.deepcopy(model)
    compiled = torch.compile(other, backend=backend, dynamic=False)
    for _ in range(2):
        x = torch.randn(4, 2, 6, 6)
        expected, got = model(x), compiled(x)
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
        expected.square().sum().backward()
        got.square().sum().backward()
    for (name, value), mine in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, value, atol=1e-5, rtol=1e-4, msg=name)
    for one, mine in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, one.grad, atol=1e-3, rtol=1e-3)


# ---- layout at the edge


def channels_last(*shape):
    return torch.randn(shape).to(memory_format=torch.channels_last)


LAYOUTS = {
    "transpose": (lambda x: x.t() + 1, lambda: [torch.randn(3, 4)]),
    "transposed result": (lambda x: (x + 1).t(), lambda: [torch.randn(3, 4)]),
    "permuted computation": (lambda x: x.permute(2, 0, 1).exp(), lambda: [torch.randn(2, 3, 4)]),
    "expand": (lambda x: x.expand(5, 3).exp(), lambda: [torch.randn(1, 3)]),
    "select": (lambda x: x[:, 1], lambda: [torch.randn(3, 4)]),
    "select of a result": (lambda x: x.exp()[:, 1], lambda: [torch.randn(3, 4)]),
    "channels last conv": (
        lambda x, w: F.conv2d(x, w),
        lambda: [channels_last(2, 3, 5, 5), channels_last(4, 3, 3, 3)],
    ),
    "channels last elementwise": (lambda x: x.relu() * 2, lambda: [channels_last(2, 3, 5, 5)]),
    "channels last pool": (lambda x: F.max_pool2d(x, 2), lambda: [channels_last(2, 3, 6, 6)]),
    "to channels last": (
        lambda x: (x + 1).to(memory_format=torch.channels_last),
        lambda: [torch.randn(2, 3, 4, 4)],
    ),
    "contiguous": (lambda x: x.t().contiguous(), lambda: [torch.randn(3, 4)]),
    "empty_like": (lambda x: torch.zeros_like(x), lambda: [torch.randn(3, 4).t()]),
    "input with gaps": (lambda x: x.exp(), lambda: [torch.randn(4, 6)[:, ::2]]),
    "input at an offset": (lambda x: x.exp() + x, lambda: [torch.randn(30)[5:25].view(4, 5)]),
    "expanded input": (lambda x: x.exp(), lambda: [torch.randn(3, 1).expand(3, 4)]),
    "transposed input": (lambda x: x.exp().sum(0), lambda: [torch.randn(3, 4).t()]),
    "strided empty": (lambda x: x.exp(), lambda: [torch.randn(0, 3).t()]),
    "empty results": (lambda x: (x.t(), x.t() + 1, x.sum(0)), lambda: [torch.randn(0, 3)]),
    "size one": (lambda x: x.permute(1, 0, 2) + 1, lambda: [torch.randn(1, 3, 1)]),
    "same input twice": (lambda x, y: x + y, lambda: [torch.ones(3)] * 2),
    "matmul": (lambda x, y: x.t() @ y.t(), lambda: [torch.randn(3, 4), torch.randn(5, 3)]),
    "0-d input": (lambda x: (x + 1, x.exp().reshape(1)), lambda: [torch.tensor(2.0)]),
    "broadcast": (lambda x, y: x + y, lambda: [torch.randn(3, 1).t(), torch.randn(4, 1)]),
    "squeeze": (lambda x: (x + 1).squeeze(1), lambda: [torch.randn(3, 1, 4).transpose(0, 2)]),
    "flip and roll": (lambda x: (x.t().flip(0), x.t().roll(1, 0)), lambda: [torch.randn(3, 4)]),
}


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize("name", LAYOUTS)
def test_strides_are_those_of_aot_eager(name, backend):
    function, make = LAYOUTS[name]
    torch.manual_seed(3)
    inputs = make()
    expected = flat(torch.compile(function, backend="aot_eager", dynamic=False)(*inputs))
    torch._dynamo.reset()
    got = flat(torch.compile(function, backend=backend, dynamic=False)(*inputs))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
        assert strides_that_count(one) == strides_that_count(other)
        assert one.dtype == other.dtype


@pytest.mark.parametrize("backend", BACKENDS[1:2])
@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients_for_any_layout(name, backend):
    function, make = LAYOUTS[name]
    torch.manual_seed(3)
    inputs = [value.requires_grad_() if value.is_leaf else value.detach().requires_grad_() for value in make()]
    compiled = torch.compile(function, backend=backend, dynamic=False)

    def gradients(f):
        loss = sum(result.square().sum() for result in flat(f(*inputs)) if result.requires_grad)
        return torch.autograd.grad(loss, inputs, allow_unused=True) if isinstance(loss, torch.Tensor) else ()

    for one, other in zip(gradients(compiled), gradients(function), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
