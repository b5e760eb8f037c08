"""How many tokens one step commits: the three laws, their closed formula and their draws.

Invariant: `draw` follows `expected`. A draft's tokens are accepted one after the other, each with the same chance,
until the first that is not; the target's own token follows, except where all that a step can commit is full.

Source: Leviathan et al., arXiv 2211.17192, for vLLM's law; NxD Inference v0.6.10598 models/model_base.py,
`_token_gen_forward`, for NxDI's, which makes k draft forwards and verifies k - 1 of them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tandem.twin.server.knobs import LawName

Counts = NDArray[np.int64]


def most_tokens(law: LawName, window: int) -> int:
    """Return the most tokens that a step commits: 1 plainly, k on NxDI, k + 1 on vLLM.

    Args:
        window: num_speculative_tokens, k.
    """
    return {"none": 1, "nxdi": window, "vllm": window + 1}[law]


def expected_tokens(law: LawName, acceptance: float, window: int) -> float:
    """Return the mean of a step's tokens: (1 - a^m) / (1 - a), where m is the most that it commits."""
    most = most_tokens(law, window)
    if math.isclose(acceptance, 1.0):
        return float(most)
    return (1 - acceptance**most) / (1 - acceptance)


def draw(rng: np.random.Generator, law: LawName, acceptance: float, window: int, size: int) -> Counts:
    """Draw the tokens of `size` steps, each at least 1.

    Shapes: (steps,).
    """
    most = most_tokens(law, window)
    if most == 1 or acceptance <= 0:
        return np.ones(size, dtype=np.int64)
    if acceptance >= 1:
        return np.full(size, most, dtype=np.int64)
    return np.minimum(rng.geometric(1 - acceptance, size), most)
