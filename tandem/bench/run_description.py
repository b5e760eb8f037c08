"""What a run says of itself: the plan before it starts, its manifest, and the marks of its end.

Invariant: the manifest is made from the settings and from what servers answered, before anything is measured.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import time
from collections.abc import Iterator, Sequence

import msgspec

from tandem.bench import host, manifest
from tandem.bench.estimate import FIRST_TOKEN_S, TOKEN_S, format_duration
from tandem.bench.plan import PlanTurn, RunPlan
from tandem.bench.probe import ProbeResult
from tandem.bench.schedule import FEWEST_ROUNDS
from tandem.bench.settings import RunSettings
from tandem.bench.simulation import combine_simulated

HOUR_S = 3600
MAX_LISTED_CONTROLS = 4  # control rounds


def describe_plan(settings: RunSettings, plan: RunPlan, expected_s: float) -> Iterator[str]:
    """Yield what will be done, how long it will take and what that costs."""
    loads = ", ".join(dict.fromkeys(str(block.load) for block in plan.blocks))
    prompts = len({(entry.suite, entry.prompt.id) for block in plan.blocks for entry in block.entries})
    classes = len({entry.prompt.class_ for block in plan.blocks for entry in block.entries})
    rounds = f"rounds for {format_duration(settings.duration_s or 0)}"
    if plan.rounds is not None:
        rounds = _count_noun(plan.rounds, "round")
    if plan.control_rounds:
        prefix = "up to " if plan.rounds is None else ""
        rounds += f" and {prefix}{_count_noun(plan.control_rounds, 'control round')}"
    kinds = f"{_count_noun(classes, 'class', 'es')}, {_count_noun(prompts, 'prompt')}, {loads}"
    repeats = f" of {plan.repeats} repeats" if plan.repeats > 1 else ""
    yield f"plan: {', '.join(plan.arms)}; {kinds}; {rounds}{repeats}, {plan.schedule}"
    total = "" if plan.request_count is None else f"{plan.request_count} requests in all, "
    yield f"  {total}{plan.requests_per_round} a round; the first block goes {_describe_order(plan)}"
    yield from _describe_control(plan)
    basis = "as asked"
    if plan.rounds is not None:
        most_tokens = max(entry.max_tokens for block in plan.blocks for entry in block.entries)
        basis = (
            f"{FIRST_TOKEN_S} s + {1000 * TOKEN_S:.0f} ms a token, answers as long as allowed, at most {most_tokens} "
            "tokens; told anew after the warm-up"
        )
    yield f"  about {expected_s / 60:.1f} min{_describe_cost(settings, expected_s)} ({basis})"
    yield from (f"  note: {note}" for suite in settings.suites for note in suite.notes)
    if len(plan.arms) > 1 and (plan.rounds is None or plan.rounds < FEWEST_ROUNDS):
        condition, advice = (" in that time", "") if plan.rounds is None else ("", f": --rounds {FEWEST_ROUNDS}")
        yield f"  note: fewer than {FEWEST_ROUNDS} rounds{condition} give figures and no verdict{advice}"
    yield from (f"  note: {note}" for note in (*note_thin_loads(plan), *note_shared_classes(plan)))


def describe_new_estimate(settings: RunSettings, expected_s: float) -> str:
    """Return the expected time as it is told after the warm-up."""
    return f"by the warm-up's pace about {expected_s / 60:.1f} min{_describe_cost(settings, expected_s)}"


def note_thin_loads(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence for every load that a block has too few requests for."""
    thin_loads = set()
    for block in plan.blocks:
        concurrency = block.load.concurrency
        if concurrency is not None and block.requests * plan.repeats < concurrency:
            thin_loads.add((concurrency, block.requests * plan.repeats))
    for concurrency, requests in sorted(thin_loads):
        yield (
            f"concurrency {concurrency} is never reached where a class has {requests} requests a round: raise "
            "--repeats, or --prompts-per-class, or use --mixed"
        )


