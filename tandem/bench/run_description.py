"""What a run says of itself: the plan before it starts, its manifest, and the marks of its end.

Invariant: the manifest is made from the settings and from what servers answered, before anything is measured.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence

import msgspec

from tandem.bench import manifest
from tandem.bench.estimate import FIRST_TOKEN_S, TOKEN_S, format_duration
from tandem.bench.host import read_host
from tandem.bench.manifest import RunManifest
from tandem.bench.plan import RunPlan
from tandem.bench.probe import ProbeResult
from tandem.bench.schedule import FEWEST_ROUNDS
from tandem.bench.settings import RunSettings
from tandem.bench.simulation import combine_simulated

HOUR_S = 3600
MAX_LISTED_CONTROLS = 4  # control rounds
SETTINGS_FIELDS = (  # alike in the settings and in the manifest
    *("environment", "experiment", "instance_type", "schedule", "seed", "api", "thinking", "temperature", "max_tokens"),
    *("rate_per_s", "prompts_per_class", "duration_s", "price_usd_per_hour"),
)


def describe_plan(settings: RunSettings, plan: RunPlan, expected_s: float) -> Iterator[str]:
    """Yield what will be done, how long it will take and what that costs."""
    entries = [entry for block in plan.blocks for entry in block.entries]
    prompts = _count_noun(len({(entry.suite, entry.prompt.id) for entry in entries}), "prompt")
    classes = _count_noun(len({entry.prompt.class_ for entry in entries}), "class", "es")
    loads = ", ".join(dict.fromkeys(str(block.load) for block in plan.blocks))
    by_clock = plan.rounds is None
    rounds = _count_noun(plan.rounds or 0, "round")
    if by_clock:
        rounds = f"rounds for {format_duration(settings.duration_s or 0)}"
    if plan.control_rounds:
        rounds += f" and {'up to ' if by_clock else ''}{_count_noun(plan.control_rounds, 'control round')}"
    repeats = f" of {plan.repeats} repeats" if plan.repeats > 1 else ""
    yield f"plan: {', '.join(plan.arms)}; {classes}, {prompts}, {loads}; {rounds}{repeats}, {plan.schedule}"
    total = "" if plan.request_count is None else f"{plan.request_count} requests in all, "
    turns = plan.round(plan.first_round)
    order = ", ".join(" and ".join(turn.arms) for turn in turns if turn.block is turns[0].block)
    yield f"  {total}{plan.requests_per_round} a round; the first block goes {order}"
    if plan.control_rounds:
        numbers = [str(number + 1) for number in plan.control_round_numbers]
        places = ", ".join(numbers[:MAX_LISTED_CONTROLS] + ["..."] * (len(numbers) > MAX_LISTED_CONTROLS))
        requests = 2 * plan.requests_per_round // len(plan.arms)
        yield f"  control: round {places} asks {plan.arms[0]} against itself, {requests} requests each"
    else:
        yield "  no control round: the verdict will have no noise floor (--control-rounds 1)"
    guess = f"{FIRST_TOKEN_S} s + {1000 * TOKEN_S:.0f} ms a token, answers as long as allowed"
    longest = f"at most {max(entry.max_tokens for entry in entries)} tokens; told anew after the warm-up"
    yield f"  {describe_cost(settings, expected_s)} ({'as asked' if by_clock else f'{guess}, {longest}'})"
    notes = [note for suite in settings.suites for note in suite.notes]
    if len(plan.arms) > 1 and (plan.rounds or 0) < FEWEST_ROUNDS:
        condition, advice = (" in that time", "") if by_clock else ("", f": --rounds {FEWEST_ROUNDS}")
        notes.append(f"fewer than {FEWEST_ROUNDS} rounds{condition} give figures and no verdict{advice}")
    yield from (f"  note: {note}" for note in (*notes, *note_thin_loads(plan), *note_shared_classes(plan)))


def note_thin_loads(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence for every load that a block has too few requests for."""
    loads = {(block.load.concurrency or 0, block.requests * plan.repeats) for block in plan.blocks}
    for concurrency, requests in sorted(loads):
        if requests < concurrency:
            condition = f"where a class has {requests} requests a round"
            change = "raise --repeats, or --prompts-per-class, or use --mixed"
            yield f"concurrency {concurrency} is never reached {condition}: {change}"


def note_shared_classes(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence for every class that two suites share."""
    suites: dict[str, dict[str, None]] = {}
    for entry in (entry for block in plan.blocks for entry in block.entries):
        suites.setdefault(entry.prompt.class_, {})[entry.suite] = None
    for class_, names in suites.items():
        if len(names) > 1:
            yield f"class {class_} is in {' and in '.join(names)}: its figures pool both; rename it in one of them"


def _count_noun(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def describe_cost(settings: RunSettings, expected_s: float) -> str:
    """Return how long a run will take and, where a price is known, what that costs."""
    price, duration = settings.price_usd_per_hour, f"about {expected_s / 60:.1f} min"
    return duration if price is None else f"{duration}, {price * expected_s / HOUR_S:.2f} USD at {price:g} USD an hour"


def create_manifest(settings: RunSettings, plan: RunPlan, probe_results: Sequence[ProbeResult]) -> RunManifest:
    """Return the manifest of a run that is about to begin."""
    arms = [
        msgspec.structs.replace(
            arm,
            server_version=probe_result.version,
            owned_by=probe_result.owned_by,
            server_header=probe_result.server_header,
            simulated=probe_result.is_simulator,
            offers=probe_result.offers,
        )
        for arm, probe_result in zip(settings.arms, probe_results, strict=True)
    ]
    suites = [
        manifest.SuiteEntry(name=suite.name, sha256=suite.sha256, prompts=len(suite.prompts), classes=suite.classes)
        for suite in settings.suites
    ]
    return RunManifest(
        **{name: getattr(settings, name) for name in SETTINGS_FIELDS},
        version=importlib.metadata.version("tandem"),
        created_utc=manifest.utc_now(),
        simulated=combine_simulated(arm.simulated for arm in arms),
        arms=tuple(arms),
        suites=tuple(suites),
        concurrency=tuple(sorted({block.load.concurrency for block in plan.blocks if block.load.concurrency})),
        rounds=plan.rounds or 0,
        control_rounds=plan.control_rounds,
        repeats=plan.repeats,
        mixed=settings.mixes_classes,
        time_outs=settings.timeouts,
        clock=manifest.read_clock(),
        host=read_host(),
        plan=manifest.PlanTotals(requests=plan.request_count, requests_per_round=plan.requests_per_round),
        goodput=dict(settings.goodput) if settings.goodput else None,
        flags=dict(settings.flags),
    )
