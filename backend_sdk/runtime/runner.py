"""Runs a plan: writes it out as one Python function that calls kernels, eager ops and nothing else.

Does not: decide anything; the plan has decided.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from backend_sdk.errors import KernelError, KernelOutputError, KernelRaisedError, SdkError
from backend_sdk.graph.runnable import bound_symbols, symbols_of
from backend_sdk.runtime.arena import Arena, Lifetime, layout
from backend_sdk.runtime.eager import reach, with_strides, write
from backend_sdk.runtime.function_kernel import check_operands, check_results, region_location, region_subject
from backend_sdk.runtime.inspection import Operands, untouched
from backend_sdk.runtime.plan import Buffer, EagerAction, KernelAction, Output, Plan, View
from backend_sdk.runtime.source import SourceWriter
from backend_sdk.spec import SymExpr, TensorType
from backend_sdk.spec.symbolic import contiguous_strides, element_count

log = logging.getLogger("backend_sdk")


class Runner:
    """Calls a plan with a list of inputs, which it empties, and returns a list of results.

    ``check`` is the option of that name: ``first``, ``always`` or ``never``.
    """

    def __init__(self, plan: Plan, check: str) -> None:
        self.plan = plan
        program = _Program(plan)
        self.source = program.source
        self.arena = program.arena
        self._fast = program.compile(checked=False)
        self._checked = self._fast if check == "never" else program.compile(checked=True)
        self._check = check
        self._run = self._checked

    def __call__(self, inputs: list[Any]) -> list[Any]:
        results: list[Any] = self._run(inputs)
        if self._check != "always":
            self._run = self._fast
        return results


def draw_key() -> torch.Tensor:
    """A fresh key for the random ops of one call, from torch's default generator."""
    return torch.randint(-(2**63), 2**63 - 1, (1,), dtype=torch.int64)


