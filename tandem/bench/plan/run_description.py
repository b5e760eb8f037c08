"""The text before a run: its plan, its expected duration and cost, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tandem.bench.plan.estimate import (
    FIRST_TOKEN_S,
    TOKEN_S,
    estimate_first_rate,
    format_duration,
)
from tandem.bench.plan.knee_search import LEAST_COUNTED, RATE_FACTORS, ROUNDS, WARM_UP_LIMITS
from tandem.bench.plan.request_plan import RunPlan
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.bench.plan.server_access import list_shared_headers, list_unlike_fields
from tandem.bench.plan.settings import RunSettings
from tandem.bench.records.manifest import ManifestArm

HOUR_S = 3600
MANY_PROMPTS = 1000  # of one suite; a few hundred decide what can be decided
FAST_RATE_PER_S = 14  # an example of a fast server's knee, beside the estimate


def describe_plan(settings: RunSettings, plan: RunPlan, expected_s: float) -> Iterator[str]:
    """Yield the lines of the plan, with expected duration, cost and notes."""
    prompts = {(entry.suite, entry.prompt.id) for entry in plan.entries}
    classes = {entry.prompt.class_ for entry in plan.entries}
    loads = ", ".join(dict.fromkeys(str(block.load) for block in plan.blocks))
    yield f"plan: {', '.join(plan.arms)}; classes: {len(classes)}, prompts: {len(prompts)}, {loads}"

    if plan.searches_knee:
        yield from _describe_search(settings, plan, expected_s)
        return
    rounds = plan.rounds or f"for {format_duration(settings.manifest.duration_s or 0)}"
    controls = plan.manifest.control_rounds
    repeats = settings.manifest.repeats
    yield f"  rounds: {rounds}, control rounds: {controls}, repeats: {repeats}"

    if settings.restart:
        names = " and ".join(settings.restart)
        yield f"  starts: {settings.manifest.starts} of {names}; the minutes leave restarts out"

    turns = plan.round(plan.first_round)
    order = ", ".join(" and ".join(turn.arms) for turn in turns if turn.block is turns[0].block)
    total = "" if plan.request_count is None else f"{plan.request_count} requests in all, "
    yield f"  {total}{plan.requests_per_round} a round; the first block goes {order}"
    yield _describe_duration(settings, plan, expected_s)
    for note in list_notes(settings, plan):
        yield f"  note: {note}"


def _describe_search(settings: RunSettings, plan: RunPlan, expected_s: float) -> Iterator[str]:
    """Yield what a search for the knee will send, and how long that takes."""
    order = ", A B B A" if len(plan.arms) > 1 else ""
    limits = ", ".join(f"{name} {limit:g}" for name, limit in (plan.manifest.goodput or {}).items())
    yield (
        f"  knee: the highest rate at which {plan.manifest.goodput_share:.4g} of the requests keep"
        f" {limits}"
    )
    yield (
        f"  of each arm a pilot, then {ROUNDS} rounds of {len(RATE_FACTORS)} rates{order}; each"
        " turn begins on an idle server"
    )
    least, most = (_count_search_requests(warm_up) for warm_up in WARM_UP_LIMITS)
    yield (
        f"  at least {least:,} requests an arm, {most:,} if a fast server needs the longest"
        " warm-ups; the pilot comes on top"
    )
    yield _describe_search_hours(settings, plan, expected_s)
    for suite in settings.suites:
        yield from (f"  note: {note}" for note in suite.notes)
    yield from (f"  note: {note}" for note in note_shared_classes(plan))


def _count_search_requests(warm_up: int) -> int:
    """Return the least number of requests of an arm, without its pilot."""
    return ROUNDS * len(RATE_FACTORS) * (warm_up + LEAST_COUNTED)


def _describe_search_hours(settings: RunSettings, plan: RunPlan, expected_s: float) -> str:
    """Return how long a search takes near a guessed rate, and at a fast server's."""
    fast_s = len(plan.arms) * _count_search_requests(WARM_UP_LIMITS[1]) / FAST_RATE_PER_S
    cost = _describe_cost(settings, expected_s)
    return (
        f"  about {expected_s / HOUR_S:.1f} h{cost} if a knee is near"
        f" {estimate_first_rate(plan):.2g} requests/s ({FIRST_TOKEN_S} s + {1000 * TOKEN_S:.0f} ms"
        f" a token); {format_duration(fast_s)} at {FAST_RATE_PER_S}; the pilot tells more"
    )


