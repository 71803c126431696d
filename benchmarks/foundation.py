"""The foundation's numbers, each a ratio or a time of one run: ``python benchmarks/foundation.py [--json FILE]``.

Run it alone on the machine: two compilers on two cores disturb each other. Exits with 1 when a number misses its
bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Number:
    """A measured number with the bound it must keep, and what it was made of."""

    name: str
    value: float
    bound: float
    unit: str
    detail: str

    @property
    def kept(self) -> bool:
        return self.value <= self.bound


def partition_chain() -> Number:
    """Seconds to partition a chain of 4,000 nodes in which the backend refuses every 8th."""
    from backend_sdk import Backend, Node, Support, no, prims
    from backend_sdk.contract import YES
    from backend_sdk.decomp import all_rules
    from backend_sdk.pipeline.capture import INFERENCE, Captured
    from backend_sdk.pipeline.decompose import decompose
    from backend_sdk.pipeline.options import Options
    from backend_sdk.pipeline.partition import RegionStep, partition

    class EveryEighth(Backend):
        name = "every_eighth"

        def supports(self, node: Node) -> Support:
            return no("every 8th node is refused") if node.op is prims.cos else YES

    chain = torch.fx.Graph()
    value = chain.placeholder("x")
    value.meta["val"] = torch.empty(8)
    for index in range(4000):
        op = torch.ops.aten.cos.default if index % 8 == 7 else torch.ops.aten.sin.default
        value = chain.call_function(op, (value,))
        value.meta["val"] = torch.empty(8)
    chain.output((value,))
    captured = Captured(torch.fx.GraphModule({}, chain), INFERENCE, 1)
    backend = EveryEighth()
    seconds = []
    for _ in range(5):
        dialect = decompose(captured, backend, all_rules(), Options())
        start = time.perf_counter()
        steps = partition(dialect, backend, may_demote=True)
        seconds.append(time.perf_counter() - start)
    regions = sum(isinstance(step, RegionStep) for step in steps)
    return Number(
        "partition a chain of 4,000 nodes, every 8th refused",
        statistics.median(seconds),
        2.0,
        "s",
        f"{regions} regions, {len(steps) - regions} eager calls, median of 5",
    )


def compile_bert(runs: int = 5) -> Number:
    """Time to compile BERT-base for sdk:null over aot_eager's, alternating, in inference."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig()).eval()
    inputs = {
        "input_ids": torch.randint(0, 1000, (1, 128)),
        "attention_mask": torch.ones(1, 128, dtype=torch.long),
    }

    def compile_once(backend: str) -> float:
        torch.compiler.reset()
        compiled = torch.compile(model, backend=backend)
        start = time.perf_counter()
        with torch.no_grad():
            compiled(**inputs)
        return time.perf_counter() - start

    times = _alternate({name: lambda name=name: compile_once(name) for name in ("sdk:null", "aot_eager")}, runs)
    return Number(
        "compile BERT-base on sdk:null over aot_eager",
        times["sdk:null"] / times["aot_eager"],
        1.3,
        "ratio",
        f"{times['sdk:null']:.2f} s over {times['aot_eager']:.2f} s, medians of {runs} alternating runs",
    )


def decompose_bert(runs: int = 5) -> Number:
    """Seconds to decompose BERT-base's training graphs, forward and backward, to prims."""
    from transformers import BertConfig, BertForMaskedLM

    from backend_sdk.pipeline.report import collecting

    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig())
    tokens = torch.randint(0, 1000, (1, 128))
    seconds = []
    for _ in range(runs + 1):
        torch.compiler.reset()
        with collecting() as reports:
            torch.compile(model, backend="sdk:reference")(input_ids=tokens, labels=tokens).loss.backward()
        model.zero_grad()
        seconds.append(sum(report.seconds["decompose"] for report in reports))
    nodes = sum(len(report.nodes) for report in reports)
    graphs = " and ".join(report.kind for report in reports)
    detail = f"{nodes} aten nodes ({graphs}), median of {runs}"
    return Number("decompose BERT-base's training graphs to prims", statistics.median(seconds[1:]), 2.0, "s", detail)


