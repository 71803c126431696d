"""Worker processes that prove items: one that dies or hangs costs its item and nothing else.

Does not: choose the items or keep the results.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from backend_sdk.coverage.prove import Entry, Item, Status, prove

# The slowest item in one dtype takes about three minutes on one core.
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Task:
    """An item, and the items whose samples lend it arguments."""

    item: Item
    donors: tuple[Item, ...] = ()


def prove_all(tasks: Sequence[Task], level: str, limit: int | None, jobs: int) -> Iterator[Entry]:
    """Prove tasks in ``jobs`` processes; entries come as they are done. Closing the iterator ends the processes."""
    waiting = list(reversed(tasks))
    workers = [_Worker(level, limit) for _ in range(min(jobs, len(tasks)))]
    try:
        while True:
            for worker in workers:
                if worker.task is None and waiting:
                    worker.give(waiting.pop())
            busy = {worker.pipe: worker for worker in workers if worker.task is not None}
            if not busy:
                return
            for ready in wait(list(busy), timeout=1.0):
                yield busy[ready].take()  # type: ignore[index]
            for worker in busy.values():
                if worker.is_late:
                    yield worker.end(f"took more than {TIMEOUT_S:.0f} s")
    finally:
        for worker in workers:
            worker.close()


@dataclass
class _Worker:
    level: str
    limit: int | None
    task: Task | None = None
    _since: float = 0.0
    pipe: Connection = field(init=False)
    _process: Any = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        # Spawned: a forked process has locks of torch's threads that nobody will release.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self.level, self.limit), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, task: Task) -> None:
        self.task = task
        self._since = time.monotonic()
        self.pipe.send(task)

    @property
    def is_late(self) -> bool:
        return self.task is not None and time.monotonic() - self._since > TIMEOUT_S

    def take(self) -> Entry:
        try:
            entry: Entry = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            return self.end(f"the process died with exit code {self._process.exitcode}")
        self.task = None
        return entry

    def end(self, why: str) -> Entry:
        """Give the task up, with a new process for the next one."""
        assert self.task is not None
        entry = Entry(self.task.item.key, Status.DIED, failed=1, message=why)
        self.task = None
        self.close()
        self._start()
        return entry

    def close(self) -> None:
        self.pipe.close()
        self._process.kill()
        self._process.join()


def _work(pipe: Connection, level: str, limit: int | None) -> None:
    import warnings

    from backend_sdk.coverage import calls

    # The catalogue calls deprecated and beta functions on purpose.
    warnings.simplefilter("ignore")
    calls.quiet()
    while True:
        try:
            task: Task = pipe.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        pipe.send(prove(task.item, level, limit, task.donors))