def _describe_cost(settings: RunSettings, expected_s: float) -> str:
    """Return the cost of a run, to follow its duration; empty if the price is not known."""
    price = settings.manifest.price_usd_per_hour
    if price is None:
        return ""
    return f", {price * expected_s / HOUR_S:.2f} USD at {price:g} USD an hour"


def _describe_duration(settings: RunSettings, plan: RunPlan, expected_s: float) -> str:
    """Return the expected duration with its basis, and the cost if the price is known."""
    cost = _describe_cost(settings, expected_s)
    basis = "as asked"
    if plan.rounds is not None:
        longest = max(entry.max_tokens for entry in plan.entries)
        basis = (
            f"{FIRST_TOKEN_S} s + {1000 * TOKEN_S:.0f} ms a token, answers as long as allowed,"
            f" at most {longest} tokens"
        )
    return f"  about {expected_s / 60:.1f} min{cost} ({basis})"


def list_notes(settings: RunSettings, plan: RunPlan) -> Iterator[str]:
    """Yield what a reader of the figures must know of the plan."""
    for suite in settings.suites:
        yield from suite.notes
    if len(plan.arms) > 1 and not plan.manifest.control_rounds:
        yield "no control round: the verdict will have no noise floor (--control-rounds 1)"
    if len(plan.arms) > 1 and (plan.rounds or 0) < FEWEST_ROUNDS:
        yield f"fewer than {FEWEST_ROUNDS} rounds give figures and no verdict"
    yield from note_shared_headers(settings)
    yield from note_large_suites(plan)
    yield from note_cut_files(settings, plan)
    yield from note_thin_loads(plan)
    yield from note_shared_classes(plan)


def note_shared_headers(settings: RunSettings) -> Iterator[str]:
    """Yield a sentence for every secret header that several addresses are sent."""
    urls = {arm.name: arm.url for arm in settings.manifest.arms}
    for header in list_shared_headers(urls, settings.access):
        yield (
            f"servers at several addresses are sent the same {header}:"
            f" give --header NAME={header}:V to send it to one"
        )


def note_own_fields(arms: Sequence[ManifestArm]) -> Iterator[str]:
    """Yield a sentence for every field of a request that arms are not sent alike."""
    for name in list_unlike_fields({arm.name: arm.extra_body for arm in arms}):
        yield f"the arms are not sent the same {name} (--extra-body): their requests differ"
    for arm in arms:
        if arm.left_out:
            yield f"{arm.name} is not sent {', '.join(arm.left_out)}: its server's defaults count"


def note_large_suites(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence for every suite with more prompts than a run needs."""
    for suite, count in sorted(_count_prompts(plan).items()):
        if count > MANY_PROMPTS:
            yield f"all {count:,} prompts of {suite} are sent: --sample N draws some of them"


def note_cut_files(settings: RunSettings, plan: RunPlan) -> Iterator[str]:
    """Yield a sentence for every file of which the first prompts of a class are sent."""
    most = plan.manifest.prompts_per_class
    counts = _count_prompts(plan)
    for suite in settings.suites:
        is_file = suite.file_sha256 is not None
        if is_file and counts[suite.name] < len(suite.prompts):
            sample = suite.options.name_option("sample", "N")
            yield (
                f"{counts[suite.name]:,} of {len(suite.prompts):,} prompts of {suite.name} are"
                f" sent, at most the first {most} of a class: {sample} draws from all"
            )


def _count_prompts(plan: RunPlan) -> Counter[str]:
    """Return how many prompts of each suite are sent."""
    return Counter(suite for suite, _ in {(entry.suite, entry.prompt.id) for entry in plan.entries})


def note_thin_loads(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence for every load that a block's few requests cannot reach."""
    loads = {
        (block.load.concurrency or 0, block.requests * plan.manifest.repeats)
        for block in plan.blocks
    }
    for concurrency, requests in sorted(loads):
        if requests < concurrency:
            condition = f"where a class has {requests} requests a round"
            change = "raise --repeats, or --prompts-per-class, or use --mixed"
            yield f"concurrency {concurrency} is never reached {condition}: {change}"


def note_shared_classes(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence for every class that two suites share."""
    suites: dict[str, dict[str, None]] = {}
    for entry in plan.entries:
        suites.setdefault(entry.prompt.class_, {})[entry.suite] = None
    for class_, names in suites.items():
        if len(names) > 1:
            yield (
                f"class {class_} is in {' and in '.join(names)}: its figures pool both; rename it"
                " in one of them"
            )
