"""Whether a variant keeps the goodput limits for more requests than the baseline, or for fewer.

Invariant: a request that failed keeps no limit, so nobody compares survivors. A prompt is one
value, however often it was sent: the share of its requests within the limits in the variant less
that in the baseline. Interval, round noise, starts and noise floor are those of every speed-up, and
`decide_speed_up` gives the word. The tests have a level of their own (ATTAINMENT_SHARE).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tandem.judge import comparability, interval, verdict_reason
from tandem.judge.decision import (
    ATTAINMENT_SHARE,
    SpeedUpDecision,
    adjust_p_values,
    decide_speed_up,
)
from tandem.judge.interval import LogRatioEstimate, RoundNoise
from tandem.judge.pairs import LIMITS_METRIC, CellPairs, RequestPairing
from tandem.judge.quantile_curve import FEWEST_PROMPTS
from tandem.judge.schema import AttainmentVerdict, AttainmentWord, CellWord, RunControls
from tandem.judge.text_format import count_things

_WORDS: dict[CellWord, AttainmentWord] = {
    "faster": "more",
    "slower": "fewer",
    "same": "same",
    "no evidence": "no evidence",
}


class _AttainmentEstimate(NamedTuple):
    """A draft, and the difference of the shares; None where the draft says why there is none."""

    draft: AttainmentVerdict
    estimate: LogRatioEstimate | None


class _ShareDifference(NamedTuple):
    """The pairs of two arms, both arms' shares, and the difference; None of too few prompts."""

    pairs: CellPairs
    shares: tuple[float, float]
    estimate: LogRatioEstimate | None


def judge_attainment(
    pairing: RequestPairing, controls: RunControls, *, margin: float
) -> tuple[AttainmentVerdict, ...]:
    """Return the verdicts on the limits of every variant and load; none without limits.

    Args:
        pairing: the rounds of the run that count.
        controls: what voids the run.
        margin: a difference of at most this share of all requests is `same`.
    """
    if not pairing.table.run.goodput:
        return ()
    rows = list(_estimate_attainment(pairing, controls))
    p_values = [row.estimate.p for row in rows if row.estimate is not None]
    adjusted_p_values = iter(adjust_p_values(np.array(p_values)) / ATTAINMENT_SHARE)
    verdicts = []
    for draft, estimate in rows:
        if estimate is None:
            verdicts.append(draft)
            continue
        adjusted_p = min(float(next(adjusted_p_values)), 1.0)
        decision = decide_speed_up(
            estimate,
            adjusted_p,
            # the decision takes logs of both
            floor=math.exp(draft.noise_floor or 0.0),
            margin=math.expm1(margin),
        )
        verdicts.append(
            replace(
                draft,
                adjusted_p=adjusted_p,
                verdict=_WORDS[decision.word],
                why=_explain_word(draft, decision, adjusted_p, margin),
            )
        )
    return tuple(verdicts)


def _estimate_attainment(
    pairing: RequestPairing, controls: RunControls
) -> Iterator[_AttainmentEstimate]:
    """Yield the estimate of each variant and load, in this order."""
    table = pairing.table
    for variant in table.variants:
        arms = (table.baseline, variant)
        bar_reason = comparability.explain_bar(pairing, controls, *arms)
        noise = _pool_noise(pairing, arms)
        for load, codes in pairing.group_loads().items():
            difference = _compare_shares(pairing, arms, codes, noise)
            draft = AttainmentVerdict(
                variant=variant,
                load=load,
                prompts=len(difference.pairs.prompts),
                verdict="no evidence",
                why="",
            )
            reason = _explain_absence(pairing, arms, codes, difference)
            if reason:
                yield _AttainmentEstimate(replace(draft, why=reason), None)
                continue
            assert difference.estimate is not None, "its absence has a reason"
            round_count = int(interval.mask_full_rounds(difference.pairs.by_round).sum())
            reason = bar_reason or verdict_reason.explain_few_rounds(round_count)
            floor = _measure_floor(pairing, codes)
            draft = _add_figures(draft, difference, difference.estimate, floor)
            estimate = None if reason else difference.estimate
            yield _AttainmentEstimate(replace(draft, why=reason), estimate)


