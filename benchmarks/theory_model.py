"""What the model of tandem/plan predicts from a measured plain server, and each published row held out of the fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from tandem.plan.measurement_rows import PublishedRow
from tandem.plan.step_cost import fit_draft_cost


@dataclass(frozen=True, slots=True)
class HeldOutRow:
    """A row, and what the model and two naive rules say of its speed-up when it is fitted to the others.

    Args:
        row: held out.
        predicted: by the model.
        mean_of_others: always the mean speed-up.
        tokens_alone: tokens of a step, as if a step cost no more than a plain one.
    """

    row: PublishedRow
    predicted: float
    mean_of_others: float
    tokens_alone: float


def predict_speed_up(tokens: float, window: int, draft_ms: float, plain_tpot_ms: float) -> float:
    """Return how many times as fast a token comes with speculation.

    Args:
        tokens: mean tokens of a step.
        window: num_speculative_tokens.
        draft_ms: of one draft forward.
        plain_tpot_ms: measured, of the same target without speculation at the same load.
    """
    return tokens / (1 + window * draft_ms / plain_tpot_ms)


def predict_time_ratio(
    steps_per_token: float, acceptance_rate: float, *, verify_ratio: float, draft_ratio: float = 0.0
) -> float:
    """Return the time per token with speculation over that without, from what the server counted.

    Args:
        steps_per_token: steps of the target / output tokens.
        acceptance_rate: accepted / drafted tokens, above 0 where anything was drafted.
        verify_ratio: time of one more token in a step of the target, over a plain step: prefill's time of a token over
            the plain TPOT.
        draft_ratio: time of one draft forward over a plain step; 0 for n-grams.
    """
    drafted_per_token = (1 - steps_per_token) / acceptance_rate if steps_per_token < 1 else 0.0
    return steps_per_token + drafted_per_token * (verify_ratio + draft_ratio)


def imply_draft_ratio(
    steps_per_token: float, acceptance_rate: float, *, verify_ratio: float, time_ratio: float
) -> float:
    """Return the draft_ratio at which `predict_time_ratio` gives a measured ratio."""
    plain = predict_time_ratio(steps_per_token, acceptance_rate, verify_ratio=verify_ratio)
    return (time_ratio - plain) * acceptance_rate / (1 - steps_per_token)


def predict_ttft_ms(plain_ttft_ms: float, window: int, draft_ms: float) -> float:
    """Return TTFT of a server whose draft is as large as its target: both prefill, then all drafts but one come first.

    vLLM hands out a step's token when the step has drafted for the next (vllm v1/worker/gpu_model_runner.py,
    propose_draft_token_ids, called before the step's output is returned).
    """
    return 2 * plain_ttft_ms + (window - 1) * draft_ms


def hold_rows_out(rows: Sequence[PublishedRow]) -> Iterator[HeldOutRow]:
    """Yield each row that is not left out with what all others say of it."""
    used = [row for row in rows if row.left_out is None]
    for row in used:
        others = [other for other in used if other is not row]
        cost, tokens = fit_draft_cost(others), row.tokens or 0.0
        predicted = predict_speed_up(tokens, row.window, cost.mean_ms, row.baseline_tpot_ms.value)
        yield HeldOutRow(row, predicted, fmean(other.speed_up for other in others), tokens)


def compute_error(predicted: float, measured: float) -> float:
    """Return by which share a prediction is off."""
    return abs(predicted / measured - 1)