def note_shared_classes(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence for every class that two suites share."""
    suites: dict[str, dict[str, None]] = {}
    for entry in (entry for block in plan.blocks for entry in block.entries):
        suites.setdefault(entry.prompt.class_, {})[entry.suite] = None
    for class_, suite_names in suites.items():
        if len(suite_names) > 1:
            yield (
                f"class {class_} is in {' and in '.join(suite_names)}: its figures pool both; rename it in one of them"
            )


def _count_noun(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def _describe_control(plan: RunPlan) -> Iterator[str]:
    """Yield what control rounds do, or that there are none."""
    if not plan.control_rounds:
        yield "  no control round: the verdict will have no noise floor (--control-rounds 1)"
        return
    places = ", ".join(str(number + 1) for number in plan.control_round_numbers[:MAX_LISTED_CONTROLS])
    more = ", ..." if len(plan.control_round_numbers) > MAX_LISTED_CONTROLS else ""
    requests = 2 * plan.requests_per_round // len(plan.arms)
    yield f"  control: round {places}{more} asks {plan.arms[0]} against itself, {requests} requests each"


def _describe_order(plan: RunPlan) -> str:
    turns = plan.round(plan.first_round)
    first = [turn for turn in turns if turn.block is turns[0].block]
    return ", ".join(" and ".join(turn.arms) for turn in first)


def _describe_cost(settings: RunSettings, expected_s: float) -> str:
    price = settings.price_usd_per_hour
    return "" if price is None else f", {price * expected_s / HOUR_S:.2f} USD at {price:g} USD an hour"


def create_manifest(settings: RunSettings, plan: RunPlan, probe_results: Sequence[ProbeResult]) -> manifest.RunManifest:
    """Return the manifest of a run that is about to begin."""
    return manifest.RunManifest(
        version=importlib.metadata.version("tandem"),
        created_utc=utc_now(),
        environment=settings.environment,
        experiment=settings.experiment,
        instance_type=settings.instance_type,
        simulated=combine_simulated(probe_result.is_simulator for probe_result in probe_results),
        arms=tuple(
            _add_probe_result(arm, probe_result) for arm, probe_result in zip(settings.arms, probe_results, strict=True)
        ),
        suites=tuple(
            manifest.SuiteEntry(
                name=suite.name, sha256=suite.sha256, prompts=len(suite.prompts), classes=tuple(suite.classes)
            )
            for suite in settings.suites
        ),
        schedule=settings.schedule,
        seed=settings.seed,
        api=settings.api,
        thinking=settings.thinking,
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        concurrency=tuple(
            sorted({block.load.concurrency for block in plan.blocks if block.load.concurrency is not None})
        ),
        rate_per_s=settings.rate_per_s,
        rounds=plan.rounds or 0,
        control_rounds=plan.control_rounds,
        repeats=plan.repeats,
        prompts_per_class=settings.prompts_per_class,
        mixed=settings.mixes_classes,
        duration_s=settings.duration_s,
        time_outs=settings.timeouts,
        clock=read_clock(),
        host=manifest.HostInfo(cpus=host.count_cpus(), python=host.python_version(), load_1m_start=host.read_load_1m()),
        plan=manifest.PlanTotals(requests=plan.request_count, requests_per_round=plan.requests_per_round),
        goodput=dict(settings.goodput) if settings.goodput else None,
        price_usd_per_hour=settings.price_usd_per_hour,
        flags=dict(settings.flags),
    )


def _add_probe_result(arm: manifest.ManifestArm, probe_result: ProbeResult) -> manifest.ManifestArm:
    return msgspec.structs.replace(
        arm,
        server_version=probe_result.version,
        owned_by=probe_result.owned_by,
        server_header=probe_result.server_header,
        simulated=probe_result.is_simulator,
        offers=probe_result.offers,
    )


def read_clock() -> manifest.ClockReading:
    """Return the records' clock, and this moment on it and on the calendar."""
    info = time.get_clock_info("monotonic")
    return manifest.ClockReading(
        source=info.implementation, resolution_s=info.resolution, monotonic_s=time.monotonic(), utc=utc_now()
    )


def utc_now() -> str:
    """Return this moment as ISO 8601 in UTC, to the millisecond."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def describe_turn(turn: PlanTurn) -> str:
    """Return a turn as progress names it."""
    return f"round {turn.round + 1}, {turn.block.class_} at {turn.block.load}, {' and '.join(turn.arms)}"
