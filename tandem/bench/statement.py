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
from tandem.bench.estimate import FIRST_TOKEN_S, TOKEN_S, spoken
from tandem.bench.plan import Plan, Turn
from tandem.bench.probe import Found
from tandem.bench.schedule import FEWEST_ROUNDS
from tandem.bench.settings import Settings
from tandem.bench.simulation import combine_simulated

HOUR_S = 3600
MOST_NAMED = 4  # control rounds


def plan_lines(settings: Settings, plan: Plan, expected_s: float) -> Iterator[str]:
    """Yield what will be done, how long it will take and what that costs."""
    loads = ", ".join(dict.fromkeys(str(block.load) for block in plan.blocks))
    prompts = len({(entry.suite, entry.prompt.id) for block in plan.blocks for entry in block.entries})
    classes = len({entry.prompt.class_ for block in plan.blocks for entry in block.entries})
    rounds = f"rounds for {spoken(settings.duration_s or 0)}"
    if plan.rounds is not None:
        rounds = _counted(plan.rounds, "round")
    if plan.control_rounds:
        most = "up to " if plan.rounds is None else ""
        rounds += f" and {most}{_counted(plan.control_rounds, 'control round')}"
    kinds = f"{_counted(classes, 'class', 'es')}, {_counted(prompts, 'prompt')}, {loads}"
    repeats = f" of {plan.repeats} repeats" if plan.repeats > 1 else ""
    yield f"plan: {', '.join(plan.arms)}; {kinds}; {rounds}{repeats}, {plan.schedule}"
    total = "" if plan.requests is None else f"{plan.requests} requests in all, "
    yield f"  {total}{plan.requests_per_round} a round; the first block goes {_order(plan)}"
    yield from _control(plan)
    rests = "as asked"
    if plan.rounds is not None:
        most_tokens = max(entry.max_tokens for block in plan.blocks for entry in block.entries)
        rests = (
            f"{FIRST_TOKEN_S} s + {1000 * TOKEN_S:.0f} ms a token, answers as long as allowed, at most {most_tokens} "
            "tokens; told anew after the warm-up"
        )
    yield f"  about {expected_s / 60:.1f} min{_cost(settings, expected_s)} ({rests})"
    yield from (f"  note: {note}" for suite in settings.suites for note in suite.notes)
    if plan.rounds is not None and plan.rounds < FEWEST_ROUNDS and len(plan.arms) > 1:
        yield f"  note: fewer than {FEWEST_ROUNDS} rounds give figures and no verdict: --rounds {FEWEST_ROUNDS}"
    yield from (f"  note: {note}" for note in (*thin(plan), *pooled(plan)))


def refined(settings: Settings, expected_s: float) -> str:
    """Return the expected time as it is told after the warm-up."""
    return f"by the warm-up's pace about {expected_s / 60:.1f} min{_cost(settings, expected_s)}"


def thin(plan: Plan) -> Iterator[str]:
    """Yield a sentence for every load that a block has too few requests for."""
    told = set()
    for block in plan.blocks:
        most = block.load.concurrency
        if most is not None and block.requests * plan.repeats < most:
            told.add((most, block.requests * plan.repeats))
    for most, requests in sorted(told):
        yield (
            f"concurrency {most} is never reached where a class has {requests} requests a round: raise --repeats, "
            "or --prompts-per-class, or use --mixed"
        )


def pooled(plan: Plan) -> Iterator[str]:
    """Yield a sentence for every class that two suites share."""
    suites: dict[str, dict[str, None]] = {}
    for entry in (entry for block in plan.blocks for entry in block.entries):
        suites.setdefault(entry.prompt.class_, {})[entry.suite] = None
    for class_, of in suites.items():
        if len(of) > 1:
            yield f"class {class_} is in {' and in '.join(of)}: its figures pool both; rename it in one of them"


def _counted(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def _control(plan: Plan) -> Iterator[str]:
    """Yield what control rounds do, or that there are none."""
    if not plan.control_rounds:
        yield "  no control round: the verdict will have no noise floor (--control-rounds 1)"
        return
    places = ", ".join(str(number + 1) for number in plan.controls[:MOST_NAMED])
    more = ", ..." if len(plan.controls) > MOST_NAMED else ""
    requests = 2 * plan.requests_per_round // len(plan.arms)
    yield f"  control: round {places}{more} asks {plan.arms[0]} against itself, {requests} requests each"


def _order(plan: Plan) -> str:
    turns = plan.round(plan.first)
    first = [turn for turn in turns if turn.block is turns[0].block]
    return ", ".join(" and ".join(turn.arms) for turn in first)


def _cost(settings: Settings, expected_s: float) -> str:
    price = settings.price_usd_per_hour
    return "" if price is None else f", {price * expected_s / HOUR_S:.2f} USD at {price:g} USD an hour"


def of_run(settings: Settings, plan: Plan, found: Sequence[Found]) -> manifest.Manifest:
    """Return the manifest of a run that is about to begin."""
    outs = settings.time_outs
    return manifest.Manifest(
        version=importlib.metadata.version("tandem"),
        created_utc=utc_now(),
        environment=settings.environment,
        experiment=settings.experiment,
        instance_type=settings.instance_type,
        simulated=combine_simulated(each.simulated for each in found),
        arms=tuple(_fill_found(arm, each) for arm, each in zip(settings.arms, found, strict=True)),
        suites=tuple(
            manifest.SuiteUsed(
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
        mixed=settings.mixed,
        duration_s=settings.duration_s,
        time_outs=manifest.TimeOuts(
            connect_s=outs.connect_s, first_token_s=outs.first_token_s, gap_s=outs.gap_s, whole_s=outs.whole_s
        ),
        clock=clock(),
        host=manifest.Host(cpus=host.cpus(), python=host.python(), load_1m_start=host.load_1m()),
        plan=manifest.Plan(requests=plan.requests, requests_per_round=plan.requests_per_round),
        goodput=dict(settings.goodput) if settings.goodput else None,
        price_usd_per_hour=settings.price_usd_per_hour,
        flags=dict(settings.flags),
    )


def _fill_found(arm: manifest.Arm, found: Found) -> manifest.Arm:
    return msgspec.structs.replace(
        arm, server_version=found.version, owned_by=found.owned_by, server_header=found.server_header,
        simulated=found.simulated, offers=found.offers,
    )  # fmt: skip


def clock() -> manifest.Clock:
    """Return the records' clock, and this moment on it and on the calendar."""
    known = time.get_clock_info("monotonic")
    return manifest.Clock(
        source=known.implementation, resolution_s=known.resolution, monotonic_s=time.monotonic(), utc=utc_now()
    )


def utc_now() -> str:
    """Return this moment as ISO 8601 in UTC, to the millisecond."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def turn_words(turn: Turn) -> str:
    """Return a turn as progress names it."""
    return f"round {turn.round + 1}, {turn.block.class_} at {turn.block.load}, {' and '.join(turn.arms)}"
