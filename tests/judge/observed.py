"""Observations as the tests of verdicts need them, without files: from a few stated requests, or
drawn at a true ratio.

(A module called `made` makes artifacts elsewhere in the tests, and no two may share a name.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import measured
import numpy as np

from tandem.bench.figures.request_table import PromptKey, RequestTable, encode_names
from tandem.bench.plan.schedule import FEWEST_ROUNDS, LoadLevel
from tandem.bench.records import manifest
from tandem.judge.cells import judge_speed_ups
from tandem.judge.headline import build_headlines
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import OutputEquality, RunControls

NOWHERE = Path("made-without-a-folder")
MARGIN = 0.05
STEADY = (1000.0, 900.0, 800.0, 1100.0, 950.0, 700.0)
JITTER = (1.003, 0.998, 1.001, 0.997, 1.002, 0.999)
EQUAL = (
    OutputEquality(
        variant="spec", by="characters", result="the same", sentence="Outputs: the same."
    ),
)


def judge_cells(seen, controls, **options):
    """The verdicts on the cells."""
    return judge_speed_ups(RequestPairing(seen, controls.marked_rounds), controls, **options).cells


def headline(seen, controls=RunControls(), equal=EQUAL, quality=()):  # noqa: B008 - frozen
    """The headline of the only variant."""
    pairing = RequestPairing(seen, controls.marked_rounds)
    speed_ups = judge_speed_ups(pairing, controls, margin=MARGIN)
    (verdict_line,) = build_headlines(
        pairing, speed_ups, controls, equal, margin=MARGIN, quality=quality
    )
    return verdict_line


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request; tpot_ms and output_tokens_per_s follow from e2e_ms, ttft_ms and tokens unless
    `figures` says other.

    An error empties every figure. `text` and `ids` are what is digested; an empty one has no
    digest.
    """

    arm: str = "base"
    class_: str = "repeat"
    prompt: str = "p0"
    suite: str = "real"
    concurrency: int | None = 4
    rate_per_s: float | None = None
    round: int = 0
    slot: int = 0
    repeat: int = 0
    placement: str | None = None
    start: str | None = None
    e2e_ms: float = 1000.0
    ttft_ms: float = 100.0
    tokens: float = 64.0
    error: str | None = None
    content: str | None = "ok"
    text: str = "a b c"
    ids: str = ""
    cut: bool = False
    start_s: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


def observed(
    requests: Sequence[Asked], *, arms: Sequence[str] = ("base", "spec"), **changes: Any
) -> RequestTable:
    """All that stands in `requests`, in their order, asked one after another.

    Args:
        requests: what was asked.
        arms: that the manifest states, the baseline first; `base#2` needs no naming.
        changes: of the manifest.
    """
    run = _run(arms, {request.class_: None for request in requests}, **changes)
    at = count()
    starts_s = [
        request.start_s if request.start_s is not None else 1000.0 + next(at)
        for request in requests
    ]
    figures = [_figures(request) for request in requests]
    arm_names = [arm.name for arm in run.arms]
    arms, arm = encode_names(
        [request.arm for request in requests], [*arm_names, f"{arm_names[0]}#2"], arm_names
    )
    classes, class_ = encode_names(
        [request.class_ for request in requests],
        [name for suite in run.suites for name in suite.classes],
    )
    loads, load = encode_names([(entry.concurrency, entry.rate_per_s) for entry in requests])
    prompts, prompt = encode_names([(request.suite, request.prompt) for request in requests])
    starts, start = encode_names([request.start for request in requests])
    placements, placement = encode_names([request.placement for request in requests])
    errors, error = encode_names([request.error for request in requests])
    contents, content = encode_names([request.content for request in requests])
    return RequestTable(
        folder=NOWHERE,
        run=run,
        arms=arms,
        classes=classes,
        loads=tuple(LoadLevel(concurrency=number, rate_per_s=rate) for number, rate in loads),
        prompts=tuple(PromptKey(*key) for key in prompts),
        starts=starts,
        placements=placements,
        errors=errors,
        contents=contents,
        arm=arm,
        class_=class_,
        load=load,
        prompt=prompt,
        start=start,
        placement=placement,
        error=error,
        content=content,
        failed=np.array([request.error is not None for request in requests], bool),
        line_offsets=np.arange(len(requests), dtype=np.intp),
        round=np.array([request.round for request in requests], np.intp),
        slot=np.array([request.slot for request in requests], np.intp),
        repeat=np.array([request.repeat for request in requests], np.intp),
        start_s=np.array(starts_s, float),
        end_s=np.array(
            [at + request.e2e_ms / 1e3 for at, request in zip(starts_s, requests, strict=True)],
            float,
        ),
        tokens=np.array(
            [np.nan if request.error else request.tokens for request in requests], float
        ),
        figures={name: np.array([figure[name] for figure in figures], float) for name in _NAMES},
        hit_token_limit=np.array([request.cut for request in requests], bool),
        output=_digests([request.text for request in requests]),
        ids=_digests([request.ids for request in requests]),
    )