def call_overhead(rounds: int = 41, calls: int = 500) -> Number:
    """Time of one call of a compiled 3-op graph on sdk:null over TorchInductor's, alternating."""

    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + y) * 2

    x, y = torch.randn(8, 8), torch.randn(8, 8)
    compiled: dict[str, Any] = {}
    for backend in ("sdk:null", "inductor", "aot_eager"):
        # Each backend gets a function object of its own, so that Dynamo keeps one entry for each.
        function = type(chain)(chain.__code__.replace(co_name=f"chain_{len(compiled)}"), globals())
        compiled[backend] = torch.compile(function, backend=backend)

    def repeat(function: Callable[..., Any]) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            function(x, y)
        return (time.perf_counter() - start) / calls * 1e6

    with torch.no_grad():
        for function in compiled.values():
            repeat(function)
        times = _alternate(
            {name: lambda function=function: repeat(function) for name, function in compiled.items()}, rounds
        )
    detail = ", ".join(f"{name} {value:.1f} us" for name, value in times.items())
    return Number(
        "call overhead of a 3-op graph on sdk:null over TorchInductor",
        times["sdk:null"] / times["inductor"],
        1.0,
        "ratio",
        f"{detail}; medians of {rounds} alternating rounds of {calls} calls",
    )


def import_torch(runs: int = 11) -> Number:
    """Time of ``import torch`` with the package installed over without it, alternating.

    "Without" is the same site-packages folder, by links, with every file of this package left out.
    """
    site = Path(sysconfig.get_path("purelib"))
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder)
        for entry in site.iterdir():
            if "backend_sdk" not in entry.name.replace("-", "_"):
                (bare / entry.name).symlink_to(entry)
        times = _alternate({"with": lambda: _import_seconds(site), "without": lambda: _import_seconds(bare)}, runs)
    return Number(
        "import torch with the package installed over without",
        times["with"] / times["without"],
        1.05,
        "ratio",
        f"{times['with']:.3f} s over {times['without']:.3f} s, medians of {runs} alternating runs",
    )


def _import_seconds(site: Path) -> float:
    """Seconds from the start of a bare interpreter, with ``site`` as its site-packages, to torch imported."""
    code = f"import site; site.addsitedir({str(site)!r}); import torch"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    return time.perf_counter() - start


def import_sdk(runs: int = 7) -> Number:
    """Seconds that ``import backend_sdk`` takes after ``import torch``; in the detail, with all its public names.

    The package imports lazily, so that the bare import is next to nothing.
    """
    names = "[getattr(backend_sdk, name) for name in backend_sdk.__all__]"
    bare, whole = (statistics.median(_import_sdk_seconds(rest) for _ in range(runs)) for rest in ("pass", names))
    return Number(
        "import backend_sdk beyond torch",
        bare,
        0.3,
        "s",
        f"with every public name {whole:.3g} s; medians of {runs} processes",
    )


def _import_sdk_seconds(rest: str) -> float:
    code = f"import time, torch; t = time.perf_counter(); import backend_sdk; {rest}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def _alternate(measures: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Medians of measures that take turns, after one warm-up round."""
    times: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            value = measure()
            if number:
                times[name].append(value)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    """Measure and print all numbers; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    numbers = []
    for measure in (partition_chain, compile_bert, decompose_bert, call_overhead, import_torch, import_sdk):
        number = measure()
        numbers.append(number)
        verdict = "ok    " if number.kept else "MISSED"
        print(f"{verdict} {number.name}: {number.value:.3g} {number.unit} (at most {number.bound:g}); {number.detail}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(number) for number in numbers], indent=2) + "\n")
    return 0 if all(number.kept for number in numbers) else 1


if __name__ == "__main__":
    sys.exit(main())
