"""A failure names what was done, with what, for whom, where in the user's file and what to do; and costs one call.

Without this a vendor's engineer sees "BackendCompilerFailed" and starts to guess.
"""

from __future__ import annotations

import logging
import traceback
import warnings

import pytest
import torch

import backend_sdk
from backend_sdk import errors
from backend_sdk.pipeline import report

HERE = __file__.rsplit("/", 1)[-1]


def line_of(function, offset=1):
    """``file:line`` of the line ``offset`` after the ``def`` of ``function``."""
    return f"{HERE}:{function.__code__.co_firstlineno + offset}"


def model(x):
    return torch.exp(x) + 1


def works(backend, function=model, **options):
    """The same function compiles and runs right in this process: nothing was lost."""
    torch._dynamo.reset()
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.compile(function, backend=backend, **options)(x), function(x))


# ---- an op that the backend lacks


def test_error_policy_names_the_op_and_what_to_implement(make_backend):
    backend = make_backend("acme", without=("exp",))
    with pytest.raises(errors.UnsupportedOpError) as caught:
        torch.compile(model, backend=backend, options={"fallback": "error"})(torch.ones(3, 4))
    text = str(caught.value)
    for part in (
        "backend 'acme' cannot run exp(float32[3, 4])",
        "it has no kernel for exp",
        "fallback is 'error'",
        line_of(model),
        "torch.exp(x)",
        "@implements(prims.exp)",
        "'fallback': 'allow'",
    ):
        assert part in text
    assert not isinstance(caught.value, torch._dynamo.exc.BackendCompilerFailed)
    works(backend)


def test_error_policy_reaches_the_user_from_the_backward_graph(make_backend):
    # The gradient of tanh multiplies; its forward does not.
    backend = make_backend("acme", without=("mul",))
    x = torch.ones(3, 4, requires_grad=True)
    with pytest.raises(
        errors.UnsupportedOpError, match=r"cannot run mul\(float32\[3, 4\], float32\[3, 4\]\)"
    ) as caught:
        torch.compile(lambda x: torch.tanh(x), backend=backend, options={"fallback": "error"})(x).sum().backward()
    assert HERE in str(caught.value)
    works(backend)


def test_all_refused_ops_of_a_graph_are_named(make_backend):
    backend = make_backend("acme", without=("exp", "sin", "cos"))
    with pytest.raises(errors.UnsupportedOpError, match="also refused in this graph: cos, sin"):
        torch.compile(lambda x: x.exp() + x.sin() * x.cos(), backend=backend, options={"fallback": "error"})(
            torch.ones(2)
        )


def test_allow_runs_in_eager_with_one_log_line_and_a_count(make_backend, caplog, collected):
    backend = make_backend("acme", without=("exp", "sin"))
    before = report.fallback_counts().get(("acme", "aten.exp.default"), 0)
    x = torch.randn(3, 4)
    with caplog.at_level(logging.WARNING, logger="backend_sdk"):
        result = torch.compile(lambda x: x.exp() + x.sin() + 1, backend=backend)(x)
    torch.testing.assert_close(result, x.exp() + x.sin() + 1)
    lines = [record.getMessage() for record in caplog.records if record.name == "backend_sdk"]
    assert len(lines) == 1
    for part in ("sdk:acme", "2 of 4 nodes", "inference graph", "aten.exp.default", "aten.sin.default", "explain"):
        assert part in lines[0]
    assert report.fallback_counts()["acme", "aten.exp.default"] == before + 1
    (graph,) = collected
    fallen = [node for node in graph.nodes if node.verdict == report.FALLBACK]
    assert [node.op for node in fallen] == ["aten.exp.default", "aten.sin.default"]
    assert fallen[0].reasons == ["exp: it has no kernel for exp"]
    assert HERE in fallen[0].location
    assert graph.counts["fallback"] == 2 and graph.counts["native"] == 2
    assert graph.eager_steps == 2