def table(
    fields: Mapping[str, Mapping[str, Sequence[float]]], *, rounds: int = FEWEST_ROUNDS, **same: Any
) -> RequestTable:
    """One request a number and round: `{"repeat": {"base": [1000, 900], "spec": [500, 450]}}` is
    e2e_ms of p0 and p1.

    `same` are fields of every request. A NaN leaves the request out.
    """
    arms = tuple(dict.fromkeys(arm for by_arm in fields.values() for arm in by_arm))
    requests = [
        Asked(
            arm=arm, class_=class_, prompt=f"{class_}-{index}", e2e_ms=e2e_ms, round=number, **same
        )
        for number in range(rounds)
        for class_, by_arm in fields.items()
        for arm, numbers in by_arm.items()
        for index, e2e_ms in enumerate(numbers)
        if not np.isnan(e2e_ms)
    ]
    return observed(requests, arms=tuple(arm for arm in arms if not arm.endswith("#2")))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """How requests are drawn; every number is what is true of the servers.

    Args:
        ratio: speed-up of each arm in each class: `{"spec": {"repeat": 1.5, "chat": 1.0}}`; an arm
            `base#2` of ratio 1 is the control. The same for ttft_ms and the time of a token.
        prompts: of each class. rounds: as in a plan. slots: 2 asks each arm twice a round,
            as A B B A does.
        spread: sd over prompts of the log speed-up; that of the log time itself is 0.4.
        noise: sd over requests of the log time.
        drift: sd over rounds of a log factor that both arms share. start: sd over starts of one
            arm's own; with it each round of an arm is another start, and the requests say so where
            `told`.
    """

    ratio: Mapping[str, Mapping[str, float]]
    prompts: int = 12
    rounds: int = FEWEST_ROUNDS
    slots: int = 2
    spread: float = 0.1
    noise: float = 0.03
    drift: float = 0.0
    start: float = 0.0
    told: bool = True
    loads: tuple[int, ...] = (4,)
    tokens: int = 64


def drawn(truth: Truth, seed: int = 0) -> RequestTable:
    """Requests of `base` and the arms of `truth.ratio`, drawn at those ratios."""
    rng = np.random.default_rng(seed)
    arms = ["base", *truth.ratio]
    classes = list(dict.fromkeys(name for by_class in truth.ratio.values() for name in by_class))
    shape = (
        len(arms),
        len(classes),
        len(truth.loads),
        truth.rounds,
        truth.slots,
        truth.prompts,
    )
    arm, class_, _, round_, _, prompt = (axis.ravel() for axis in np.indices(shape))
    by_arm = np.array(
        [[truth.ratio.get(name, {}).get(entry, 1.0) for entry in classes] for name in arms]
    )
    gains = (
        np.log(by_arm)[:, :, None]
        + rng.normal(0, truth.spread, (len(arms), len(classes), truth.prompts))
        * (np.array([name != "base" and not name.endswith("#2") for name in arms])[:, None, None])
    )
    lengths = rng.normal(7, 0.4, (len(classes), truth.prompts))
    drift = rng.normal(0, truth.drift, truth.rounds)
    start_effects = rng.normal(0, truth.start, (len(arms), truth.rounds))
    log_ms = (
        lengths[class_, prompt]
        - gains[arm, class_, prompt]
        + drift[round_]
        + start_effects[arm, round_]
    )
    log_ms = log_ms + rng.normal(0, truth.noise, len(log_ms))
    ttft_log_ms = log_ms + rng.normal(0, truth.noise, len(log_ms))
    is_told = truth.told and truth.start > 0
    requests = [
        Asked(
            arm=arms[arm_at],
            class_=classes[class_at],
            prompt=f"{classes[class_at]}-{prompt_at}",
            concurrency=truth.loads[load_at],
            round=number,
            slot=slot,
            start=f"{arms[arm_at]}@{number}" if is_told else None,
            e2e_ms=np.exp(log),
            ttft_ms=0.05 * np.exp(ttft_log),
            tokens=truth.tokens,
        )
        for (arm_at, class_at, load_at, number, slot, prompt_at), log, ttft_log in zip(
            np.ndindex(shape), log_ms, ttft_log_ms, strict=True
        )
    ]
    return observed(
        requests, arms=[name for name in arms if not name.endswith("#2")], rounds=truth.rounds
    )


def with_figures(seen: RequestTable, **figures: Any) -> RequestTable:
    """The same with other figures."""
    return replace(seen, figures={**seen.figures, **figures})


_NAMES = (
    "e2e_ms",
    "ttft_ms",
    "tpot_ms",
    "output_tokens_per_s",
    "completion_tokens",
    "tokens_per_chunk",
)


def _run(
    arms: Sequence[str], classes: Mapping[str, None] | Sequence[str], **changes: Any
) -> manifest.RunManifest:
    fields = {
        "arms": tuple(
            measured.arm(name, role="variant" if place else "baseline")
            for place, name in enumerate(arms)
        ),
        "suites": (
            manifest.SuiteEntry(name="real", sha256="0" * 64, prompts=24, classes=tuple(classes)),
        ),
    }
    return measured.run_manifest(**{**fields, **changes})


def _figures(request: Asked) -> dict[str, float]:
    if request.error is not None:
        return dict.fromkeys(_NAMES, np.nan)
    return {
        "e2e_ms": request.e2e_ms,
        "ttft_ms": request.ttft_ms,
        "tpot_ms": (
            (request.e2e_ms - request.ttft_ms) / (request.tokens - 1)
            if request.tokens > 1
            else np.nan
        ),
        "output_tokens_per_s": (
            1e3 * request.tokens / request.e2e_ms if request.e2e_ms > 0 else np.nan
        ),
        "completion_tokens": request.tokens,
        "tokens_per_chunk": np.nan,
        **request.figures,
    }


def _digests(texts: Sequence[str]) -> Any:
    digests = [
        hashlib.blake2b(text.encode(), digest_size=8).digest() if text else bytes(8)
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), np.uint64)
