"""The form of verdict.json: every field of it, what it means and its unit.

Invariant: values alone, no computing; a figure that cannot be known is None and a sentence beside
it says why. A speed-up is above 1 where the variant is better, whichever way the metric points. A
change that an older reader would misread raises the schema, a new field with a default does not.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.manifest import SuiteEntry

SCHEMA = 3
FILE = "verdict.json"
REPORT_FILE = "report.html"
MARGIN = 0.05
"""A speed-up this near to 1 is no difference that anybody would act on; Tandem's own choice,
--margin says another."""

LEVEL = 0.95
"""Of every interval of a report."""

CellWord = Literal["faster", "slower", "same", "mixed", "no evidence"]
"""Of one cell. `same`: the interval lies inside the margin. `mixed`: of E2E, the median says one
thing and the mean or the 90th percentile another; of all classes together, the mean alone."""

VariantFinding = Literal[
    "faster", "slower", "same", "mixed", "no evidence", "not comparable", "void"
]
"""Of a variant, without its reservations. `mixed`: some classes faster, some slower, or a class or
all of them together mixed. `not comparable`: an arm failed requests that the other answered, so
only survivors could be compared; or answers have another length and no time per output token can be
judged. `void`: a control failed, so nothing is concluded."""

AttainmentWord = Literal["more", "fewer", "same", "no evidence"]
"""Of the requests that a variant answers within the goodput limits."""

EvidenceScope = Literal["one-start", "across-starts"]
"""What a word holds for. `one-start`: for the starts of the servers that were measured; what starts
differ by is in no interval. `across-starts`: for the servers whenever they are started."""

OutputFinding = Literal["the same", "same quality", "not shown", "not the same"]
"""Whether the variant gives the baseline's output. `same quality`: the texts are not shown to be
the same, but the variant answers every task as well. `not shown`: nothing compared shows it."""

TailName = Literal["mean", "p90"]
"""What is judged of E2E beside its median."""


class RatioEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A speed-up, a plain number above 0, with its 95 % interval; ends may be None."""

    value: float
    low: float | None = None
    high: float | None = None


class TailSpeedUp(msgspec.Struct, frozen=True, kw_only=True):
    """The mean or the 90th percentile of E2E of a cell, over requests, every prompt counted alike.

    Args:
        statistic: which.
        baseline, measured: of the baseline's and of the variant's requests, in the metric's unit.
        speed_up: baseline / measured, with its interval.
        adjusted_p: of the test that the speed-up is 1, with every test of the report taken into
            account.
        verdict: what may be said of it alone.
    """

    statistic: TailName
    baseline: float
    measured: float
    speed_up: RatioEstimate
    adjusted_p: float
    verdict: CellWord


class CellVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one variant in one class at one load.

    Args:
        variant: the arm that is held against the baseline.
        class_: class of the prompts.
        load: how hard it was asked.
        metric: name in the catalogue (tandem.metrics).
        prompts: prompts that both arms answered; the number of independent units.
        rounds: rounds that both arms were asked in.
        baseline, measured: medians over prompts of each prompt's median, in the metric's unit; of
            baseline and variant.
        speed_up: geometric mean over prompts, with its interval.
        p, adjusted_p: of the test that the speed-up is 1; alone, and with every test of the report
            taken into account.
        noise_floor: a speed-up nearer to 1 than this ratio (above 1) is never called; None without
            a control.
        tails: mean and 90th percentile, of `e2e_ms` in a class alone; empty without an interval.
        evidence: what the verdict holds for.
        opposition: what mean or 90th percentile say against the median, where that changed the
            verdict; else None.
        verdict: what may be said.
        why: why it is this verdict, for a person.
        detectable: the smallest speed-up (above 1) that so many prompts would find four times out
            of five.
        more_prompts, more_rounds: how many in all would decide an undecided cell; None where it is
            decided, or where no number would.
    """

    variant: str
    class_: str = msgspec.field(name="class")
    load: LoadLevel
    metric: str
    prompts: int
    rounds: int
    baseline: float | None = None
    measured: float | None = None
    speed_up: RatioEstimate | None = None
    p: float | None = None
    adjusted_p: float | None = None
    noise_floor: float | None = None
    tails: tuple[TailSpeedUp, ...] = ()
    evidence: EvidenceScope = "one-start"
    opposition: str | None = None
    verdict: CellWord
    why: str
    detectable: float | None = None
    more_prompts: int | None = None
    more_rounds: int | None = None


class MetricSpeedUp(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a variant over all classes at a load; it is not tested, so it has no word.

    Args:
        metric: name in the catalogue.
        baseline, measured: as in CellVerdict.
        speed_up: geometric mean over prompts, with its interval.
    """

    metric: str
    baseline: float | None = None
    measured: float | None = None
    speed_up: RatioEstimate | None = None


class LoadVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A variant over all classes at one load; each prompt counts once.

    Args:
        deciding: of the deciding metric, as a cell of class `all`.
        beside: the other metrics.
    """

    deciding: CellVerdict
    beside: tuple[MetricSpeedUp, ...] = ()


class AttainmentVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """For how many requests a variant keeps the goodput limits, over all classes at one load.

    Args:
        variant: the arm that is held against the baseline.
        load: how hard it was asked.
        prompts: prompts that both arms were sent; the number of independent units.
        baseline, measured: share of requests within every limit, every prompt counted alike; a
            failed request keeps none. Of the baseline and of the variant.
        difference, low, high: measured less baseline, with its 95 % interval; the ends are None
            where there is none.
        p, adjusted_p: of the test that the difference is 0; alone, and with the tests of every
            other variant and load taken into account.
        noise_floor: a difference of no more than this is never called; None without a control.
        evidence: what the verdict holds for.
        verdict: `more` or `fewer` requests within the limits; `same`: the interval lies within the
            margin, in points of 1.
        why: why it is this verdict, for a person.
    """

    variant: str
    load: LoadLevel
    prompts: int
    baseline: float | None = None
    measured: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    adjusted_p: float | None = None
    noise_floor: float | None = None
    evidence: EvidenceScope = "one-start"
    verdict: AttainmentWord
    why: str


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one variant.

    Args:
        variant: its arm.
        verdict: the finding with its reservations, as `faster but not the same output`.
        finding: the verdict without them.
        evidence: `across-starts` where every judged class, and all together, have 6 starts of each
            arm or more.
        output: whether the outputs are shown to be the same.
        sentence: for a manager.
        reasons: what limits it, most important first: controls, errors, output, what intervals
            leave out.
        faster, slower, same, mixed, undecided: classes at loads, as `class at concurrency 4`, by
            the deciding metric.
        metric: the deciding metric: `e2e_ms`, or `tpot_ms` where the answers of the two have other
            lengths.
        requests: of the variant, in the rounds that count.
        speculates: whether the manifest says that the baseline or the variant speculates.
    """

    variant: str
    verdict: str
    finding: VariantFinding
    evidence: EvidenceScope
    output: OutputFinding
    sentence: str
    reasons: tuple[str, ...] = ()
    faster: tuple[str, ...] = ()
    slower: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    mixed: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    metric: str
    requests: int = 0
    speculates: bool = False


class ArmFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute figures of an arm at a load, over all prompts; no control or excluded rounds.

    Args:
        arm: a variant, or the baseline.
        url: its address.
        load: how hard it was asked.
        requests: how many it got.
        requests_per_s: answered requests, by the seconds in which the arm had at least one to
            answer.
        ttft_p50_ms, ttft_p99_ms, tpot_p50_ms, tpot_p99_ms: of answered requests.
        within_limits: requests that kept every --goodput limit; None without limits, or where a
            limited figure is absent.
    """

    arm: str
    url: str
    load: LoadLevel
    requests: int
    requests_per_s: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p99_ms: float | None = None
    within_limits: int | None = None


class NoiseFloor(msgspec.Struct, frozen=True, kw_only=True):
    """What the baseline differs from itself by, in one cell.

    `speed_up` is of the control arm against the baseline; `ratio`, above 1, is the end of its
    interval farther from 1.
    """

    class_: str = msgspec.field(name="class")
    load: LoadLevel
    metric: str
    speed_up: RatioEstimate
    ratio: float


CheckFinding = tuple[Literal["passed", "caution", "failed", "absent"], str]
"""What a check finds: the result and the sentence of a `ControlCheck`."""


CheckName = Literal[
    "baseline against itself",
    "drift",
    "order",
    "warm-up",
    "client load",
    "placement",
    "start",
    "errors",
]


class ControlCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One control.

    Args:
        name: which.
        result: `failed` voids the run; `caution` limits what may be said; `absent`: it could not be
            done.
        sentence: what was seen, with figures, or why it is absent.
    """

    name: CheckName
    result: Literal["passed", "caution", "failed", "absent"]
    sentence: str


class BottleneckRound(msgspec.Struct, frozen=True, kw_only=True):
    """A round in which the measuring machine was the bottleneck, and by what it is known."""

    round: int
    sentence: str


class RunControls(msgspec.Struct, frozen=True, kw_only=True):
    """All controls; `void` says why nothing may be concluded.

    `overall_floors` are those of the deciding metric over all classes, by load.
    """

    checks: tuple[ControlCheck, ...] = ()
    floors: tuple[NoiseFloor, ...] = ()
    overall_floors: tuple[NoiseFloor, ...] = ()
    marked: tuple[BottleneckRound, ...] = ()
    void: tuple[str, ...] = ()

    def floor_ratios(self) -> dict[tuple[str, LoadLevel, str], float]:
        """Return the noise floor of each class, load and metric, as a ratio of 1 or more."""
        return {(floor.class_, floor.load, floor.metric): floor.ratio for floor in self.floors}

    def overall_floor_ratios(self) -> dict[LoadLevel, float]:
        """Return the noise floor over all classes at each load, as a ratio of 1 or more."""
        return {floor.load: floor.ratio for floor in self.overall_floors}

    @property
    def marked_rounds(self) -> tuple[int, ...]:
        """Rounds that are in no figure, because the measuring machine was the bottleneck."""
        return tuple(bottleneck.round for bottleneck in self.marked)

    @property
    def has_replicas(self) -> bool:
        """Whether several servers answer at one address, so that starts cannot be told apart."""
        return any(check.name == "start" and check.result == "caution" for check in self.checks)


class ShareEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """So many of so many, with a 95 % interval of the share."""

    n: int
    of: int
    low: float | None = None
    high: float | None = None

    @property
    def share(self) -> float:
        """The share itself."""
        return self.n / self.of


class HistogramBin(msgspec.Struct, frozen=True, kw_only=True):
    """One bar of a histogram: `first` up to but not `last`, in tokens or characters."""

    first: int
    last: int
    n: int


