"""The output of `tandem bench compare --json`: every field, its meaning and its unit.

Invariant: values alone. An unknown figure is None, and a sentence next to it says why. A speed-up
is above 1 if the later run is better.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.schema import LEVEL, CellWord, RatioEstimate, ShareEstimate

SCHEMA = 2


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two runs.

    Args:
        run: its id.
        folder: its folder, without the path.
        created_utc: when it began.
        requests, failed: of the arms that are compared.
        simulated: whether an arm is a simulated server; None if a server of LLMPerf did not list
            its models.
        void: why nothing may be concluded from the run; empty otherwise.
    """

    run: str
    folder: str
    created_utc: str
    requests: int
    failed: int
    simulated: bool | None
    void: tuple[str, ...] = ()


class ManifestDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference of the manifests; `blocks`: it is such that no row may be called."""

    what: str
    before: str
    after: str
    blocks: bool = False


class ComparisonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one arm in one class at one load, in both runs.

    Args:
        kind: `figure`: the arm's own figure. `gain`: its speed-up over the baseline of its own run.
        arm, class_, load, metric: which.
        prompts: answered in both runs (of a gain: by both arms in both); the number of independent
            units.
        before, after: medians over prompts in the metric's unit; of a gain the two speed-ups.
        speed_up: of the later run over the earlier, with its interval; of a gain the ratio of the
            two speed-ups.
        p, adjusted_p: of the test that it is 1; alone, and with every row taken into account
            (Holm).
        noise_floor: the product of both runs' floors, above 1; None where one of them has none.
        verdict: the word for the later run.
        why: the reason, in a sentence.
    """

    kind: Literal["figure", "gain"]
    arm: str
    class_: str = msgspec.field(name="class")
    load: LoadLevel
    metric: str
    prompts: int
    before: float | None = None
    after: float | None = None
    speed_up: RatioEstimate | None = None
    p: float | None = None
    adjusted_p: float | None = None
    noise_floor: float | None = None
    verdict: CellWord
    why: str


class OutputAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts at a load whose last answer is the same in both runs, of those answered twice."""

    arm: str
    identical: ShareEstimate


DriftWord = Literal["higher", "lower", "same", "no evidence"]


class AcceptanceDrift(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per target step in both runs, of an arm over all classes.

    Args:
        arm: which.
        before, after: acceptance length, the target's own token included.
        methods: where each comes from.
        ratio: later over earlier, with its interval over prompts; None where streams do not show
            steps.
        word: the word for the later run.
    """

    arm: str
    before: float | None
    after: float | None
    methods: tuple[str, str]
    ratio: RatioEstimate | None = None
    word: DriftWord


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison of two runs.

    Args:
        before, after: the runs.
        differences: between their manifests.
        rows: every compared figure and gain.
        overall: those over all classes, by E2E; empty at a load of one class. They have a share of
            the level of their own, as in a verdict.
        outputs: of each arm; only where both runs decoded greedily.
        acceptance: of each arm that speculates.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`.
        level: of every interval.
        notes: what a reader must know.
    """

    schema: int = SCHEMA
    before: RunSummary
    after: RunSummary
    differences: tuple[ManifestDifference, ...]
    rows: tuple[ComparisonRow, ...]
    overall: tuple[ComparisonRow, ...] = ()
    outputs: tuple[OutputAgreement, ...] = ()
    acceptance: tuple[AcceptanceDrift, ...] = ()
    margin: float
    level: float = LEVEL
    notes: tuple[str, ...] = ()


class RunSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Three runs or more: each later one against the first.

    Args:
        comparisons: in the order of time.
        answer: whether acceptance drifted, in a sentence.
    """

    schema: int = SCHEMA
    comparisons: tuple[RunComparison, ...]
    answer: str
