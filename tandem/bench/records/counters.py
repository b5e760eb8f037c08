"""The server's counters: its /metrics page before and after a turn, and what they differ by.

Invariant: a difference is never negative: counters that fell or restarted mean that the server
restarted, and the pair is named and dropped. A figure is given only if the page has its counters;
else a reason is given.

What the counters of a version mean: `tandem.bench.records.counter_names`. The forms differ in what
counts a step:

- V1, live: spec_decode_num_drafts and the related counters count. Acceptance length = 1 + accepted
  / drafts.
- V1, flat (NxD Inference below the plug-in drafts inside its compiled graph, so the scheduler sees
  no drafts): inter_token_latency_seconds, to 0.10.1 time_per_output_token_seconds, is observed once
  an engine step of a request, so decode steps = its count, and tokens a step = (generation_tokens -
  time_to_first_token_seconds_count) / that count.
- V0, flat: generation_tokens counts one a step of a request, including prefill's last step; the
  server adds the tokens to request_generation_tokens_sum when a request ends. Tokens / steps
  without each answer's first token, which no draft brought, is the acceptance length. Both scrapes
  must see an idle server.

The arm's runtime decides the engine, else a label or a name that one engine alone has. On a page
without either, each form is held against its own counters, and the forms that are left must agree.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from tandem.bench.plan.schedule import TurnKey
from tandem.bench.records.counter_names import (
    ACCEPTED_BY_POSITION,
    ENGINE_LABELS,
    ENGINE_NAMES,
    FORMS,
    SAMPLES,
    CounterForm,
    EngineName,
)
from tandem.bench.records.json_file import read_json_lines
from tandem.bench.records.manifest import ManifestArm, Speculation
from tandem.errors import InputError
from tandem.metrics import acceptance_position

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.samples import Sample

FILE = "counters.jsonl"

_STATES = {  # not counters: their difference means nothing
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "began_s": "process_start_time_seconds",
}
# 1.0 where the page shows the engine
_ENGINE_STATES: dict[EngineName, str] = {"V0": "engine_v0", "V1": "engine_v1"}
# 1.0 where the page tells models apart, and the counters are those of the arm's model
OWN_MODEL = "own_model"
_MODEL_LABEL = "model_name"
_STATE_KEYS = {*_STATES, *_ENGINE_STATES.values(), OWN_MODEL}
# two counts of one thing, or two forms of one figure, differ by at most this factor
_TOLERANCE = 1.01
_PREFIX = "vllm:"
_CREATED = "vllm:generation_tokens_created"  # start of the process, if the page does not report it
_POSITION_KEY = "accepted_at_"  # then the position, from 1
_POSITION = re.compile(f"{_POSITION_KEY}([1-9][0-9]{{0,3}})")
_MOST_CLOCK_STEPS_S = 2.0  # that a start time of one process moves by
_CLOCK_STEP_ROUNDING_S = 0.005
_NO_STEPS = "the page counts no steps or no tokens"
_PLAIN_TOKENS_PER_STEP = 1.001  # plain decoding commits fewer tokens a step


class AskedWork(NamedTuple):
    """Requests that a server got, and the most tokens that they allowed."""

    requests: int
    tokens: int


class MetricsScrape(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of an arm's /metrics.

    Args:
        at_s: time in seconds on the records' monotonic clock.
        class_: class of the turn's prompts; None if a turn mixes classes.
        when: before the turn's first request or after its last.
        counters: result of `parse_page`; None if the page could not be read, and only its states if
            the page counts another arm too.
        error: the reason, for a person.
        utc_s: time in seconds of Unix time, by the clock of the measuring machine.
        asked_requests, asked_tokens: requests of this run that the server got since its last
            scrape, and the most tokens that they allowed; None of the first scrape of a process,
            because a warm-up and others came before.
    """

    at_s: float
    arm: str
    class_: str | None = msgspec.field(name="class", default=None)
    concurrency: int | None = None
    rate_per_s: float | None = None
    round: int = 0
    slot: int = 0
    when: Literal["before", "after"]
    counters: dict[str, float] | None = None
    error: str | None = None
    utc_s: float | None = None
    asked_requests: int | None = None
    asked_tokens: int | None = None

    def drop_counters(self, reason: str) -> MetricsScrape:
        """Return the scrape with the states of its server alone, and the reason."""
        states = {key: value for key, value in (self.counters or {}).items() if key in _STATE_KEYS}
        return msgspec.structs.replace(self, counters=states, error=reason)

    @property
    def turn(self) -> TurnKey:
        """The turn of the scrape."""
        return TurnKey(
            self.arm, self.class_, self.concurrency, self.rate_per_s, self.round, self.slot
        )

    @property
    def began_s(self) -> float | None:
        """Start time of the server's process in seconds of Unix time; None if the page has none."""
        return (self.counters or {}).get("began_s")


