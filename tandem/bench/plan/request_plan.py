"""The plan of a run, its requests, arms and order: a pure function of the settings and their seed.

Invariant: all arms get the same prompts, in the same order, with the same seeds; the same settings
give the same plan, so a resumed run can find the missing requests.

Terms. A *block* is one class at one load (a concurrency or an arrival rate), or all classes mixed.
A *round* sends every block once to every arm; each round draws a new order of the blocks. The
requests of a block in a round are one list: each prompt `repeats` times (or as many requests as its
suite states), with a new order for each repeat. A *turn* sends the list, or half of it, to one arm.

`interleaved`: the list has two halves; the first goes to A, then to B, the second to B, then to A.
So the four turns of a block are A B B A in one round, B A A B in the next
(`tandem.bench.plan.schedule`; n arms have 2n turns), and each arm gets each request of the list
once. A list is not cut if its halves are too short to fill the concurrency: then the turns are A B
in one round and B A in the next. `simultaneous`: one turn, all arms at once.

A *control round* measures the baseline against itself: as itself and as the arm `<baseline>#2`, A B
B A like any pair, one at a time in every schedule, because both are one server. Control rounds do
not change the other rounds.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tandem.bench.plan.schedule import (
    CONTROL_SUFFIX,
    LoadLevel,
    control_numbers,
    first_order,
    pass_order,
)
from tandem.bench.records.manifest import RunManifest
from tandem.bench.records.record import TurnPart
from tandem.bench.suites.prompt import Prompt
from tandem.bench.suites.suite import Suite

ALL_CLASSES = "all"
SEED_LIMIT = 1 << 31  # vLLM accepts 64 bits, other servers 32 with a sign


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptEntry:
    """One prompt, its suite, and its token limit."""

    suite: str
    prompt: Prompt
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBlock:
    """One class at one load.

    Args:
        number: index among all blocks, before any order is drawn.
        class_: the class; `all` if classes are mixed.
        load: of the block.
        entries: prompts of the block.
        requests: number of requests in one repeat; if there are fewer prompts, they are sent again,
            in turn.
    """

    number: int
    class_: str
    load: LoadLevel
    entries: tuple[PromptEntry, ...]
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanItem:
    """One request of a turn, the same for every arm.

    Args:
        index: in the block's list of this round, from 0.
        entry: prompt of the request.
        repeat: number of earlier requests with this prompt to this arm in this round and block.
        seed: sampling seed of the request.
        part: of a search for the knee that is in no figure; None for a request that is.
    """

    index: int
    entry: PromptEntry
    repeat: int
    seed: int
    part: TurnPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTurn:
    """One pass over a block, or over half of it.

    Args:
        round: from 0.
        slot: index among the block's turns of this round, from 0 (A B B A: 0 to 3).
        block: of the turn.
        arms: that get the requests; several arms get them at the same time.
        items: requests, in the order of sending.
        arrivals_s: open loop: due time of each request, in seconds from the turn's start; empty in
            a closed loop.
        is_warm_up: whether the turn warms up and is in no summary.
        earlier_attempts: how often an interrupt cut the whole turn.
    """

    round: int
    slot: int
    block: PlanBlock
    arms: tuple[str, ...]
    items: tuple[PlanItem, ...]
    arrivals_s: tuple[float, ...] = ()
    is_warm_up: bool = False
    earlier_attempts: int = 0

    def request_id(self, arm: str, item: PlanItem) -> str:
        """Return a request's id: unique in the run, ASCII, the same in every plan of the run."""
        return (
            f"{arm}.{'w' if self.is_warm_up else 'r'}{self.round}.b{self.block.number}.{item.index}"
        )

    def request_ids(self) -> Iterator[str]:
        """Yield the id of every request of the turn."""
        for arm, item in itertools.product(self.arms, self.items):
            yield self.request_id(arm, item)

    @property
    def request_count(self) -> int:
        """Number of requests, over all arms of the turn."""
        return len(self.arms) * len(self.items)


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Every turn of a run, made round by round.

    Args:
        manifest: has arms, schedule, seed, repeats, rounds and control rounds.
        blocks: of a round.
    """

    manifest: RunManifest
    blocks: tuple[PlanBlock, ...]

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """Names, the baseline first."""
        return tuple(arm.name for arm in self.manifest.arms)

    @property
    def rounds(self) -> int | None:
        """Number of rounds without control rounds; None if time limits the run."""
        return self.manifest.rounds or None

    @property
    def round_total(self) -> int | None:
        """Number of rounds with control rounds; None if time limits the run."""
        return None if self.rounds is None else self.rounds + self.manifest.control_rounds

    @property
    def searches_knee(self) -> bool:
        """Whether the run searches a knee, and plans its turns as it goes."""
        return self.manifest.goodput_share is not None

    @property
    def control_arm(self) -> str:
        """Name of the baseline as its own variant, in a control round."""
        return f"{self.arms[0]}{CONTROL_SUFFIX}"

    @cached_property
    def control_round_numbers(self) -> tuple[int, ...]:
        """Numbers of the control rounds, in rising order."""
        return control_numbers(self.rounds, self.manifest.control_rounds)

    @property
    def first_round(self) -> int:
        """Number of the first round that is no control round."""
        return next(
            number for number in itertools.count() if number not in self.control_round_numbers
        )

    @cached_property
    def requests_per_round(self) -> int:
        """Number of requests of a round, over all arms; a control round has two arms."""
        return len(self.arms) * self.manifest.repeats * sum(block.requests for block in self.blocks)

    @cached_property
    def entries(self) -> tuple[PromptEntry, ...]:
        """The prompts of all blocks."""
        return tuple(itertools.chain.from_iterable(block.entries for block in self.blocks))

    @property
    def request_count(self) -> int | None:
        """Number of all requests; None if time limits the run, or it searches a knee."""
        if self.rounds is None or self.searches_knee:
            return None
        return (
            (len(self.arms) * self.rounds + 2 * self.manifest.control_rounds)
            * self.requests_per_round
            // len(self.arms)
        )

    def turns(self) -> Iterator[PlanTurn]:
        """Yield every turn in order; endless if time limits the run."""
        return itertools.chain.from_iterable(self.rounds_of_turns())

    def rounds_of_turns(self) -> Iterator[tuple[PlanTurn, ...]]:
        """Yield the turns of each round; endless if time limits the run."""
        total = self.round_total
        return map(self.round, itertools.count() if total is None else range(total))

    def round(self, number: int) -> tuple[PlanTurn, ...]:
        """Return the turns of one round."""
        earlier_controls = bisect_left(self.control_round_numbers, number)
        is_control = number in self.control_round_numbers
        # of the same kind
        earlier_rounds = earlier_controls if is_control else number - earlier_controls
        name = f"control{earlier_rounds}" if is_control else str(earlier_rounds)
        names = (self.arms[0], self.control_arm) if is_control else self.arms
        arms = first_order(names, self.manifest.seed)
        is_simultaneous = self.manifest.schedule == "simultaneous" and not is_control

        blocks = list(self.blocks)
        self._create_generator("blocks", name).shuffle(blocks)
        turns: list[PlanTurn] = []
        for block in blocks:
            slots = itertools.count()
            for half, items in enumerate(self._draw_halves(name, block, whole=is_simultaneous)):
                arrivals_s = self._draw_arrivals_s(name, block, half, len(items))
                order = pass_order(arms, 2 * earlier_rounds + half)
                for turn_arms in [order] if is_simultaneous else [(arm,) for arm in order]:
                    turn = PlanTurn(
                        round=number,
                        slot=next(slots),
                        block=block,
                        arms=turn_arms,
                        items=items,
                        arrivals_s=arrivals_s,
                    )
                    turns.append(turn)
        return tuple(turns)

    def _draw_halves(
        self, name: str, block: PlanBlock, *, whole: bool
    ) -> tuple[tuple[PlanItem, ...], ...]:
        """Return a block's list, in two halves unless they are too short for the concurrency."""
        items = self._draw_items(name, block)
        middle = -(-len(items) // 2)
        if whole or len(items) < max(2 * (block.load.concurrency or 1), 2):
            return (items,)
        return items[:middle], items[middle:]

    def _draw_arrivals_s(
        self, name: str, block: PlanBlock, half: int, count: int
    ) -> tuple[float, ...]:
        rate = block.load.rate_per_s
        if rate is None:
            return ()
        generator = self._create_generator("arrivals", name, block.number, half)
        return tuple(itertools.accumulate(generator.expovariate(rate) for _ in range(count)))

    def _draw_items(self, name: str, block: PlanBlock) -> tuple[PlanItem, ...]:
        count = block.requests
        size = len(block.entries)
        cycles = -(-count // size)  # most uses of one prompt in a repeat
        items: list[PlanItem] = []
        for repeat in range(self.manifest.repeats):
            generator = self._create_generator("items", name, block.number, repeat)
            entries = generator.sample(block.entries, size)
            for place in range(count):
                earlier_asks = repeat * cycles + place // size
                seed = generator.randrange(SEED_LIMIT)
                items.append(
                    PlanItem(
                        index=len(items),
                        entry=entries[place % size],
                        repeat=earlier_asks,
                        seed=seed,
                    )
                )
        return tuple(items)

    def _create_generator(self, *keys: object) -> random.Random:
        return random.Random("/".join(map(str, (self.manifest.seed, *keys))))  # noqa: S311 - repeatable, no secret


def plan_blocks(
    manifest: RunManifest, suites: Iterable[Suite], concurrency: Sequence[int] | None
) -> tuple[PlanBlock, ...]:
    """Return the blocks of a round.

    Args:
        manifest: has the arrival rates, the prompts per class, the token limit and whether classes
            are mixed.
        suites: of the run.
        concurrency: of the closed loops; None for each suite's own.
    """
    if manifest.goodput_share is not None:
        return (_mix_suites(manifest, suites),)
    blocks: list[PlanBlock] = []
    for suite in suites:
        groups = {class_: _list_entries(manifest, suite, class_) for class_ in suite.classes}
        least_requests = suite.defaults.requests_per_round or 0
        if manifest.mixed:
            least_requests *= len(groups)
            groups = {ALL_CLASSES: tuple(itertools.chain.from_iterable(groups.values()))}
        loads = [
            LoadLevel(concurrency=value) for value in concurrency or suite.defaults.concurrency
        ]
        if manifest.rates_per_s:
            loads = [LoadLevel(rate_per_s=value) for value in manifest.rates_per_s]
        for (class_, entries), load in itertools.product(groups.items(), loads):
            count = max(len(entries), least_requests)
            place = len(blocks)
            blocks.append(
                PlanBlock(number=place, class_=class_, load=load, entries=entries, requests=count)
            )
    return tuple(blocks)


def _mix_suites(manifest: RunManifest, suites: Iterable[Suite]) -> PlanBlock:
    """Return all prompts as one block without a load, for a search of the knee."""
    entries: list[PromptEntry] = []
    for suite in suites:
        for class_ in suite.classes:
            entries += _list_entries(manifest, suite, class_)
    return PlanBlock(
        number=0,
        class_=ALL_CLASSES,
        load=LoadLevel(),
        entries=tuple(entries),
        requests=len(entries),
    )


def _list_entries(manifest: RunManifest, suite: Suite, class_: str) -> tuple[PromptEntry, ...]:
    entries = []
    for prompt in suite.class_prompts(class_)[: manifest.prompts_per_class]:
        max_tokens = manifest.max_tokens or prompt.max_tokens or suite.defaults.max_tokens
        max_tokens = min(max_tokens, prompt.max_tokens or max_tokens)
        entries.append(PromptEntry(suite=suite.name, prompt=prompt, max_tokens=max_tokens))
    return tuple(entries)