def test_warn_warns_once_an_op(make_backend):
    backend = make_backend("acme", without=("exp", "sin"))
    x = torch.randn(3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = torch.compile(lambda x: x.exp() + x.sin(), backend=backend, options={"fallback": "warn"})(x)
    torch.testing.assert_close(result, x.exp() + x.sin())
    texts = [str(one.message) for one in seen if issubclass(one.category, errors.FallbackWarning)]
    assert len(texts) == 2
    assert "sdk:acme: aten.exp.default runs in eager" in texts[0]
    assert HERE in texts[0] and "it has no kernel for exp" in texts[0]


def test_warnings_as_errors_reach_the_user_as_themselves(make_backend):
    backend = make_backend("acme", without=("exp",))
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.FallbackWarning)
        with pytest.raises(errors.FallbackWarning, match=r"aten\.exp\.default runs in eager"):
            torch.compile(model, backend=backend, options={"fallback": "warn"})(torch.ones(3))
    works(backend)


def test_no_fallback_no_noise(caplog):
    with caplog.at_level(logging.WARNING, logger="backend_sdk"), warnings.catch_warnings():
        warnings.simplefilter("error", errors.FallbackWarning)
        torch.compile(model, backend="sdk:reference", options={"fallback": "warn"})(torch.ones(3))
    assert not [record for record in caplog.records if record.name == "backend_sdk"]


def test_the_line_is_the_users_not_that_of_torch_nn(make_backend):
    backend = make_backend("acme", without=("dot_general",))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x)

    with pytest.raises(errors.UnsupportedOpError) as caught, torch.no_grad():
        torch.compile(Model(), backend=backend, options={"fallback": "error"})(torch.ones(3, 4))
    assert f"{line_of(Model.forward)}: return self.layer(x)" in str(caught.value)


# ---- kernel functions that misbehave

WRONG_RETURNS = {
    "shape": (lambda x: torch.zeros(5), r"returned float32\[5\], expected float32\[3, 4\]", "return float32[3, 4]"),
    "dtype": (lambda x: x.to(torch.float64), r"returned float64\[3, 4\], expected float32\[3, 4\]", "return float32"),
    "none": (lambda x: None, r"returned None, not a tensor", "return float32[3, 4]"),
    "list": (lambda x: [x], r"returned 1 results, not a tensor", "return float32[3, 4]"),
    "array": (lambda x: x.numpy(), r"returned a ndarray, not a tensor", "return float32[3, 4]"),
}


@pytest.mark.parametrize("case", WRONG_RETURNS)
@pytest.mark.parametrize("place", ["result", "intermediate"])
def test_wrong_return_is_named(make_backend, case, place):
    kernel, message, hint = WRONG_RETURNS[case]

    def f(x):
        y = torch.exp(x)
        return y if place == "result" else torch.tanh(y) * y

    backend = make_backend("acme", kernels={"exp": kernel})
    with pytest.raises(errors.KernelOutputError, match=message) as caught:
        torch.compile(f, backend=backend)(torch.ones(3, 4))
    text = str(caught.value)
    assert "backend 'acme': the kernel for exp(float32[3, 4])" in text
    assert f"{line_of(f)}: y = torch.exp(x)" in text
    assert hint in text
    works(backend, lambda x: torch.tanh(x) + 1)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda x, **_: (x,), "returned 1 results, expected 2 tensors"),
        (lambda x, **_: None, "returned None, expected 2 tensors"),
        (lambda x, **_: x, "returned a Tensor, expected 2 tensors"),
        (lambda x, **_: (x, None), "returned None as result 1, not a tensor"),
        (lambda x, **_: (x, x), "as result 1, expected int64"),
        (lambda x, **_: (x, x, x), "returned 3 results, expected 2 tensors"),
    ],
)
def test_wrong_number_of_results_is_named(make_backend, kernel, message):
    backend = make_backend("acme", kernels={"sort": kernel})
    with pytest.raises(errors.KernelOutputError, match=message) as caught:
        torch.compile(lambda x: torch.sort(x), backend=backend)(torch.ones(3, 4))
    assert "the kernel for sort(float32[3, 4]" in str(caught.value)
    assert HERE in str(caught.value)
    works(backend)