@dataclass(frozen=True)
class CounterChange:
    """Growth of the counters between two scrapes, and the state at both.

    Args:
        counts: growth by key of `parse_page`.
        is_idle: whether no request ran at either scrape.
        engine: the engine that the page shows; None if it shows none.
    """

    counts: Mapping[str, float]
    is_idle: bool = True
    engine: EngineName | None = None

    def __add__(self, addend: CounterChange) -> CounterChange:
        """Return the sum of two turns; it lacks each counter that one turn lacks."""
        shared = self.counts.keys() & addend.counts.keys()
        return CounterChange(
            {key: self.counts[key] + addend.counts[key] for key in shared},
            is_idle=self.is_idle and addend.is_idle,
            engine=self.engine if self.engine == addend.engine else None,
        )


@dataclass(frozen=True)
class AcceptanceRates:
    """Figures of one change, by metric name, and the reasons for absent figures."""

    values: Mapping[str, float] = field(default_factory=dict)
    absence_reasons: tuple[str, ...] = ()
    is_indirect: bool = False


def parse_page(page: str, models: Collection[str] = ()) -> dict[str, float]:
    """Return the needed counters of a Prometheus page, summed over labels such as engines.

    Args:
        page: the body of /metrics.
        models: names of the arm's model; counters of other models are left out if the page has one
            of these names, else all models are summed.

    Raises:
        InputError: the page is no Prometheus text, e.g. HTML.
    """
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - import takes 0.1 s

    samples: dict[str, float] = {}
    engines = set[EngineName]()
    try:
        families = list(text_string_to_metric_families(page))
        own_models = _list_models(families) & set(models)
        for family in families:
            name_engine = ENGINE_NAMES.get(family.name.removesuffix("_total"))
            engines |= {name_engine} if name_engine is not None else set()
            for sample in family.samples:
                is_foreign = own_models and sample.labels.get(_MODEL_LABEL) not in own_models | {
                    None
                }
                if math.isfinite(sample.value) and not is_foreign:
                    engines |= _find_engines(sample)
                    _add_sample(samples, sample)
    except (ValueError, IndexError, KeyError) as error:
        problem = f"the page is no Prometheus text: {error}"
        change = "see that no proxy answers for the server"
        raise InputError(problem, where="/metrics", change=change) from error

    counters = {key: samples[name] for key, name in (SAMPLES | _STATES).items() if name in samples}
    if _CREATED in samples:
        counters.setdefault("began_s", samples[_CREATED])
    if len(engines) == 1:
        counters[_ENGINE_STATES[engines.pop()]] = 1.0
    if own_models:
        counters[OWN_MODEL] = 1.0
    return counters | {
        name: value for name, value in samples.items() if name.startswith(_POSITION_KEY)
    }


def _list_models(families: Sequence[Metric]) -> set[str]:
    """Return the models by which the page counts."""
    return {
        sample.labels[_MODEL_LABEL]
        for family in families
        for sample in family.samples
        if _MODEL_LABEL in sample.labels
    }


def _find_engines(sample: Sample) -> set[EngineName]:
    """Return the engines that alone have a label of the sample."""
    if not sample.name.startswith(_PREFIX):
        return set()
    return {engine for label, engine in ENGINE_LABELS.items() if label in sample.labels}


def _add_sample(samples: dict[str, float], sample: Sample) -> None:
    """Add a sample to those of its name; the start of a process is the latest one."""
    name = sample.name
    if name == ACCEPTED_BY_POSITION:
        name = f"{_POSITION_KEY}{int(sample.labels['position']) + 1}"
    add = max if name.endswith("_created") else operator.add
    samples[name] = add(samples.get(name, 0.0), sample.value)


def is_same_begin(began_s: float, other_began_s: float) -> bool:
    """Return whether two start times, in seconds of Unix time, are of one process.

    A page may compute its start time anew from the boot time, which Linux gives in whole seconds
    and moves as the clock is set (client_golang issue 289, procfs proc_stat.go). Two processes
    seldom begin whole seconds apart.
    """
    distance_s = abs(began_s - other_began_s)
    return (
        distance_s <= _MOST_CLOCK_STEPS_S
        and abs(distance_s - round(distance_s)) <= _CLOCK_STEP_ROUNDING_S
    )