class ArenaPool:
    """Arenas that are not in use, by the sizes they were laid out for.

    A call takes one and gives it back, so that concurrent calls of one plan never share memory.
    """

    _MOST_LAYOUTS = 8

    def __init__(self, plan: Plan) -> None:
        self._device = plan.device
        self._buffers = [buffer for buffer in plan.buffers if buffer.in_arena]
        self.symbols = tuple(sorted(symbols_of(tuple(buffer.type for buffer in self._buffers))))
        self._free: dict[tuple[int, ...], list[Arena]] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(buffer.name for buffer in self._buffers)

    def take(self, sizes: tuple[int, ...]) -> Arena:
        """An arena for these values of `symbols`."""
        with self._lock:
            free = self._free.get(sizes)
            if free:
                return free.pop()
        return self._lay_out(sizes)

    def give_back(self, sizes: tuple[int, ...], arena: Arena) -> None:
        """Let later calls use ``arena``."""
        with self._lock:
            if sizes not in self._free and len(self._free) >= self._MOST_LAYOUTS:
                del self._free[next(iter(self._free))]
            self._free.setdefault(sizes, []).append(arena)

    def nbytes(self, sizes: tuple[int, ...]) -> int:
        """Bytes of an arena for these values of `symbols`."""
        return layout(self._lifetimes(self._shapes(sizes)))[1]

    def _shapes(self, sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
        table = dict(zip(self.symbols, sizes, strict=True))
        return [
            tuple(int(dim.evaluate(table)) if isinstance(dim, SymExpr) else dim for dim in buffer.type.shape)
            for buffer in self._buffers
        ]

    def _lifetimes(self, shapes: Sequence[tuple[int, ...]]) -> list[Lifetime]:
        return [
            Lifetime(int(element_count(shape)) * buffer.type.dtype.itemsize, buffer.first, buffer.last)  # type: ignore[arg-type]
            for buffer, shape in zip(self._buffers, shapes, strict=True)
        ]

    def _lay_out(self, sizes: tuple[int, ...]) -> Arena:
        shapes = self._shapes(sizes)
        offsets, size = layout(self._lifetimes(shapes))
        return Arena(self._device, shapes, [buffer.type.dtype for buffer in self._buffers], offsets, size)


class _Program:
    """Writes the function. Values are called ``v_<name>``, symbols keep their names."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._writer = SourceWriter(plan.name)
        self._checked: dict[str, Any] = {}
        # Of an asynchronous device: kernels that may still run, what they write, and what to drop after them.
        self._running: list[KernelAction] = []
        self._written: set[str] = set()
        self._dead: list[str] = []
        self._own_buffers = {buffer.name: buffer for buffer in plan.buffers if not buffer.in_arena}
        self.arena = ArenaPool(plan)
        self._write()
        self.source = self._writer.source

    def compile(self, *, checked: bool) -> Callable[[list[Any]], list[Any]]:
        return self._writer.compile("run", self._checked if checked else None)

    def _write(self) -> None:
        writer = self._writer
        writer.line("def run(inputs):", indent=0)
        writer.line("step = -1")
        writer.line("try:")
        self._enter()
        self._allocate()
        for index, action in enumerate(self._plan.actions):
            self._emit(f"step = {index}")
            if isinstance(action, KernelAction):
                self._kernel(action)
            else:
                self._eager(action)
            self._free(map(_local, self._plan.frees[index]))
        self._leave()
        failed = writer.bind(_Failure(self._plan), "failed")
        writer.line("except Exception as error:")
        writer.line(f"    explained = {failed}(step, error, locals())")
        writer.line("    raise explained from explained.__cause__")

    def _emit(self, text: str) -> None:
        self._writer.line(text, indent=2)

    def _free(self, names: Iterable[str]) -> None:
        """Drop values; those that a kernel may still be reading, when it has finished."""
        self._dead += names
        if self._dead and not self._running:
            self._emit(f"del {', '.join(self._dead)}")
            self._dead.clear()

    def _synchronize(self) -> None:
        """Wait for the kernels that were started since the last time. Costs nothing where kernels do not outlast
        their call."""
        if self._running:
            wait = _Synchronization(self._plan, tuple(self._running))
            self._emit(f"{self._writer.bind(wait, 'synchronize')}()")
            self._running.clear()
            self._written.clear()
            self._free(())

    def _enter(self) -> None:
        inputs = [(_local(name), type) for name, type in self._plan.inputs]
        if inputs:
            self._emit(f"{', '.join(name for name, _ in inputs)}, = inputs")
        self._emit("inputs.clear()")
        for symbol, source in bound_symbols(inputs).items():
            self._emit(f"{symbol} = {source}")
        for name, value in self._plan.constants.items():
            self._emit(f"{_local(name)} = {self._writer.bind(value, 'constant')}")
        if self._plan.key is not None:
            self._emit(f"{_local(self._plan.key)} = {self._writer.bind(draw_key, 'draw_key')}()")
        if self._watches:
            tensors = [name for name, type in inputs if isinstance(type, TensorType)]
            tensors += [_local(name) for name, value in self._plan.constants.items() if isinstance(value, torch.Tensor)]
            self._emit(f"taken = {self._writer.bind(_storages, 'storages')}(({''.join(t + ', ' for t in tensors)}))")

    def _allocate(self) -> None:
        if not self.arena.names:
            return
        pool = self._writer.bind(self.arena, "arena")
        self._emit(f"sizes = ({''.join(symbol + ', ' for symbol in self.arena.symbols)})")
        self._emit(f"arena = {pool}.take(sizes)")
        self._emit(f"{', '.join(map(_local, self.arena.names))}, = arena.buffers")
        if self._watches:
            self._emit("taken.add(arena.start)")

    def _kernel(self, action: KernelAction) -> None:
        arguments = self._kernel_inputs(action)
        kernel = action.kernel
        if self._plan.device.asynchronous:
            self._running.append(action)
            self._written.update(action.outputs)
        if not kernel.allocates_outputs:
            for name in action.outputs:
                if name in self._own_buffers:
                    self._emit(f"{_local(name)} = {self._empty(self._own_buffers[name])}")
            name = self._writer.bind_alone(kernel.run, "kernel")
            self._checked[name] = _WritingCheck(action, self._plan)
            self._emit(f"{name}({arguments}, {self._tuple(action.outputs)})")
            return
        name = self._writer.bind(_RegionCheck(action, self._plan), "kernel")
        self._checked[name] = _ReturningCheck(action, self._plan)
        symbols = sorted(symbols_of(tuple(out.type for out in action.region.outputs)))
        table = f"{{{', '.join(f'{symbol!r}: {symbol}' for symbol in symbols)}}}"
        targets = "".join(_local(output) + ", " for output in action.outputs)
        left = f"{targets}= " if targets else ""
        self._emit(f"{left}{name}({arguments}, {table})")

    def _kernel_inputs(self, action: KernelAction) -> str:
        """The values as the region declares them: what eager or a kernel of its own memory made may have strides."""
        items = []
        for name, declared in zip(action.inputs, action.region.inputs, strict=True):
            if isinstance(declared, SymExpr):
                items.append(name)
            elif declared.strides is None and name in self._loose:
                items.append(self._dense(name))
            else:
                items.append(_local(name))
        return f"({''.join(item + ', ' for item in items)})"

    def _dense(self, name: str) -> str:
        """A value in dense memory, which outlives the kernel that reads it."""
        if not self._plan.device.asynchronous:
            return f"{_local(name)}.contiguous()"
        copy = f"c_{len(self._writer.lines)}_{name}"
        if name in self._written:
            wait = self._writer.bind(_Synchronization(self._plan, tuple(self._running)), "synchronize")
            self._emit(f"{copy} = {self._writer.bind(_dense_after, 'dense')}({_local(name)}, {wait})")
        else:
            self._emit(f"{copy} = {_local(name)}.contiguous()")
        self._dead.append(copy)
        return copy

    @functools.cached_property
    def _loose(self) -> frozenset[str]:
        """Values whose strides somebody else chose."""
        names: set[str] = set()
        for action in self._plan.actions:
            if isinstance(action, EagerAction):
                names |= {action.result, *(pick[0] for pick in action.picks)}
            elif action.kernel.allocates_outputs:
                names |= set(action.outputs)
        return frozenset(names)

    def _eager(self, action: EagerAction) -> None:
        call = action.call
        reads = {leaf.name for leaf in call.leaves if not isinstance(leaf, SymExpr)}
        # What has an effect may write into what a kernel is still reading.
        if action.has_effect or not self._written.isdisjoint(reads):
            self._synchronize()
        leaves = "".join(
            (leaf.source if isinstance(leaf, SymExpr) else _local(leaf.name)) + ", " for leaf in call.leaves
        )
        layouts = self._writer.literal(tuple(call.layout_numbers))
        called = f"{self._writer.bind(call, 'eager')}(({leaves}), {layouts})"
        self._emit(f"{_local(action.result)} = {called}")
        self._bind_new_symbols(action.result, action.type)
        for name, several, index, type in action.picks:
            self._emit(f"{_local(name)} = {_local(several)}[{index}]")
            self._bind_new_symbols(name, type)

    def _bind_new_symbols(self, name: str, type: Any) -> None:
        """Sizes that only the data decides become known with the result that has them."""
        for symbol, source in bound_symbols([(_local(name), type)]).items():
            if symbol != source:
                self._emit(f"{symbol} = {source}")

    def _leave(self) -> None:
        self._emit(f"step = {len(self._plan.actions)}")
        self._synchronize()
        items = [self._result(output, index) for index, output in enumerate(self._plan.outputs)]
        if self.arena.names:
            self._emit(f"{self._writer.bind(self.arena, 'arena')}.give_back(sizes, arena)")
        self._emit(f"return [{', '.join(items)}]")

    def _result(self, output: Output, index: int) -> str:
        if output.name is None:
            return self._writer.literal(output.number)
        if output.view is not None:
            return self._view(output.view, index)
        local = _local(output.name)
        if output.is_input and not output.copy:
            return local
        strides = self._writer.literal(output.strides)
        buffer = self._own_buffers.get(output.name)
        dense = buffer is not None and output.strides in (None, contiguous_strides(buffer.type.shape))
        if dense and not output.copy:
            if self._watches:
                self._emit(f"taken.add({local}.untyped_storage().data_ptr())")
            return local
        result = f"r_{index}"
        if output.copy or buffer is not None:
            self._emit(f"{result} = {self._writer.bind(_copy, 'copy')}({local}, {strides})")
        elif output.visible:
            self._emit(f"{result} = {self._writer.bind(_own, 'own')}({local}, {strides}, taken)")
        else:
            arena = "arena" if self.arena.names else "None"
            self._emit(f"{result} = {self._writer.bind(_saved, 'saved')}({local}, {strides}, {arena})")
        return result

    def _view(self, view: View, index: int) -> str:
        result = f"r_{index}"
        layout = self._writer.literal((view.shape, view.strides, view.offset))
        if view.base is not None:
            self._emit(f"{result} = {self._writer.bind(_view_of, 'view_of')}({_local(view.base)}, *{layout})")
            return result
        members = [
            (number, output)
            for number, output in enumerate(self._plan.outputs)
            if output.view is not None and output.view.base is None and output.view.group == view.group
        ]
        if members[0][0] == index:
            names = "".join(f"r_{number}, " for number, _ in members)
            values = self._tuple(str(output.name) for _, output in members)
            layouts = self._writer.literal(
                tuple(
                    (output.view.shape, output.view.strides, output.view.offset)
                    for _, output in members
                    if output.view is not None
                )
            )
            self._emit(f"{names}= {self._writer.bind(_shared, 'shared')}({values}, {layouts}, taken)")
        return result

    def _may_alias(self, output: Output) -> bool:
        """Whether the result is memory that somebody else allocated and may share."""
        if output.view is not None:
            return output.view.base is None
        given = output.name is not None and output.name not in self._own_buffers
        return given and output.visible and not output.is_input and not output.copy

    @functools.cached_property
    def _watches(self) -> bool:
        """Whether the run keeps track of memory that results must not share."""
        return any(map(self._may_alias, self._plan.outputs))

    def _empty(self, buffer: Buffer) -> str:
        shape = self._writer.literal(buffer.type.shape)
        strides = self._writer.literal(contiguous_strides(buffer.type.shape))
        empty = self._writer.bind(self._plan.device.empty, "empty")
        return f"{empty}({shape}, {strides}, {buffer.type.dtype})"

    def _tuple(self, names: Iterable[str]) -> str:
        return f"({''.join(_local(name) + ', ' for name in names)})"


def _local(name: str) -> str:
    return f"v_{name}"


def _storages(tensors: tuple[torch.Tensor | None, ...]) -> set[int]:
    return {
        tensor.untyped_storage().data_ptr()
        for tensor in tensors
        # Effect tokens are declared as tensors, and given as None.
        if tensor is not None and tensor.layout == torch.strided
    }


def _own(tensor: torch.Tensor, strides: tuple[int, ...] | None, taken: set[int]) -> torch.Tensor:
    """``tensor`` with eager's strides and memory that no input and no earlier result has."""
    if strides is None or tensor is None:
        return tensor
    if tensor.stride() != strides:
        tensor = with_strides(tensor, strides)
    elif tensor.untyped_storage().data_ptr() in taken:
        tensor = _copy(tensor, strides)
    taken.add(tensor.untyped_storage().data_ptr())
    return tensor


_Layout = tuple[tuple[int, ...], tuple[int, ...], int]


def _view_of(base: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """What eager shows of an input. The input's own offset is not the one it was captured with."""
    return base.as_strided(shape, strides, base.storage_offset() + offset)


def _shared(tensors: Sequence[torch.Tensor], layouts: Sequence[_Layout], taken: set[int]) -> list[torch.Tensor]:
    """``tensors`` as views of one memory, each with its layout in it."""
    start = min(offset for _, _, offset in layouts)
    extent = max(offset + reach(shape, strides) for shape, strides, offset in layouts) - start
    base = None
    for tensor, (_, strides, offset) in zip(tensors, layouts, strict=True):
        # One of them may be the whole memory already.
        whole = tensor.numel() == extent and offset == start and tensor.stride() == strides
        if whole and tensor.untyped_storage().data_ptr() not in taken:
            base = tensor
            break
    memory = tensors[0].new_empty(extent) if base is None else base
    taken.add(memory.untyped_storage().data_ptr())
    results = []
    for tensor, (shape, strides, offset) in zip(tensors, layouts, strict=True):
        if base is None:
            results.append(write(memory, tensor, strides, offset - start))
        elif tensor is base:
            results.append(base)
        else:
            results.append(memory.as_strided(shape, strides, memory.storage_offset() + offset - start))
    return results


def _saved(tensor: torch.Tensor, strides: tuple[int, ...] | None, arena: Arena | None) -> torch.Tensor:
    """``tensor`` with the strides that the backward graph was captured with, outside the arena."""
    if tensor is None or strides is None:
        return tensor
    if tensor.stride() != strides or (arena is not None and arena.holds(tensor)):
        return _copy(tensor, strides)
    return tensor


def _copy(tensor: torch.Tensor, strides: tuple[int, ...] | None) -> torch.Tensor:
    return tensor.clone() if strides is None else with_strides(tensor, strides)


def _dense_after(tensor: torch.Tensor, synchronize: Callable[[], None]) -> torch.Tensor:
    """``tensor``, or a dense copy of it when the kernels that write it have finished."""
    if tensor.is_contiguous():
        return tensor
    synchronize()
    return tensor.contiguous()


class _Synchronization:
    """Waits for the kernels of ``actions``. What that raises is theirs."""

    def __init__(self, plan: Plan, actions: tuple[KernelAction, ...]) -> None:
        self._plan = plan
        self._actions = actions

    def __call__(self) -> None:
        try:
            self._plan.device.synchronize()
        except Exception as error:
            subjects = [region_subject(action.region, self._plan.backend) for action in self._actions]
            raise KernelRaisedError(
                f"{' or '.join(subjects)} raised {type(error).__name__}: {error} (when the device was synchronized)",
                location=next(filter(None, (region_location(action.region) for action in self._actions)), None),
                hint="the traceback above this error shows what synchronize() raised",
            ) from error


class _Check:
    """Runs the kernel of a region and checks what it does."""

    def __init__(self, action: KernelAction, plan: Plan) -> None:
        self._run = action.kernel.run
        self._types = tuple(output.type for output in action.region.outputs)
        self._region = action.region
        self._plan = plan
        self._device = plan.device

    def _synchronize(self) -> None:
        if self._device.asynchronous:
            self._device.synchronize()

    def _subject(self) -> tuple[str, str | None]:
        return region_subject(self._region, self._plan.backend), region_location(self._region)


class _RegionCheck(_Check):
    """Checks the types of what an allocating kernel returns. Runs in every call."""

    def __call__(self, inputs: tuple[Any, ...], symbols: dict[str, int]) -> Sequence[torch.Tensor]:
        results: Sequence[torch.Tensor] = self._run(inputs)
        check_results(results, self._types, symbols, self._subject, self._device)
        return results


class _ReturningCheck(_RegionCheck):
    """Checks all of an allocating kernel: op by op where it can diagnose itself, else its operands as well."""

    def __init__(self, action: KernelAction, plan: Plan) -> None:
        super().__init__(action, plan)
        self._diagnoses = action.kernel.diagnose is not None
        self._run = action.kernel.diagnose or action.kernel.run

    def __call__(self, inputs: tuple[Any, ...], symbols: dict[str, int]) -> Sequence[torch.Tensor]:
        self._synchronize()
        operands = Operands(() if self._diagnoses else inputs)
        results = super().__call__(inputs, symbols)
        self._synchronize()
        check_operands(operands, self._subject)
        return results


class _WritingCheck(_Check):
    """Checks a kernel that writes into the plan's buffers: that it does, and into nothing else."""

    def __call__(self, inputs: tuple[Any, ...], outputs: tuple[torch.Tensor, ...]) -> None:
        self._synchronize()
        operands = Operands(inputs)
        places = [_place(output) for output in outputs]

        def run() -> None:
            self._run(inputs, outputs)
            self._synchronize()
            self._check_places(outputs, places)
            check_operands(operands, self._subject)

        if not self._plan.computes:
            run()
            return
        left = untouched(run, outputs)
        if left is not None:
            index, count = left
            who, location = self._subject()
            type = TensorType(tuple(outputs[index].shape), outputs[index].dtype)
            raise KernelOutputError(
                f"{who} left {count} of {outputs[index].numel()} elements of its output {index} ({type}) unwritten",
                location=location,
                hint="write every element of outputs; a backend that computes nothing says Capability(computes=False)",
            )

    def _check_places(self, outputs: tuple[torch.Tensor, ...], places: list[tuple[Any, ...]]) -> None:
        for index, (output, place) in enumerate(zip(outputs, places, strict=True)):
            if _place(output) != place:
                who, location = self._subject()
                shape, dtype = place[:2]
                wanted, got = TensorType(shape, dtype), TensorType(tuple(output.shape), output.dtype)
                what = "gave it other memory or strides" if got == wanted else f"made it {got}"
                raise KernelOutputError(
                    f"{who} did not write into its output {index} ({wanted}) as it is, but {what}",
                    location=location,
                    hint=f"write into the memory that it has: outputs[{index}].copy_(result)",
                )


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.dtype, tensor.stride(), tensor.device, tensor.data_ptr()


class _Failure:
    """Explains what failed in a run: which action, for whom, at which line of the user's.

    ``__cause__`` of the explanation is the exception of whoever raised first.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, step: int, error: Exception, local: dict[str, Any]) -> Exception:
        self._finish()
        if isinstance(error, KernelError):
            # Op by op already, or a kernel of a region that returned something wrong: find out which op did.
            named = isinstance(error, KernelRaisedError) or error.__cause__ is not None
            return error if named else self._diagnose(step, local) or error
        if self._raises_as_eager(step):
            return error
        action = self._action(step)
        if action is None:
            return error if isinstance(error, SdkError) else self._outside(error)
        return self._diagnose(step, local) or self._raised(action, error)

    def _finish(self) -> None:
        """Kernels that still run read and write what this call is about to give up."""
        if self._plan.device.asynchronous:
            try:
                self._plan.device.synchronize()
            except Exception:
                # The failure that is being explained came first.
                log.exception("backend %r: its device failed while it was synchronized", self._plan.backend)

    def _raises_as_eager(self, step: int) -> bool:
        action = self._plan.actions[step] if 0 <= step < len(self._plan.actions) else None
        return isinstance(action, EagerAction) and action.call.raises_as_eager

    def _action(self, step: int) -> KernelAction | None:
        action = self._plan.actions[step] if 0 <= step < len(self._plan.actions) else None
        return action if isinstance(action, KernelAction) else None

    def _diagnose(self, step: int, local: dict[str, Any]) -> KernelError | None:
        action = self._action(step)
        if action is None or action.kernel.diagnose is None:
            return None
        names = [name if name in local else _local(name) for name in action.inputs]
        if any(name not in local for name in names):
            return None
        try:
            action.kernel.diagnose([local[name] for name in names])
        except KernelError as found:
            return found
        except Exception:
            # The failure that is being explained matters more than that of a vendor's diagnosis.
            log.exception("%s: its diagnose() failed", region_subject(action.region, self._plan.backend))
        return None

    def _raised(self, action: KernelAction, error: Exception) -> KernelError:
        explained = KernelRaisedError(
            f"{region_subject(action.region, self._plan.backend)} raised {type(error).__name__}: {error}",
            location=region_location(action.region),
            hint="the traceback above this error shows where in the kernel",
        )
        explained.__cause__ = error
        return explained

    def _outside(self, error: Exception) -> KernelError:
        explained = KernelError(
            f"backend {self._plan.backend!r}: running the plan failed with {type(error).__name__}: {error}",
            hint="please report this with options={'dump': 'some/folder'}: it is a fault of the SDK",
        )
        explained.__cause__ = error
        return explained