class Tantrum(Exception):
    """What a vendor's kernel may raise."""


class Failing:
    """Computes right until call number ``when``, then does what ``how`` says for one call."""

    def __init__(self, when, how):
        self.when = when
        self.how = how
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return self.how(x) if self.calls >= self.when else torch.exp(x)


def tantrum(x):
    raise Tantrum("out of luck")


def test_kernel_that_raises_is_named_with_its_own_exception(make_backend):
    backend = make_backend("acme", kernels={"exp": tantrum})
    with pytest.raises(errors.KernelRaisedError) as caught:
        torch.compile(model, backend=backend)(torch.ones(3, 4))
    text = str(caught.value)
    for part in (
        "backend 'acme': the kernel for exp(float32[3, 4]) raised Tantrum: out of luck",
        line_of(model),
        "to fix",
    ):
        assert part in text
    assert isinstance(caught.value.__cause__, Tantrum)
    works(backend, lambda x: torch.tanh(x) + 1)


@pytest.mark.parametrize("check", ["first", "always", "never"])
def test_kernel_that_raises_later_is_named_as_well(make_backend, check):
    failing = Failing(2, tantrum)
    backend = make_backend("acme", kernels={"exp": failing})
    f = torch.compile(model, backend=backend, options={"check": check})
    x = torch.randn(3, 4)
    torch.testing.assert_close(f(x), model(x))
    with pytest.raises(errors.KernelRaisedError, match=r"kernel for exp\(float32\[3, 4\]\) raised Tantrum") as caught:
        f(x)
    assert line_of(model) in str(caught.value)
    assert isinstance(caught.value.__cause__, Tantrum)
    failing.when = 10**9
    torch.testing.assert_close(f(x), model(x))


@pytest.mark.parametrize("case", WRONG_RETURNS)
def test_wrong_return_on_a_later_call_is_named(make_backend, case):
    kernel, message, _ = WRONG_RETURNS[case]
    backend = make_backend("acme", kernels={"exp": Failing(2, kernel)})

    def f(x):
        return torch.exp(x)

    compiled = torch.compile(f, backend=backend)
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), x.exp())
    with pytest.raises(errors.KernelOutputError, match=message) as caught:
        compiled(x)
    assert line_of(f) in str(caught.value) and "exp" in str(caught.value)


def test_failure_that_does_not_repeat_is_reported_all_the_same(make_backend):
    """A kernel that fails once and works when the diagnosis runs it again."""

    class Once(Failing):
        def __call__(self, x):
            self.calls += 1
            return self.how(x) if self.calls == self.when else torch.exp(x)

    f = lambda x: torch.exp(x)  # noqa: E731 - its line is what the message must name
    for how, kind in ((tantrum, errors.KernelRaisedError), (lambda x: None, errors.KernelOutputError)):
        torch._dynamo.reset()
        backend = make_backend(f"acme_{kind.__name__}", kernels={"exp": Once(2, how)})
        compiled = torch.compile(f, backend=backend)
        x = torch.randn(3, 4)
        compiled(x)
        with pytest.raises(kind) as caught:
            compiled(x)
        assert line_of(f, 0) in str(caught.value)
        assert "(exp)" in str(caught.value) and f"'acme_{kind.__name__}'" in str(caught.value)
        torch.testing.assert_close(compiled(x), x.exp())


