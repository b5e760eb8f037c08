"""How many tokens one step commits: the three laws, their closed formula and their draws.

Invariant: `draw_step_tokens` follows `expected`. A draft's tokens are accepted one after the other, each with the same
chance,
until the first that is not; the target's own token follows, except where all that a step can commit is full.

Source: Leviathan et al., arXiv 2211.17192, for vLLM's law; NxD Inference v0.6.10598 models/model_base.py,
`_token_gen_forward`, for NxDI's, which makes k draft forwards and verifies k - 1 of them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tandem.simulator.settings import AcceptanceModelName

TokenCounts = NDArray[np.int64]


def max_step_tokens(model_name: AcceptanceModelName, window: int) -> int:
    """Return the most tokens that a step commits: 1 plainly, k on NxDI, k + 1 on vLLM.

    Args:
        window: num_speculative_tokens, k.
    """
    return {"none": 1, "nxdi": window, "vllm": window + 1}[model_name]


def compute_mean_step_tokens(model_name: AcceptanceModelName, acceptance: float, window: int) -> float:
    """Return the mean of a step's tokens: (1 - a^m) / (1 - a), where m is the most that it commits."""
    max_tokens = max_step_tokens(model_name, window)
    if math.isclose(acceptance, 1.0):
        return float(max_tokens)
    return (1 - acceptance**max_tokens) / (1 - acceptance)


def draw_step_tokens(
    rng: np.random.Generator, model_name: AcceptanceModelName, acceptance: float, window: int, step_count: int
) -> TokenCounts:
    """Draw the tokens of `step_count` steps, each at least 1.

    Shapes: (steps,).
    """
    max_tokens = max_step_tokens(model_name, window)
    if max_tokens == 1 or acceptance <= 0:
        return np.ones(step_count, dtype=np.int64)
    if acceptance >= 1:
        return np.full(step_count, max_tokens, dtype=np.int64)
    return np.minimum(rng.geometric(1 - acceptance, step_count), max_tokens)
