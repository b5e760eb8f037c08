"""What `tandem plan` is told of drafts: acceptance, cost and runs, each for all drafts or for one.

Invariant: a figure that two flags give is refused, so that nobody wonders which of them counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment
from tandem.errors import InputError
from tandem.plan.forecast import convert_cost, fit_published_cost
from tandem.plan.measurement_rows import load_published
from tandem.plan.plan_basis import DraftBasis, DraftShare, PlanBasis
from tandem.plan.step_cost import StepCost
from tandem.plan.step_tokens import find_acceptance

MAX_COST = 100  # a draft forward in steps of the target


@dataclass(frozen=True, kw_only=True)
class PlanFigures:
    """The figures of the command line, each as [DRAFT=]VALUE.

    Args:
        acceptance: a share, or shares by position.
        cost: a draft forward in plain steps.
        runs: folders.
        tpot_ms: of the plain server; None where it is not known.
    """

    acceptance: Sequence[str] = ()
    cost: Sequence[str] = ()
    runs: Sequence[str] = ()
    tpot_ms: float | None = None


def list_drafts(experiment: Experiment) -> list[str]:
    """Return the models that draft, each once, in the order of the variants."""
    models = (variant.draft for variant in experiment.all_variants())
    return list(dict.fromkeys(model for model in models if model))


def build_basis(figures: PlanFigures, experiment: Experiment, catalogue: Catalogue) -> PlanBasis:
    """Return what a plan rests on: runs, then the user's figures, then what is published.

    Raises:
        InputError: no variant drafts with a model, or a figure is refused.
    """
    drafts = list_drafts(experiment)
    if not drafts:
        change = "add a variant with a draft, or name another experiment"
        raise InputError(
            "no variant drafts with a model", where=f"experiment {experiment.name}", change=change
        )
    cost, objection = fit_published_cost(load_published(), catalogue.models[experiment.target])
    bases = {draft: DraftBasis() for draft in drafts}
    bases |= _read_runs(figures.runs, experiment, catalogue)
    _add_acceptance(bases, figures.acceptance)
    _add_cost(bases, figures.cost, cost)
    if cost is not None and figures.tpot_ms is not None:
        share = convert_cost(cost, figures.tpot_ms)
        for draft, basis in bases.items():
            bases[draft] = replace(basis, share=basis.share or share)
    return PlanBasis(drafts=bases, cost=cost, objection=objection)


def _read_runs(
    words: Sequence[str], experiment: Experiment, catalogue: Catalogue
) -> dict[str, DraftBasis]:
    """Return what the named runs measured.

    Raises:
        InputError: a run is refused, or two are of one draft.
    """
    bases: dict[str, DraftBasis] = {}
    for word in words:
        from tandem.cli.plan_run import measure_drafts  # noqa: PLC0415 - numpy

        draft, folder = split_word(word, list_drafts(experiment))
        measured = measure_drafts(Path(folder), experiment, catalogue, draft)
        for double in bases.keys() & measured.keys():
            problem = f"two runs give figures of {double}"
            raise InputError(problem, where="--from", change="name one of them")
        bases |= measured
    return bases


def _add_acceptance(bases: dict[str, DraftBasis], words: Sequence[str]) -> None:
    for draft, text in _assign_words(words, list(bases), "--acceptance").items():
        if bases[draft].has_acceptance:
            raise _build_double(draft, "acceptance", "--acceptance")
        rates = _parse_rates(text)
        acceptance: float | None = rates[0]
        positions: tuple[float, ...] = ()
        if len(rates) > 1:
            positions = rates
            acceptance = find_acceptance("k+1", 1 + sum(rates), len(rates))
        assert acceptance is not None, "shares from 0 to 1 are what a step can commit"
        bases[draft] = replace(
            bases[draft],
            acceptance=acceptance,
            acceptance_basis="given",
            position_rates=positions,
        )


def _add_cost(bases: dict[str, DraftBasis], words: Sequence[str], cost: StepCost | None) -> None:
    for draft, text in _assign_words(words, list(bases), "--cost").items():
        if bases[draft].share is not None:
            raise _build_double(draft, "cost", "--cost")
        value = _parse_number(text, "--cost", MAX_COST, "0.1")
        verified = cost.verified_share if cost is not None else 0.0
        share = DraftShare(value, value, value, "given", verified=verified)
        bases[draft] = replace(bases[draft], share=share)


def _assign_words(words: Sequence[str], drafts: Sequence[str], flag: str) -> Mapping[str, str]:
    """Return the value of each draft that has one: its own, else the one for all.

    Raises:
        InputError: a draft has two values, or a word names no draft.
    """
    own: dict[str, str] = {}
    common: list[str] = []
    for word in words:
        draft, text = split_word(word, drafts)
        if draft is None and "=" in text:
            name = text.partition("=")[0]
            problem = f"the experiment has no draft {name}"
            raise InputError(problem, where=flag, change=f"name one of {', '.join(drafts)}")
        if draft is None:
            common.append(text)
        elif draft in own:
            raise InputError(f"two values of {draft}", where=flag, change="write one of them")
        else:
            own[draft] = text
    if len(common) > 1:
        problem = f"two values for all drafts: {' and '.join(common)}"
        raise InputError(problem, where=flag, change=f"write {flag} DRAFT=VALUE for each")
    return {draft: common[0] for draft in drafts if common} | own


def split_word(word: str, drafts: Sequence[str]) -> tuple[str | None, str]:
    """Return the draft of `DRAFT=VALUE`, by its id or the name in it, and the value."""
    name, equals, value = word.partition("=")
    matches = [draft for draft in drafts if name in {draft, draft.rpartition("/")[2]}]
    return (matches[0], value) if equals and len(matches) == 1 else (None, word)


def _parse_rates(text: str) -> tuple[float, ...]:
    """Return a share, or shares by position, which cannot rise from one to the next.

    Raises:
        InputError: it is no share, or a later one is larger.
    """
    rates = tuple(_parse_number(part, "--acceptance", 1, "0.8") for part in text.split(","))
    if list(rates) != sorted(rates, reverse=True):
        problem = f"got {text}, a later position with a larger share than an earlier one"
        change = "write the share of drafts whose token at each position was accepted, as 0.8,0.6"
        raise InputError(problem, where="--acceptance", change=change)
    return rates


def _parse_number(text: str, flag: str, limit: float, example: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= limit:
        raise InputError(
            f"got {text}", where=flag, change=f"write a number from 0 to {limit:g}, as {example}"
        )
    return value


def _build_double(draft: str, figure: str, flag: str) -> InputError:
    return InputError(
        f"a run gives the {figure} of {draft} already", where=flag, change=f"drop {flag} or --from"
    )