def test_failure_in_the_backward_graph_is_named(make_backend):
    calls = []

    def mul(x, y):
        calls.append(1)
        raise Tantrum("no products today")

    backend = make_backend("acme", kernels={"mul": mul})

    def f(x):
        return torch.tanh(x)

    x = torch.randn(3, 4, requires_grad=True)
    loss = torch.compile(f, backend=backend)(x).sum()
    with pytest.raises(errors.KernelRaisedError, match="kernel for mul") as caught:
        loss.backward()
    assert line_of(f) in str(caught.value)
    assert isinstance(caught.value.__cause__, Tantrum)
    assert len(calls) == 1, "a kernel whose failure is known is not run again"


def test_failure_does_not_leak_into_other_calls_of_the_same_function(make_backend):
    def exp(x):
        if x.shape == (5,):
            raise Tantrum("five")
        return torch.exp(x)

    f = torch.compile(model, backend=make_backend("acme", kernels={"exp": exp}), dynamic=True)
    torch.testing.assert_close(f(torch.ones(4)), model(torch.ones(4)))
    with pytest.raises(errors.KernelRaisedError, match="raised Tantrum: five"):
        f(torch.ones(5))
    torch.testing.assert_close(f(torch.ones(6)), model(torch.ones(6)))


# ---- lower() and supports() that misbehave


def reference_with(name, **methods):
    from backend_sdk.backends.reference import ReferenceBackend

    return type(name.title(), (ReferenceBackend,), {"name": name, **methods})


def test_destination_passing_kernel_that_raises(register):
    def run(inputs, outputs):
        raise Tantrum("cannot write")

    backend = register(reference_with("acme", lower=lambda self, region: backend_sdk.Kernel(run)))
    with pytest.raises(errors.KernelRaisedError) as caught:
        torch.compile(model, backend=backend)(torch.ones(3, 4))
    text = str(caught.value)
    assert "backend 'acme': the kernel of region_0 (exp, full, add) raised Tantrum: cannot write" in text
    assert line_of(model) in text and "to fix" in text
    assert isinstance(caught.value.__cause__, Tantrum)
    works("sdk:reference")


def test_lower_that_raises(register):
    def lower(self, region):
        raise Tantrum("no code for you")

    backend = register(reference_with("acme", lower=lower))
    with pytest.raises(errors.LoweringError) as caught:
        torch.compile(model, backend=backend)(torch.ones(3, 4))
    text = str(caught.value)
    for part in (
        "backend 'acme': lower() of region_0 (3 ops: exp, full, add) raised Tantrum: no code for you",
        line_of(model),
        "dump",
    ):
        assert part in text
    assert isinstance(caught.value.__cause__, Tantrum)
    shown = "".join(traceback.format_exception(caught.value))
    assert 'raise Tantrum("no code for you")' in shown, "the vendor's own traceback is lost"
    works("sdk:reference")


@pytest.mark.parametrize("returned", [None, lambda inputs: inputs, 3])
def test_lower_that_returns_something_else(register, returned):
    backend = register(reference_with("acme", lower=lambda self, region: returned))
    with pytest.raises(
        errors.LoweringError, match=r"lower\(\) of region_0 \(3 ops: exp, full, add\) returned"
    ) as caught:
        torch.compile(model, backend=backend)(torch.ones(3, 4))
    assert "return backend_sdk.Kernel(run)" in str(caught.value)
    assert line_of(model) in str(caught.value)
    works("sdk:reference")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned None, expected 1 tensors"),
        ([torch.ones(2)], r"returned float32\[2\], expected float32\[3, 4\]"),
        ([torch.ones(3, 4)] * 2, "returned 2 results, expected 1 tensors"),
    ],
)
def test_allocating_kernel_that_returns_the_wrong_thing(register, returned, message):
    kernel = backend_sdk.Kernel(lambda inputs: returned, allocates_outputs=True)
    backend = register(reference_with("acme", lower=lambda self, region: kernel))
    with pytest.raises(errors.KernelOutputError, match=message) as caught:
        torch.compile(model, backend=backend)(torch.ones(3, 4))
    assert "backend 'acme': the kernel of region_0 (exp, full, add)" in str(caught.value)
    assert line_of(model) in str(caught.value)
    works("sdk:reference")