def compute_difference(
    before: Mapping[str, float], after: Mapping[str, float]
) -> CounterChange | str:
    """Return the growth of the counters, or the reason why the pair gives none.

    Args:
        before, after: results of `parse_page`; a counter absent from `before` started at 0.
    """
    has_begins = "began_s" in before and "began_s" in after
    if has_begins and not is_same_begin(before["began_s"], after["began_s"]):
        return "the server restarted between the two scrapes"
    counts = {
        key: value - before.get(key, 0.0) for key, value in after.items() if key not in _STATE_KEYS
    }
    decreasing_keys = sorted(key for key, value in counts.items() if value < 0)
    missing_keys = sorted(key for key in before if key not in after and key not in _STATE_KEYS)
    if decreasing_keys or missing_keys:
        return (
            "the server restarted between the two scrapes"
            f" ({', '.join(decreasing_keys or missing_keys)} fell)"
        )
    engine = next(
        (engine for engine, key in _ENGINE_STATES.items() if key in before and key in after), None
    )
    return CounterChange(
        counts, is_idle=not before.get("running") and not after.get("running"), engine=engine
    )


def compute_rates(
    change: CounterChange, arm: ManifestArm | None = None, *, failure_count: int = 0
) -> AcceptanceRates:
    """Return acceptance and steps of one change.

    Args:
        change: the difference over one turn, or a sum of several.
        arm: its runtime decides the engine (nxdi-v0: V0; None: the page shows it), and its window
            limits the tokens of one step. No arm: the page alone decides.
        failure_count: failed requests of the turn: V0 counts their steps and not their tokens.
    """
    counts = change.counts
    is_whole = change.is_idle and not failure_count
    form, reason = _choose_form(change, arm.runtime if arm else None, is_whole=is_whole)
    if form is not None and form.counts_steps_as_tokens and not is_whole:
        reason = "an answer's tokens are counted when it ends, and some did not end in the turn"
        return AcceptanceRates(absence_reasons=(reason,))
    steps = _read_form(counts, form) if form is not None else StepCounts()
    reasons = _doubt_steps(steps) if form is not None else [reason]
    values = {} if reasons else {"target_steps_per_token": steps.steps / steps.tokens}
    speculation = arm.speculation if arm else None
    if counts.get("drafts"):
        window = speculation.num_speculative_tokens if speculation else None
        return _compute_live_rates(counts, values, reasons, window)
    if speculation and speculation.method is None:
        reasons.append("it does not speculate")
    elif not reasons and steps.steps <= steps.first_tokens:
        reasons.append("no step after a first token was counted")
    if reasons:
        return AcceptanceRates(values, tuple(reasons))
    return _compute_flat_rates(steps, values, speculation)


def _compute_flat_rates(
    steps: StepCounts, values: Mapping[str, float], speculation: Speculation | None
) -> AcceptanceRates:
    """Return the rates of counters that count no drafts: tokens of a step after the first."""
    tokens_per_step = (steps.tokens - steps.first_tokens) / (steps.steps - steps.first_tokens)
    window = speculation.num_speculative_tokens if speculation else None
    if window and tokens_per_step > window + 1:
        reason = f"{tokens_per_step:.2f} tokens a step is more than a window of {window} can commit"
        return AcceptanceRates(absence_reasons=(reason,))
    if not speculation and tokens_per_step < _PLAIN_TOKENS_PER_STEP:
        reason = (
            "no draft was counted and each step gave one token: nothing says that it speculates"
        )
        return AcceptanceRates(values, (reason,))
    return AcceptanceRates({**values, "acceptance_length": tokens_per_step}, is_indirect=True)


class StepCounts(NamedTuple):
    """Steps of requests, their tokens, and first tokens, each from prefill's last step."""

    steps: float = 0.0
    tokens: float = 0.0
    first_tokens: float = 0.0


def _doubt_steps(counts: StepCounts) -> list[str]:
    """Return the reasons why steps and tokens give no figure."""
    if not counts.tokens:
        return [_NO_STEPS]
    return ["more steps than tokens were counted"] if counts.steps > counts.tokens else []


def _read_form(counts: Mapping[str, float], form: CounterForm) -> StepCounts:
    steps, tokens, first_tokens = (counts[key] for key in form.keys)
    prefill_steps = 0.0 if form.counts_steps_as_tokens else first_tokens
    return StepCounts(steps + prefill_steps, tokens, first_tokens)