def _pool_noise(pairing: RequestPairing, arms: tuple[str, str]) -> RoundNoise:
    """Return the noise that prompts of a round share, pooled over classes and loads."""
    layouts = []
    for code in pairing.known_cells():
        _, round_means = pairing.pairs(arms, code, LIMITS_METRIC).average_requests()
        layouts.append(round_means[1] - round_means[0])
    return interval.pool_round_noise(layouts)


def _compare_shares(
    pairing: RequestPairing, arms: tuple[str, str], codes: Sequence[int], noise: RoundNoise
) -> _ShareDifference:
    """Return by how much the shares of two arms differ in some cells together."""
    pairs = pairing.join_cells(arms, codes, LIMITS_METRIC)
    if not len(pairs.prompts):
        return _ShareDifference(pairs, (math.nan, math.nan), None)
    prompt_means, round_means = pairs.average_requests()
    estimate = interval.estimate_log_ratio(
        prompt_means[1] - prompt_means[0],
        round_means[1] - round_means[0],
        pairs.starts,
        placements=pairs.placements,
        noise=pairing.average_noise(noise, pairs),
        # rounds of a share within limits differ by chance alone too often for their own noise
        has_own_noise=False,
    )
    # LIMITS_METRIC is 1 for a miss
    baseline, variant = (prompt_means.mean(axis=1) - 1).tolist()
    return _ShareDifference(pairs, (baseline, variant), estimate)


def _measure_floor(pairing: RequestPairing, codes: Sequence[int]) -> float | None:
    """Return by how much the baseline's share surely differs from itself; None without a control.

    Of a time the floor is the far end of the interval. One control round of requests that keep a
    limit or miss it has an interval of ten points, by which nothing could be called.
    """
    control = pairing.table.control
    if control is None:
        return None
    arms = (pairing.table.baseline, control)
    estimate = _compare_shares(pairing, arms, codes, interval.NO_NOISE).estimate
    return None if estimate is None else max(estimate.low, -estimate.high, 0.0)


def _explain_absence(
    pairing: RequestPairing,
    arms: tuple[str, str],
    codes: Sequence[int],
    difference: _ShareDifference,
) -> str:
    """Return why the shares cannot be compared; empty if they can."""
    table = pairing.table
    _, unknown_rows = table.limit_masks()
    own_rows = pairing.row_mask() & np.isin(pairing.cell_codes(), codes)
    for arm in arms:
        unknown_count = int((unknown_rows & own_rows & table.arm_mask(arm)).sum())
        if unknown_count:
            answers_text = count_things(unknown_count, "answer")
            return f"{answers_text} of {arm} lack a figure that a limit needs"
    if difference.estimate is None:
        prompts_text = count_things(len(difference.pairs.prompts), "prompt")
        return f"both arms were sent {prompts_text}; an interval needs {FEWEST_PROMPTS}"
    return ""


def _add_figures(
    draft: AttainmentVerdict,
    difference: _ShareDifference,
    estimate: LogRatioEstimate,
    floor: float | None,
) -> AttainmentVerdict:
    return replace(
        draft,
        baseline=difference.shares[0],
        measured=difference.shares[1],
        difference=estimate.log,
        low=estimate.low,
        high=estimate.high,
        p=estimate.p,
        noise_floor=floor,
        evidence=estimate.evidence,
    )


def _explain_word(
    draft: AttainmentVerdict, decision: SpeedUpDecision, adjusted_p: float, margin: float
) -> str:
    """Return why a difference has its word."""
    match decision.ground:
        case "margin":
            return f"the interval lies within {100 * margin:g} points"
        case "chance":
            return f"not significant (p = {adjusted_p:.2g}, corrected)"
        case "floor":
            floor = 100 * (draft.noise_floor or 0.0)
            return f"the baseline differs from itself by {floor:.1f} points or more"
        case _:
            return f"significant (p = {adjusted_p:.2g}, corrected)"