def test_diagnosis_that_fails_itself_does_not_hide_the_failure(register):
    def diagnose(inputs):
        raise RuntimeError("no idea")

    def run(inputs, outputs):
        raise Tantrum("first")

    backend = reference_with("acme", lower=lambda self, region: backend_sdk.Kernel(run, diagnose=diagnose))
    with pytest.raises(errors.KernelRaisedError, match="raised Tantrum: first"):
        torch.compile(model, backend=register(backend))(torch.ones(3, 4))


@pytest.mark.parametrize("answer", [True, False, None, "yes"])
def test_supports_that_returns_no_support(register, answer):
    backend = register(reference_with("acme", supports=lambda self, node: answer))
    with pytest.raises(errors.PluginError) as caught:
        torch.compile(model, backend=backend)(torch.ones(3, 4))
    text = str(caught.value)
    assert f"backend 'acme': supports(exp(float32[3, 4])) returned {answer!r}" in text
    assert "backend_sdk.YES or backend_sdk.no(reason)" in text
    assert line_of(model) in text
    works("sdk:reference")


def test_supports_that_raises(register):
    def supports(self, node):
        raise Tantrum("do not ask")

    backend = register(reference_with("acme", supports=supports))
    with pytest.raises(errors.PluginError) as caught:
        torch.compile(model, backend=backend)(torch.ones(3, 4))
    text = str(caught.value)
    assert "backend 'acme': supports(exp(float32[3, 4])) raised Tantrum: do not ask" in text
    assert "must answer YES or no(reason)" in text and line_of(model) in text
    assert isinstance(caught.value.__cause__, Tantrum)


# ---- eager calls that fail


@pytest.fixture
def op_that_raises():
    with torch.library._scoped_library("sdk_tests_errors", "FRAGMENT"):

        @torch.library.custom_op("sdk_tests_errors::fail", mutates_args=())
        def fail(x: torch.Tensor, index: int) -> torch.Tensor:
            raise Tantrum("no, not today")

        @fail.register_fake
        def _(x, index):
            return torch.empty_like(x)

        yield fail


def test_fallback_op_that_raises_is_named(make_backend, op_that_raises):
    def f(x, index):
        y = x + 1
        return op_that_raises(y, index) + index

    backend = make_backend("acme")
    with pytest.raises(errors.KernelRaisedError) as caught:
        torch.compile(f, backend=backend)(torch.full((2, 2), -5.0), 1)
    text = str(caught.value)
    for part in ("runs in eager for backend 'acme'", "fail", line_of(f, 2), "float32[2, 2]", "to fix"):
        assert part in text
    assert isinstance(caught.value.__cause__, Tantrum)
    works(backend)


# ---- what the user asks for


def test_unknown_backend_lists_the_known_and_the_nearest():
    with pytest.raises(errors.UnknownBackendError, match="did you mean 'reference'") as caught:
        backend_sdk.get_backend("refrence")
    assert "null" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"fallbak": "allow"}, ["unknown option 'fallbak'", "did you mean 'fallback'", "check", "dump", "random"]),
        ({"fallback": "never"}, ["option 'fallback' cannot be 'never'", "'allow', 'warn', 'error'"]),
        ({"random": None}, ["option 'random' cannot be None", "'counter', 'eager'"]),
        ({"check": ["first"]}, ["option 'check' cannot be ['first']", "'always'"]),
        ({"dump": 3}, ["option 'dump' takes a path, not 3"]),
        ({3: 4}, ["unknown option 3"]),
    ],
)
def test_bad_options_are_refused(options, parts):
    with pytest.raises(errors.OptionError) as caught:
        torch.compile(model, backend="sdk:reference", options=options)(torch.ones(2))
    for part in parts:
        assert part in str(caught.value)
    works("sdk:reference")