def _choose_form(
    change: CounterChange, runtime: str | None, *, is_whole: bool
) -> tuple[CounterForm, str] | tuple[None, str]:
    """Return the form of the counters; without one, the reason.

    Args:
        change: of one turn, or a sum of several.
        runtime: of the arm; None if it is not known.
        is_whole: whether every answer of the change began and ended in it, so that its counters can
            be compared.
    """
    counts = change.counts
    engine = change.engine
    if runtime is not None:
        engine = "V0" if runtime == "nxdi-v0" else "V1"
    forms = [
        form for form in FORMS if engine in {None, form.engine} and counts.keys() >= {*form.keys}
    ]
    if engine is None and is_whole:
        forms = [form for form in forms if not _contradicts_itself(counts, form)]
    if not forms:
        return None, _NO_STEPS
    form_counts = [_read_form(counts, form) for form in forms]
    shares = [entry.steps / entry.tokens if entry.tokens else 0.0 for entry in form_counts]
    if max(shares) > _TOLERANCE * min(shares):
        names = " and ".join(f"{form.engine} {form.versions}" for form in forms)
        return None, f"its counters fit the forms of vLLM {names}, which disagree"
    return forms[0], ""


def _contradicts_itself(counts: Mapping[str, float], form: CounterForm) -> bool:
    """Return whether other counters of the page show that it has not this form.

    V1 counts each token when it comes, so its finished requests have no more. V0 counts a step as a
    token, so both counters of its steps are equal.
    """
    generated = counts["generation_tokens"]
    finished = counts.get("request_tokens_sum", 0.0)
    if not form.counts_steps_as_tokens:
        return finished > _TOLERANCE * generated
    step_times = counts.get("step_times", counts.get("decode_steps"))
    if step_times is None or "first_tokens" not in counts:
        return False
    return generated > _TOLERANCE * (step_times + counts["first_tokens"])


def _compute_live_rates(
    counts: Mapping[str, float], values: dict[str, float], reasons: list[str], window: int | None
) -> AcceptanceRates:
    drafts, draft_tokens, accepted_tokens = (
        counts.get(key, 0.0) for key in ("drafts", "draft_tokens", "accepted_tokens")
    )
    if accepted_tokens > draft_tokens or (window and draft_tokens > drafts * window):
        return AcceptanceRates(values, (*reasons, "the draft counters contradict each other"))
    values |= {"acceptance_length": 1 + accepted_tokens / drafts}
    if draft_tokens:
        values["draft_acceptance_rate"] = accepted_tokens / draft_tokens
    positions = sorted(int(match[1]) for key in counts if (match := _POSITION.fullmatch(key)))
    values |= {
        acceptance_position(position): counts[f"{_POSITION_KEY}{position}"] / drafts
        for position in positions
    }
    return AcceptanceRates(values, tuple(reasons))


def read_scrapes(path: Path) -> Iterator[MetricsScrape]:
    """Yield the scrapes of `path`; none if the file does not exist. A torn last line is skipped.

    Raises:
        InputError: a line is no scrape, or the file cannot be read.
    """
    if path.exists():
        change = "restore it from a copy, or remove it: acceptance is then absent"
        yield from read_json_lines(path, MetricsScrape, label="the counters", change=change)


def pair_scrapes(
    scrapes: Iterator[MetricsScrape], dropped_arms: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[tuple[TurnKey, CounterChange]], list[str]]:
    """Pair the scrapes before and after each turn.

    Args:
        scrapes: in the order of their times.
        dropped_arms: arms whose counters are dropped, each with the reason.

    Returns:
        the change of each turn that has one, and a sentence for each arm and reason of dropped
            turns.
    """
    scrapes_before: dict[TurnKey, MetricsScrape] = {}
    turn_changes: list[tuple[TurnKey, CounterChange]] = []
    drops = Counter[tuple[str, str]]()
    for scrape in scrapes:
        if scrape.when == "before":
            scrapes_before[scrape.turn] = scrape
            continue
        before = scrapes_before.pop(scrape.turn, None)
        change = dropped_arms.get(scrape.arm) or _compute_change(before, scrape)
        if isinstance(change, str):
            drops[scrape.arm, change] += 1
        else:
            turn_changes.append((scrape.turn, change))
    drops.update((turn.arm, "there is no scrape after it") for turn in scrapes_before)
    return turn_changes, [
        f"{arm}: counters are dropped (turns: {number}): {reason}"
        for (arm, reason), number in drops.items()
    ]


def _compute_change(before: MetricsScrape | None, after: MetricsScrape) -> CounterChange | str:
    """Return what the counters grew by in a turn, or the reason why that is not known."""
    if before is None:
        return "there is no scrape before it"
    reason = before.error or after.error
    if before.counters is None or after.counters is None:
        return f"/metrics could not be had ({reason or 'no reason given'})"
    if reason is not None:
        return reason
    return compute_difference(before.counters, after.counters)
