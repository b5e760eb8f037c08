"""What a run says to each claim of the post: confirmed, contradicted, no evidence, not comparable, and why.

Invariant: every claim of the register has an answer for every variant, with figures where there are any; a claim about
the size of a figure is answered by a run of the post's own set-up alone; no gain is confirmed of a variant whose output
differs or that failed what the baseline answered; a run that is void, or whose answers are no text, says nothing; of
speed, neither does one of too few rounds for a verdict.
Claims that contradict each other are told against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tandem.bench.claims import set_up as claim_set_up
from tandem.bench.claims import speed as claim_speed
from tandem.bench.claims import work as claim_work
from tandem.bench.claims.case import Case, llmperf
from tandem.bench.claims.register import Claim, Register, register
from tandem.bench.claims.said import Said
from tandem.bench.judge import because
from tandem.bench.judge.cells import counted_rounds
from tandem.bench.judge.form import Acceptance, Answer, Cell, Controls, Equality
from tandem.bench.judge.observations import Observations
from tandem.bench.judge.pairs import Grouped

BY: Mapping[str, Callable[[Claim, Case], Said]] = {
    "best class": claim_speed.best_class,
    "cells": claim_speed.cells,
    "over time": claim_speed.over_time,
    "pattern": claim_speed.pattern,
    "drafts": claim_work.drafts,
    "windows of speculation": claim_work.windows,
    "cost": claim_work.cost,
    "equality": claim_work.equality,
    "steps": claim_work.steps,
    "declared": claim_set_up.declared,
    "set-up": claim_set_up.alike,
    "months": claim_set_up.months,
    "image": claim_set_up.image,
}
"""What answers each word of tandem.bench.claims.register.Asks."""

OF_THE_RUN = ("drafts", "windows of speculation", "declared", "months")
"""What is answered once a run: it compares variants, or no run can answer it."""

_OF_THE_MANIFEST = ("declared", "months", "set-up", "image")


def answers(  # noqa: PLR0913 - the signature is a sentence: a run, what was found of it, how to answer
    seen: Observations,
    cells: Sequence[Cell],
    equality: Sequence[Equality],
    acceptance: Sequence[Acceptance],
    *,
    margin: float,
    controls: Controls | None = None,
) -> tuple[Answer, ...]:
    """Return the answers in the register's order, one a variant, or one where it is the run's.

    Args:
        seen: the run.
        cells: every judged cell of it.
        equality: of each variant.
        acceptance: of each arm.
        margin: within which a speed-up is the same.
        controls: rounds that they mark are left out; where they void the run, nothing is concluded.

    Raises:
        BenchError: the register of claims is not as it must be.
    """
    known = register()
    grouped = Grouped(seen, counted_rounds(seen, controls) if controls is not None else None)
    cases = [
        Case(
            grouped=grouped, variant=variant, cells=tuple(cell for cell in cells if cell.variant == variant),
            equality=next((one for one in equality if one.variant == variant), None), acceptance=tuple(acceptance),
            margin=margin, set_up=known.set_up, family=max(sum(cell.prompts > 0 for cell in cells), 1),
        )
        for variant in seen.variants
    ]  # fmt: skip
    void = controls.void if controls is not None else ()
    return tuple(_against(_answers(known, cases, void)))


def _answers(known: Register, cases: Sequence[Case], void: Sequence[str]) -> list[Answer]:
    found = []
    for claim in known.claim:
        if not cases:
            found.append(_answer(claim, Said("not comparable", "this run has no variant to hold against a baseline")))
            continue
        if claim.asks in OF_THE_RUN:
            found.append(_answer(claim, _said(claim, cases[0], void)))
            continue
        found += [
            _answer(claim, _said(claim, case, void), case.variant, _of_llmperf(claim, case) if claim.llmperf else None)
            for case in cases
        ]
    return found


def _answer(claim: Claim, said: Said, variant: str | None = None, beside: str | None = None) -> Answer:
    why = f"{said.why.rstrip('.')}."
    return Answer(
        claim=claim.id, text=claim.text, where=claim.where, answer=said.answer, why=why,
        against=claim.against, llmperf=beside, variant=variant,
    )  # fmt: skip


def _of_llmperf(claim: Claim, case: Case) -> str | None:
    return llmperf(case, (*claim.classes, *claim.beside))


def _said(claim: Claim, case: Case, void: Sequence[str]) -> Said:
    if void and claim.asks not in _OF_THE_MANIFEST:
        return Said("no evidence", f"the run is void: {void[0]}")
    if case.worthless and claim.asks not in _OF_THE_MANIFEST:
        return Said("no evidence", case.worthless)
    said = _held(claim, case, BY[claim.asks](claim, case))
    if said.answer in {"confirmed", "contradicted"} and claim.asks not in _OF_THE_MANIFEST and case.differs():
        return said.and_(f"This is said of this run's servers, not of the post's: {case.differs()}")
    return said


def _held(claim: Claim, case: Case, said: Said) -> Said:
    """Take back an answer that this run cannot give, whatever its figures are."""
    few = because.few_rounds(case.count_rounds(claim.metrics, claim.classes))
    if few and claim.asks not in ("equality", *_OF_THE_MANIFEST) and said.answer != "not comparable":
        said = Said("no evidence", few)
    if said.answer == "confirmed" and claim.direction == "faster":
        if case.survivors():
            return Said("not comparable", f"{case.survivors()}, so only survivors are compared; {said.why}")
        if case.equality is not None and case.equality.result == "differs":
            return Said("not comparable", f"its output is not the baseline's, so its speed is of another; {said.why}")
    if claim.carries == "the post's set-up" and _of_another(claim, case):
        return Said("not comparable", f"it is about the post's set-up, and {_of_another(claim, case)}; {said.why}")
    return said


def _of_another(claim: Claim, case: Case) -> str:
    """Say in what the run is not what a claim about the post's set-up speaks of; tuning varies some of it."""
    return case.differs(tuned=claim.asks in OF_THE_RUN)


def _against(found: Sequence[Answer]) -> Iterable[Answer]:
    """Tell each claim that another one contradicts what became of that one."""
    became = {(one.claim, one.variant): one.answer for one in found}
    words = {
        "confirmed": "is confirmed", "contradicted": "is contradicted", "no evidence": "finds no evidence",
        "not comparable": "is not comparable with this run",
    }  # fmt: skip
    for one in found:
        said = [
            f"{other} says otherwise, and {words[answer]}"
            for other in one.against
            if (answer := became.get((other, one.variant))) is not None
        ]
        yield msgspec.structs.replace(one, why=f"{one.why} Against it: {'; '.join(said)}.") if said else one