def test_tensor_on_a_foreign_device(make_backend):
    backend = make_backend("acme")
    with pytest.raises(errors.DeviceError) as caught:
        torch.compile(model, backend=backend)(torch.ones(3, 4, device="meta"))
    text = str(caught.value)
    for part in ("backend 'acme' takes tensors on 'cpu'", "float32[3, 4]", "is on 'meta'", ".to('cpu')"):
        assert part in text
    works(backend)


def test_graph_breaks_run_through_several_graphs(collected):
    def f(x):
        y = torch.exp(x)
        torch._dynamo.graph_break()
        return y * 2 if y.sum() > 3 else y - 1

    compiled = torch.compile(f, backend="sdk:reference")
    for x in (torch.zeros(2), torch.ones(3)):
        torch.testing.assert_close(compiled(x), f(x))
    assert len(collected) >= 3


def test_fullgraph_gives_torchs_own_error():
    def f(x):
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(f, backend="sdk:reference", fullgraph=True)(torch.ones(2))
    works("sdk:reference")


# ---- kernels that do what no type shows


def writing(run, **attributes):
    """A backend of destination passing kernels: ``run`` gets the inputs, the outputs and the right results."""
    from backend_sdk.graph import runnable

    def lower(self, region):
        module = runnable(region.graph)
        return backend_sdk.Kernel(lambda inputs, outputs: run(inputs, outputs, module(*inputs)))

    return reference_with("acme", lower=lower, **attributes)


def write(inputs, outputs, results):
    for output, result in zip(outputs, results, strict=True):
        output.copy_(result)


def resize(inputs, outputs, results):
    outputs[0].resize_(5)


def replace(inputs, outputs, results):
    outputs[0].set_(results[0].clone())


def skip(inputs, outputs, results):
    pass


def skip_tail(inputs, outputs, results):
    outputs[0][:2].copy_(results[0][:2])


def overwrite_operand(inputs, outputs, results):
    write(inputs, outputs, results)
    inputs[0].mul_(2)


WRONG_WRITES = {
    resize: ("did not write into its output 0 (float32[3, 4]) as it is, but made it float32[5]", "outputs[0].copy_("),
    replace: (
        "did not write into its output 0 (float32[3, 4]) as it is, but gave it other memory",
        "outputs[0].copy_(",
    ),
    skip: ("left 12 of 12 elements of its output 0 (float32[3, 4]) unwritten", "every element"),
    skip_tail: ("left 4 of 12 elements of its output 0 (float32[3, 4]) unwritten", "every element"),
    overwrite_operand: ("wrote into its operand 0", "compute into new memory"),
}


@pytest.mark.parametrize("kernel", WRONG_WRITES)
@pytest.mark.parametrize("check", ["first", "always"])
@pytest.mark.parametrize("place", ["result", "intermediate"])
def test_kernel_that_writes_wrongly_is_named(register, kernel, check, place):
    message, hint = WRONG_WRITES[kernel]
    backend = register(writing(kernel))

    def f(x):
        y = torch.exp(x) + 1
        return y if place == "result" else torch.linalg.det(y[:, :3]) * y

    x = torch.rand(3, 4)
    before = x.clone()
    with pytest.raises(errors.KernelOutputError) as caught:
        torch.compile(f, backend=backend, options={"check": check})(x)
    text = str(caught.value)
    assert message in text and hint in text
    assert "backend 'acme': the kernel of region_0 (exp, full, add" in text
    assert f"{line_of(f)}: y = torch.exp(x) + 1" in text
    assert torch.equal(x, before), "the user's tensor is not given back"


def test_later_wrong_writes_are_seen_when_always_is_asked_for(register):
    calls = []

    def once_right(inputs, outputs, results):
        calls.append(1)
        (write if len(calls) < 3 else skip)(inputs, outputs, results)

    compiled = torch.compile(model, backend=register(writing(once_right)), options={"check": "always"})
    for _ in range(2):
        compiled(torch.ones(3))
    with pytest.raises(errors.KernelOutputError, match="left 3 of 3 elements"):
        compiled(torch.ones(3))


