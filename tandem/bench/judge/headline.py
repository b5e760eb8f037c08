"""The verdict on a variant: one word and one sentence for whoever has to decide, and what limits it.

Invariant: the first that holds: a failed control makes it void; failures that the other arm did not have make it not
comparable; only then do the cells decide, by the time that a user waits (DECIDING). An arm whose output is not the
baseline's is never called faster without that in the same breath, and equal times of answers of other lengths are not
called the same. What was measured within one start of the servers is called so. What each word rests on:
docs/bench.md#the-verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from tandem.bench.columns import Whole
from tandem.bench.judge import because, said, survivors
from tandem.bench.judge.cells import counted_rounds
from tandem.bench.judge.form import (
    Cell,
    Controls,
    Equality,
    Evidence,
    Finding,
    Headline,
    Load,
    OutputFinding,
    Overall,
    Ratio,
    Share,
    Word,
)
from tandem.bench.judge.interval import LEVEL, estimate
from tandem.bench.judge.observations import UNKNOWN, Observations
from tandem.bench.judge.pairs import DECIDING, Grouped
from tandem.bench.judge.ratio import ratio_of
from tandem.bench.judge.survivors import Failures, more_often
from tandem.bench.judge.words import number
from tandem.bench.judge.worth import Broken, broken, worthless

BESIDE = "tpot_ms"
"""What is said beside where answers are of other lengths: it does not grow with them."""

_LENGTH = "completion_tokens"
_WORDS: tuple[Word, ...] = ("faster", "slower", "same", "mixed", "no evidence")
_UNRESERVED = ("no evidence", "not comparable", "void")
_OUTPUTS: Mapping[OutputFinding, str] = {
    "the same": "", "not shown": ", output not shown to be the same", "not the same": " but not the same output",
}  # fmt: skip
_Place = tuple[str, Load]


def headlines(
    seen: Observations, cells: Sequence[Cell], controls: Controls, equality: Sequence[Equality], *, margin: float
) -> tuple[Headline, ...]:
    """Return the verdict on every variant.

    Args:
        seen: the run.
        cells: all of them, judged.
        controls: what voids the run, and what limits it.
        equality: of the outputs; a variant without one is not shown to give the baseline's output.
        margin: within which a speed-up is `same`, and a ratio of lengths none to speak of.
    """
    grouped = Grouped(seen, counted_rounds(seen, controls))
    by_variant = {one.variant: one for one in equality}
    return tuple(
        _headline(
            _Case(
                grouped=grouped,
                variant=variant,
                cells=tuple(cell for cell in cells if cell.variant == variant),
                controls=controls,
                equality=by_variant.get(variant),
                failures=survivors.count(grouped, seen.baseline, variant).of_all(),
                margin=margin,
            )
        )
        for variant in seen.variants
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    """What is known of one variant."""

    grouped: Grouped
    variant: str
    cells: tuple[Cell, ...]
    controls: Controls
    equality: Equality | None
    failures: Failures
    margin: float

    @property
    def seen(self) -> Observations:
        return self.grouped.seen

    @property
    def baseline(self) -> str:
        return self.seen.baseline

    @cached_property
    def deciding(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.metric == DECIDING)

    def of(self, word: Word) -> tuple[Cell, ...]:
        """Return the classes at loads that are so; equal times of other lengths are no evidence."""
        return tuple(cell for cell in self.deciding if self._word(cell) == word)

    def _word(self, cell: Cell) -> Word:
        return "no evidence" if cell.verdict == "same" and _place(cell) in self.lengths else cell.verdict

    @cached_property
    def evidence(self) -> Evidence:
        """What the verdict holds for: across starts where that is so in every class that is judged."""
        judged = [cell.evidence for cell in self.deciding if cell.p is not None]
        return "across-starts" if judged and set(judged) == {"across-starts"} else "one-start"

    @cached_property
    def output(self) -> OutputFinding:
        """Whether the variant's outputs are shown to be the baseline's."""
        if self.altered:
            return "not the same"
        refused = any(2 * arm.refused > arm.checked for arm in self.broken)
        shown = not refused and self.equality is not None and self.equality.result == "the same"
        return "the same" if shown else "not shown"

    @cached_property
    def compared(self) -> Mapping[_Place, Ratio]:
        """Tokens of the variant's answers as a ratio of the baseline's, where servers counted them."""
        judged = [cell for cell in self.deciding if cell.p is not None]
        found = {_place(cell): self._length(cell, 1 - (1 - LEVEL) / len(judged)) for cell in judged}
        return {place: ratio for place, ratio in found.items() if ratio is not None}

    @cached_property
    def lengths(self) -> Mapping[_Place, Ratio]:
        """The same where answers are of other lengths beyond doubt."""
        return {place: ratio for place, ratio in self.compared.items() if _apart(ratio, self.margin)}

    def _length(self, cell: Cell, level: float) -> Ratio | None:
        class_, load = self.seen.classes.index(cell.class_), self.seen.loads.index(cell.load)
        pairs = self.grouped.pairs(
            baseline=self.baseline, variant=self.variant, class_=class_, load=load, metric=_LENGTH
        )
        return ratio_of(estimate(-pairs.logs, level=level))  # of a length, more is more

    @cached_property
    def worthless(self) -> str:
        """Why no speed is worth anything: neither arm gives text; empty where that is not so."""
        return worthless(self.grouped, self.baseline, self.variant)

    @cached_property
    def broken(self) -> tuple[Broken, ...]:
        """What the content check refused of the variant and of the baseline."""
        return broken(self.grouped, self.variant, self.baseline)

    @cached_property
    def altered(self) -> bool:
        """Whether the variant's output is shown to be another: other text, other lengths, or more broken answers."""
        equality = self.equality
        if self.lengths:
            return True
        if equality is None:
            return False
        garbage, of_baseline = equality.garbage, equality.garbage_of_baseline
        return (
            equality.result == "differs"
            or (equality.lengths is not None and _apart(equality.lengths, self.margin))
            or (garbage is not None and more_often(garbage.n, garbage.of, *_counts(of_baseline, garbage.of)))
        )


