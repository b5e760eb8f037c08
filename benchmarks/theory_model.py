"""What tandem/plan's model predicts from a measured plain server and a server's counters."""

from __future__ import annotations


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
        verify_ratio: time of one more token in a step of the target, over a plain step: prefill's
            time of a token over the plain TPOT.
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
    """Return TTFT with a draft as large as the target: both prefill, then all drafts but one.

    vLLM hands out a step's token when the step has drafted for the next (vllm
    v1/worker/gpu_model_runner.py, propose_draft_token_ids, called before the step's output is
    returned).
    """
    return 2 * plain_ttft_ms + (window - 1) * draft_ms


def compute_error(predicted: float, measured: float) -> float:
    """Return by which share a prediction is off."""
    return abs(predicted / measured - 1)