def test_results_that_look_unwritten_are_fine(register):
    """NaN and the largest integer are results too; and they are what the user gets."""
    calls = []

    def counted(inputs, outputs, results):
        calls.append(1)
        write(inputs, outputs, results)

    def f(x, i):
        return torch.log(x), i + 1, x < 0

    largest = torch.full((3,), torch.iinfo(torch.int64).max)
    got = torch.compile(f, backend=register(writing(counted)))(torch.full((3,), -1.0), largest - 1)
    assert got[0].isnan().all() and torch.equal(got[1], largest) and got[2].all()
    assert len(calls) <= 2


def test_a_backend_that_computes_nothing_leaves_its_outputs(register):
    backend = register(writing(skip, capability=backend_sdk.Capability(computes=False)))
    assert torch.compile(model, backend=backend, options={"check": "always"})(torch.ones(3)).shape == (3,)


@pytest.mark.parametrize("check", ["first", "always"])
def test_function_that_writes_into_its_operand_is_named(make_backend, check):
    def f(x):
        y = torch.tanh(x)
        return torch.exp(y) * y

    backend = make_backend("acme", kernels={"exp": lambda x: x.exp_()})
    with pytest.raises(errors.KernelOutputError) as caught:
        torch.compile(f, backend=backend, options={"check": check})(torch.ones(3, 4))
    text = str(caught.value)
    assert "backend 'acme': the kernel for exp(float32[3, 4]) wrote into its operand 0" in text
    assert f"{line_of(f, 2)}: return torch.exp(y) * y" in text
    assert "compute into new memory" in text


def test_function_that_writes_into_a_list_of_an_overload_is_named(make_backend):
    @backend_sdk.implements(torch.ops.aten.cat.default)
    def cat(tensors, dim=0):
        result = torch.cat(tensors, dim)
        tensors[1].zero_()
        return result

    backend = make_backend("acme", cat=staticmethod(cat))
    with pytest.raises(errors.KernelOutputError, match="wrote into its operand 0"):
        torch.compile(lambda x, y: torch.cat([x, y]), backend=backend)(torch.ones(2), torch.ones(2))


def test_returning_kernel_that_writes_into_its_operand_is_named(register):
    kernel = backend_sdk.Kernel(lambda inputs: [inputs[0].exp_().add_(1)], allocates_outputs=True)
    backend = register(reference_with("acme", lower=lambda self, region: kernel))
    with pytest.raises(errors.KernelOutputError) as caught:
        torch.compile(model, backend=backend)(torch.ones(3, 4))
    text = str(caught.value)
    assert "backend 'acme': the kernel of region_0 (exp, full, add) wrote into its operand 0" in text
    assert line_of(model) in text


@pytest.mark.parametrize("check", ["first", "never"])
@pytest.mark.parametrize("whole", [False, True])
def test_result_on_another_device_is_named(register, make_backend, check, whole):
    away = lambda x: torch.exp(x).to("meta")  # noqa: E731 - as a user would write it
    if whole:
        kernel = backend_sdk.Kernel(lambda inputs: [away(inputs[0])], allocates_outputs=True)
        backend = register(reference_with("acme", lower=lambda self, region: kernel))
    else:
        backend = make_backend("acme", kernels={"exp": away})

    def f(x):
        return torch.exp(x)

    with pytest.raises(errors.KernelOutputError) as caught:
        torch.compile(f, backend=backend, options={"check": check})(torch.ones(3, 4))
    text = str(caught.value)
    assert "returned float32[3, 4] on 'meta', expected it on 'cpu'" in text
    assert "the kernel of region_0 (exp)" in text if whole else "the kernel for exp(float32[3, 4])" in text
    assert line_of(f) in text and "to fix" in text