class DivergenceExample(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt whose outputs differ, side by side.

    `at` is the first place at which they differ, in the unit of Equality.by; the texts are cut
    around it, and both are empty where the run does not show its prompts. `near_tie` says whether
    the log-probabilities of the two choices were nearly equal; None where nobody gave them.
    """

    class_: str = msgspec.field(name="class")
    prompt_id: str
    at: int
    baseline: str
    measured: str
    near_tie: bool | None = None

    @property
    def is_hidden(self) -> bool:
        """Whether its texts are left out: two outputs that differ are never both empty."""
        return not (self.baseline or self.measured)


class ClassEquality(msgspec.Struct, frozen=True, kw_only=True):
    """How many paired outputs of a class are identical; `yardstick` is the baseline's own."""

    class_: str = msgspec.field(name="class")
    identical: ShareEstimate
    yardstick: ShareEstimate | None = None


class OutputEquality(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a variant gives the baseline's output.

    Args:
        variant: its arm.
        by: what was compared: ids of the server, ids of the target's tokenizer over the text, or
            characters.
        result: `the same`: no more pairs differ than the baseline's own; `differs`; `no evidence`:
            too few pairs, no greedy decoding, or no yardstick where some differ.
        sentence: for a person.
        identical: over all classes.
        yardstick: the baseline against itself; None where it was never asked twice.
        classes: by class.
        first_divergence: histogram of the first place of difference.
        near_ties: differing pairs whose two choices were nearly as likely; None where no
            log-probabilities are there.
        lengths: variant's output tokens as a ratio of the baseline's, with interval; far from 1 it
            cuts or rambles.
        garbage: outputs of the variant that the suite's content check refused, and of the baseline.
        failed_pairs: left out, because one side failed.
        silent_pairs: left out, because neither side has any output.
        examples: a few pairs that differ.
    """

    variant: str
    by: Literal["token ids", "the target's tokenizer", "characters"]
    result: Literal["the same", "differs", "no evidence"]
    sentence: str
    identical: ShareEstimate | None = None
    yardstick: ShareEstimate | None = None
    classes: tuple[ClassEquality, ...] = ()
    first_divergence: tuple[HistogramBin, ...] = ()
    near_ties: ShareEstimate | None = None
    lengths: RatioEstimate | None = None
    garbage: ShareEstimate | None = None
    garbage_of_baseline: ShareEstimate | None = None
    failed_pairs: int = 0
    silent_pairs: int = 0
    examples: tuple[DivergenceExample, ...] = ()


class ClassAcceptance(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens a step of the target gave, by arm and class; class `all` is every class.

    Args:
        arm: a variant, or the baseline.
        method: where it comes from.
        acceptance_length: tokens a target step committed, its own included; 1 is no speculation.
        per_position: share of drafts whose token at each position, from 1, was accepted; counters
            only.
        target_steps_per_token: target decode steps for one output token.
        sentence: why a figure is absent, or what limits it.
    """

    arm: str
    class_: str = msgspec.field(name="class")
    method: Literal["counters", "steps of the counters", "tokens per chunk", "absent"]
    acceptance_length: float | None = None
    per_position: tuple[float, ...] = ()
    target_steps_per_token: float | None = None
    sentence: str = ""


class TokenCost(msgspec.Struct, frozen=True, kw_only=True):
    """What good output cost, of one arm at one load.

    Args:
        arm: which.
        load: all classes at this load.
        usd_per_hour: what the run occupied, as --price says; None without it.
        good_tokens: output tokens of requests that succeeded, passed the content check and kept the
            goodput limits.
        busy_s: seconds in which the arm was asked.
        usd_per_million_good_tokens: None without a price.
        sentence: what the price is of, or why there is none.
    """

    arm: str
    load: LoadLevel
    usd_per_hour: float | None = None
    good_tokens: int = 0
    busy_s: float = 0.0
    usd_per_million_good_tokens: float | None = None
    sentence: str = ""


QualityWord = Literal["same", "better", "worse", "no evidence"]


class TaskQuality(msgspec.Struct, frozen=True, kw_only=True):
    """Baseline and variant on the items of a task set.

    Args:
        variant: its arm.
        task: name of the task set.
        items: that both arms answered.
        baseline_right, variant_right: of these.
        only_baseline, only_variant: items that one arm alone had right.
        chance: share of items that guessing has right.
        difference, low, high: share right of the variant less that of the baseline, with its
            interval.
        p: of the exact test that both are right alike.
        word: what may be said.
        why: in a sentence.
        groups: of items that belong together, an item without a group counted as one.
        limits: what the figures take for granted, each in a sentence.
    """

    variant: str
    task: str = ""
    items: int
    baseline_right: int
    variant_right: int
    only_baseline: int
    only_variant: int
    chance: float
    difference: float
    low: float
    high: float
    p: float
    word: QualityWord
    why: str
    groups: int = 0
    limits: tuple[str, ...] = ()


RoutingWord = Literal["saves", "costs", "same", "no evidence"]


class ClassRoute(msgspec.Struct, frozen=True, kw_only=True):
    """Which arm serves a class.

    Args:
        class_: which.
        arm: that serves it.
        prompts: that both arms answered.
        speed_up: of the variant by E2E; None of too few prompts.
    """

    class_: str = msgspec.field(name="class")
    arm: str
    prompts: int
    speed_up: RatioEstimate | None = None


class RoutingSaving(msgspec.Struct, frozen=True, kw_only=True):
    """What routing by class saves against one arm; each round's route is chosen on the others.

    Args:
        against: the arm.
        mean, p90: time of that arm over time of the route, by the mean and the 90th percentile of
            E2E over prompts.
        usd_per_1000_requests: saved, with each arm charged an equal share of the price; None
            without a price, and in an open loop.
        evidence: what the word holds for.
        word: of the mean, decided as every other speed-up.
    """

    against: str
    mean: RatioEstimate
    p90: RatioEstimate
    usd_per_1000_requests: float | None = None
    evidence: EvidenceScope = "one-start"
    word: RoutingWord


class LoadRouting(msgspec.Struct, frozen=True, kw_only=True):
    """Which class to which arm at a load, and what that saves against each arm alone.

    `why` says why no saving was judged; empty where they were.
    """

    variant: str
    load: LoadLevel
    routes: tuple[ClassRoute, ...]
    savings: tuple[RoutingSaving, ...]
    why: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """All of verdict.json.

    Args:
        version: of Tandem.
        run: its id.
        folder: name of its folder, without the path.
        created_utc: when it began.
        simulated: whether an arm is a simulated server; None if a server of LLMPerf did not list
            its models.
        baseline: its arm; variants: the others, without the control.
        suites: what was asked; of a file of one's own, the digest of its bytes too.
        speculating: arms of which the manifest says that they speculate.
        requests, failed: records that were judged, and those of them with an error.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`.
        level: of every interval.
        headlines: one a variant; none where one server was measured.
        cells: every judged metric.
        overall: each variant over all classes, by load.
        arms: absolute figures of each arm, by load.
        goodput: the limits of --goodput, by metric; empty without.
        attainment: of these limits, by variant and load; empty without.
        controls, equality, acceptance, cost: as their names say.
        quality: of each task set that the arms were asked; empty if none was.
        routing: of each variant at each load; empty where the run is void.
        notes: what a reader must know beside.
        acceptance_notes: those of the notes that are about acceptance.
        recompute: commands that make this file again.
    """

    schema: int = SCHEMA
    version: str
    run: str
    folder: str
    created_utc: str
    simulated: bool | None
    baseline: str
    variants: tuple[str, ...]
    suites: tuple[SuiteEntry, ...] = ()
    speculating: tuple[str, ...] = ()
    requests: int
    failed: int
    margin: float
    level: float = LEVEL
    headlines: tuple[Headline, ...]
    cells: tuple[CellVerdict, ...]
    overall: tuple[LoadVerdict, ...] = ()
    arms: tuple[ArmFigures, ...] = ()
    goodput: dict[str, float] = {}
    attainment: tuple[AttainmentVerdict, ...] = ()
    controls: RunControls
    equality: tuple[OutputEquality, ...] = ()
    quality: tuple[TaskQuality, ...] = ()
    acceptance: tuple[ClassAcceptance, ...] = ()
    cost: tuple[TokenCost, ...] = ()
    routing: tuple[LoadRouting, ...] = ()
    notes: tuple[str, ...] = ()
    acceptance_notes: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