def _counts(share: Share | None, of: int) -> tuple[int, int]:
    return (share.n, share.of) if share is not None else (0, of)


def _place(cell: Cell) -> _Place:
    return cell.class_, cell.load


def _apart(ratio: Ratio, margin: float) -> bool:
    """Return whether a ratio of lengths, interval and all, lies beyond the margin."""
    low, high = ratio.low or ratio.value, ratio.high or ratio.value
    return high < 1 / (1 + margin) or low > 1 + margin


def _headline(case: _Case) -> Headline:
    finding = _find(case)
    judged = finding != "void"
    faster, slower, same, mixed, open_ = (
        tuple(said.label(cell) for cell in case.of(word)) if judged else () for word in _WORDS
    )
    return Headline(
        variant=case.variant, verdict=word_verdict(finding, case.evidence, case.output), finding=finding,
        evidence=case.evidence, output=case.output, sentence=_sentence(case, finding),
        reasons=_ended(_reasons(case, finding)), faster=faster, slower=slower, same=same, mixed=mixed,
        undecided=open_, metric=DECIDING,
    )  # fmt: skip


def word_verdict(finding: Finding, evidence: Evidence, output: OutputFinding) -> Overall:
    """Return a finding with its reservations."""
    if finding in _UNRESERVED:
        return cast("Overall", finding)
    start = "" if evidence == "across-starts" else " within one start"
    told = _OUTPUTS[output] if finding == "faster" else ""
    return cast("Overall", f"{finding}{start}{told}")


def _ended(reasons: Iterator[str]) -> tuple[str, ...]:
    """Return each reason once, with a full stop."""
    return tuple(dict.fromkeys(f"{reason.rstrip('.')}." for reason in reasons))


def _find(case: _Case) -> Finding:
    if case.controls.void:
        return "void"
    if case.failures.differ:
        return "not comparable"
    if case.of("mixed") or (case.of("faster") and case.of("slower")):
        return "mixed"
    if case.of("faster"):
        return "faster"
    if case.of("slower"):
        return "slower"
    return "same" if case.of("same") and not case.of("no evidence") else "no evidence"


def _sentence(case: _Case, finding: Finding) -> str:
    if finding == "void":
        return f"The run is void, so nothing is concluded of {case.variant}: {case.controls.void[0].rstrip('.')}."
    if finding == "not comparable":
        counts = case.failures.sentence(case.baseline, case.variant)
        return f"{case.variant} cannot be compared with {case.baseline}, only what both answered could: {counts}."
    compared = said.compared(case.variant, case.baseline, [case.of(word) for word in _WORDS], case.margin)
    if finding == "no evidence" and not case.of("same"):
        return f"{compared}{_nothing(case)}{_refused(case)}."
    start = "" if case.evidence == "across-starts" or finding == "no evidence" else _within(case)
    return f"{start}{compared}{_OUTPUT_SENTENCES[case.output]}{_refused(case)}."


