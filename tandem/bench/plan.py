"""What will be asked, of whom and in which order: a pure function of the settings and their seed.

Invariant: all arms are asked the same prompts, in the same order, with the same seeds; the same settings give the
same plan, so a run that was cut short knows what is missing.

The words. A *block* is one class at one load (a concurrency or an arrival rate), or all classes mixed. A *round* asks
every block once of every arm, the blocks in an order drawn anew for each round. What a block asks in a round is one
list: each prompt `repeats` times (or as many requests as its suite states), each repeat in an order of its own. A
*turn* is one arm's go at the list, or at a half of it.

`interleaved`: the list is cut in two halves; the first is asked of A, then of B, the second of B, then of A. So the
four turns of a block are A B B A in one round, B A A B in the next (`tandem.bench.schedule`; with n arms there are 2n
turns), and each arm is asked each request of the list once. A list too short for its halves to fill the concurrency
stays whole: then the turns are A B in one round and B A in the next. `simultaneous`: one turn, all arms at once.

A *control round* asks the baseline against itself: as itself and as the arm `<baseline>#2`, A B B A like any pair, one
at a time whatever the schedule, because both are one server. The other rounds are the same with and without them.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tandem.bench.judge.form import CONTROL
from tandem.bench.schedule import Schedule, control_numbers, first_order, pass_order
from tandem.bench.suites.suite import Prompt, Suite

MIXED = "all"
SEEDS = 1 << 31  # vLLM takes 64 bits, other servers 32 with a sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How hard a block presses: a closed loop of `concurrency` workers, or `rate_per_s` arrivals in an open one."""

    concurrency: int | None = None
    rate_per_s: float | None = None

    def __str__(self) -> str:
        """Name it as progress shows it."""
        return f"concurrency {self.concurrency}" if self.concurrency else f"{self.rate_per_s:g} requests/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One prompt, the suite it is from, and how its suite asks it."""

    suite: str
    prompt: Prompt
    max_tokens: int
    ignore_eos: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One class at one load.

    Args:
        number: its place among all blocks, before any order is drawn.
        class_: the class, `all` where classes are mixed.
        load: how hard it presses.
        entries: its prompts.
        requests: how many one repeat asks; more than there are prompts asks them again, in turn.
    """

    number: int
    class_: str
    load: Load
    entries: tuple[Entry, ...]
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One request of a turn, the same for every arm.

    Args:
        index: place in the block's list of this round, from 0.
        entry: what is asked.
        repeat: how often this arm was asked this prompt in this round and block before.
        seed: the sampling seed it carries.
    """

    index: int
    entry: Entry
    repeat: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One go at a block.

    Args:
        round: from 0.
        slot: place among the block's turns of this round, from 0 (A B B A: 0 to 3).
        block: what it is a go at.
        arms: who is asked; more than one at the same time.
        items: what is asked, in the order it is sent.
        arrivals_s: open loop: when each is due, in seconds from the turn's start; empty in a closed loop.
        warm: whether it warms up and is never summarized.
    """

    round: int
    slot: int
    block: Block
    arms: tuple[str, ...]
    items: tuple[Item, ...]
    arrivals_s: tuple[float, ...] = ()
    warm: bool = False

    def request_id(self, arm: str, item: Item) -> str:
        """Return the id of one request: unique in the run, plain ASCII, the same whenever it is planned again."""
        return f"{arm}.{'w' if self.warm else 'r'}{self.round}.b{self.block.number}.{item.index}"

    def ids(self) -> Iterator[str]:
        """Yield the id of every request of the turn."""
        return (self.request_id(arm, item) for arm in self.arms for item in self.items)

    @property
    def requests(self) -> int:
        """How many requests it has, over all its arms."""
        return len(self.arms) * len(self.items)


class _Round(NamedTuple):
    """What makes a round: its number, what its orders are drawn by, how many of its kind came before, who is asked."""

    number: int
    name: str
    before: int
    arms: tuple[str, ...]
    schedule: Schedule


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every turn of a run, made round by round.

    Args:
        arms: names, the baseline first.
        blocks: what a round asks.
        schedule: `interleaved`, one arm at a time; or `simultaneous`, all at once.
        seed: what every order, arrival and sampling seed is drawn from.
        repeats: how often a round asks each block's list of prompts.
        rounds: None where the clock decides; control rounds are not in it.
        control_rounds: how many there are; where the clock decides, at most.
    """

    arms: tuple[str, ...]
    blocks: tuple[Block, ...]
    schedule: Schedule
    seed: int
    repeats: int
    rounds: int | None
    control_rounds: int = 0

    @property
    def control(self) -> str:
        """The baseline's name in a control round, where it is asked as its own variant."""
        return f"{self.arms[0]}{CONTROL}"

    @cached_property
    def controls(self) -> tuple[int, ...]:
        """Numbers of the control rounds, rising."""
        return control_numbers(self.rounds, self.control_rounds)

    @property
    def first(self) -> int:
        """Number of the first round that is no control round."""
        return next(number for number in itertools.count() if number not in self.controls)

    @cached_property
    def requests_per_round(self) -> int:
        """How many requests a round has, over all arms; a control round has two arms."""
        return len(self.arms) * self.repeats * sum(block.requests for block in self.blocks)

    @property
    def requests(self) -> int | None:
        """How many requests there are in all; None where the clock decides."""
        if self.rounds is None:
            return None
        return (len(self.arms) * self.rounds + 2 * self.control_rounds) * self.requests_per_round // len(self.arms)

    def turns(self) -> Iterator[Turn]:
        """Yield every turn in order, without end where the clock decides."""
        numbers = itertools.count() if self.rounds is None else range(self.rounds + self.control_rounds)
        return itertools.chain.from_iterable(self.round(number) for number in numbers)

    def round(self, number: int) -> tuple[Turn, ...]:
        """Return the turns of one round."""
        here = self._round(number)
        blocks = list(self.blocks)
        self._drawn("blocks", here.name).shuffle(blocks)
        return tuple(turn for block in blocks for turn in self._block(here, block))

    def _round(self, number: int) -> _Round:
        before = bisect_left(self.controls, number)  # control rounds
        if before < len(self.controls) and self.controls[before] == number:
            return _Round(number, f"control{before}", before, (self.arms[0], self.control), "interleaved")
        return _Round(number, str(number - before), number - before, self.arms, self.schedule)

    def _block(self, here: _Round, block: Block) -> Iterator[Turn]:
        slots, arms = itertools.count(), first_order(here.arms, self.seed)
        for half, items in enumerate(self._halves(here, block, self._items(here, block))):
            arrivals = self._arrivals(here, block, half, len(items))
            order = pass_order(arms, 2 * here.before + half)
            for together in [order] if here.schedule == "simultaneous" else [(arm,) for arm in order]:
                yield Turn(
                    round=here.number, slot=next(slots), block=block, arms=together, items=items, arrivals_s=arrivals
                )

    @staticmethod
    def _halves(here: _Round, block: Block, items: tuple[Item, ...]) -> tuple[tuple[Item, ...], ...]:
        fills = max(2 * (block.load.concurrency or 1), 2)
        if here.schedule == "simultaneous" or len(items) < fills:
            return (items,)
        middle = -(-len(items) // 2)
        return items[:middle], items[middle:]

    def _items(self, here: _Round, block: Block) -> tuple[Item, ...]:
        times = -(-block.requests // len(block.entries))  # how often one repeat asks the first ones
        made: list[Item] = []
        for repeat in range(self.repeats):
            drawn = self._drawn("items", here.name, block.number, repeat)
            entries = drawn.sample(block.entries, len(block.entries))
            made += [
                Item(
                    index=len(made) + place, entry=entries[place % len(entries)],
                    repeat=repeat * times + place // len(entries), seed=drawn.randrange(SEEDS),
                )
                for place in range(block.requests)
            ]  # fmt: skip
        return tuple(made)

    def _arrivals(self, here: _Round, block: Block, half: int, count: int) -> tuple[float, ...]:
        rate = block.load.rate_per_s
        if rate is None:
            return ()
        drawn = self._drawn("arrivals", here.name, block.number, half)
        return tuple(itertools.accumulate(drawn.expovariate(rate) for _ in range(count)))

    def _drawn(self, *what: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *what))))  # noqa: S311 - repeatable, no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How suites become blocks.

    Args:
        concurrency: of the closed loops; None for what each suite states.
        rate_per_s: arrivals of an open loop, in place of any concurrency.
        prompts_per_class: the first so many of each class; None for all.
        max_tokens: in place of the suite's own; a prompt that states fewer keeps them.
        mixed: all classes of a suite in one block, as traffic comes, instead of each alone.
    """

    concurrency: Sequence[int] | None = None
    rate_per_s: float | None = None
    prompts_per_class: int | None = None
    max_tokens: int | None = None
    mixed: bool = False

    def blocks(self, suites: Iterable[Suite]) -> tuple[Block, ...]:
        """Return the blocks of a round."""
        made: list[Block] = []
        for suite in suites:
            chosen = {class_: self._entries(suite, class_) for class_ in suite.classes}
            groups = {MIXED: tuple(itertools.chain.from_iterable(chosen.values()))} if self.mixed else chosen
            for class_, entries in groups.items():
                least = (suite.defaults.requests_per_round or 0) * (len(chosen) if self.mixed else 1)
                for load in self._loads(suite):
                    made.append(
                        Block(
                            number=len(made),
                            class_=class_,
                            load=load,
                            entries=entries,
                            requests=max(len(entries), least),
                        )
                    )
        return tuple(made)

    def _loads(self, suite: Suite) -> list[Load]:
        if self.rate_per_s is not None:
            return [Load(rate_per_s=self.rate_per_s)]
        return [Load(concurrency=each) for each in self.concurrency or suite.defaults.concurrency]

    def _entries(self, suite: Suite, class_: str) -> tuple[Entry, ...]:
        return tuple(
            Entry(
                suite=suite.name, prompt=prompt, max_tokens=self._most(suite, prompt),
                ignore_eos=suite.defaults.ignore_eos,
            )
            for prompt in suite.of_class(class_)[: self.prompts_per_class]
        )  # fmt: skip

    def _most(self, suite: Suite, prompt: Prompt) -> int:
        if prompt.max_tokens is None:
            return self.max_tokens or suite.defaults.max_tokens
        return min(prompt.max_tokens, self.max_tokens or prompt.max_tokens)