def _within(case: _Case) -> str:
    """Return of which starts a word is true, as the beginning of a sentence."""
    rows = case.seen.of_arm(case.baseline) | case.seen.of_arm(case.variant)
    arms, starts = case.seen.arm[rows], case.seen.start[rows]
    if len(set(zip(arms.tolist(), starts.tolist(), strict=True))) > 2:  # noqa: PLR2004 - one of each arm
        return "Within the starts that were measured, "
    return "Within one start of each server, "


def _refused(case: _Case) -> str:
    """Return how many answers the content check refused, of either arm, as the end of a sentence; empty of none."""
    if case.worthless or not any(arm.refused for arm in case.broken):
        return ""
    counts = [
        f"{arm.refused} of {arm.checked} answers of {arm.arm}"
        + (f" ({', '.join(f'{number} {word}' for word, number in arm.words)})" if arm.words else "")
        for arm in case.broken
    ]
    return f"; the content check refused {' and '.join(counts)}"


_OUTPUT_SENTENCES: Mapping[OutputFinding, str] = {
    "the same": "; outputs are the same", "not shown": "; that outputs are the same is not shown",
    "not the same": ", but its outputs are not the same",
}  # fmt: skip


def _nothing(case: _Case) -> str:
    """Return why no class could be judged at all; empty where some had an estimate."""
    if case.worthless:
        return f": {case.worthless}"
    few = because.few_rounds(max((cell.rounds for cell in case.deciding), default=0))
    if few:
        return f": {few}"
    reasons = {cell.why for cell in case.deciding}
    if not case.deciding:
        return ": the run has no record"
    if len(reasons) > 1 or any(cell.p is not None for cell in case.deciding):
        return ""
    return f": {'in every class, ' if len(case.deciding) > 1 else ''}{reasons.pop()}"


def _reasons(case: _Case, finding: Finding) -> Iterator[str]:
    """Yield what limits a verdict, most important first."""
    yield from case.controls.void
    if case.failures.variant or case.failures.baseline:
        yield case.failures.sentence(case.baseline, case.variant)
    yield from _of_output(case)
    yield from case.controls.cautions
    yield from _of_absent(case)
    if finding not in {"void", "not comparable"} and not case.worthless:
        yield from _of_open(case)


def _of_output(case: _Case) -> Iterator[str]:
    if case.equality is None:
        yield "outputs were not held against each other"
    elif case.altered or case.equality.result != "the same":
        yield case.equality.sentence
    if (
        not case.compared
        and (case.equality is None or case.equality.lengths is None)
        and any(cell.p is not None for cell in case.deciding)
    ):
        yield "no server counted tokens of 3 prompts: whether answers are of one length is not known"
    beside = {_place(cell): cell for cell in case.cells if cell.metric == BESIDE}
    for (class_, load), ratio in list(case.lengths.items())[: said.MOST]:
        cell = beside.get((class_, load))
        per_token = number(cell.speed_up.value) if cell is not None and cell.speed_up else None
        told = (
            f"; by the time of a token it is {per_token} times as fast ({cell.verdict})" if cell and per_token else ""
        )
        yield f"answers to {class_} prompts are {number(ratio.value)} times as long{told}"


def _of_absent(case: _Case) -> Iterator[str]:
    """Yield what could not be checked, and so is in no interval; where a check cautions, its caution says it."""
    done = {check.name for check in case.controls.checks if check.result != "absent"}
    if not case.controls.floors and not any("noise floor" in caution for caution in case.controls.cautions):
        yield "no noise floor: the baseline was not asked against itself"
    known = _known(case, case.seen.placement)
    if known < 2 and "placement" not in done:  # noqa: PLR2004 - here, then there
        number_of = "1 placement" if known else "no placement is recorded"
        yield f"{number_of} of {case.variant}: the interval leaves out how the halves of a host differ"
    own = {"baseline against itself", "placement"}
    yield from (check.sentence for check in case.controls.checks if check.result == "absent" and check.name not in own)
    if case.controls.marked:
        count = len(case.controls.marked)
        yield f"{count} round{'' if count == 1 else 's'} left out: the measuring machine was the bottleneck"


def _known(case: _Case, codes: Whole) -> int:
    """Return how many places or starts the variant's requests say they met."""
    met = codes[case.seen.of_arm(case.variant)]
    return len(np.unique(met[met != UNKNOWN]))


def _of_open(case: _Case) -> Iterator[str]:
    open_ = [cell for cell in case.of("no evidence") if cell.verdict == "no evidence"]
    for cell in open_[: said.MOST]:
        yield f"{said.label(cell)}: {cell.why}"
    if len(open_) > said.MOST:
        yield f"{len(open_) - said.MOST:,} more classes are undecided; each cell says why"
