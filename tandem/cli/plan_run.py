"""A run's own figures for `tandem plan --from DIR`: acceptance and a draft forward's time.

Invariant: a figure of a simulated run is never taken for one of an accelerator; who prints it says
simulated.
"""

from __future__ import annotations

from itertools import count, takewhile
from pathlib import Path

from tandem.bench.figures.request_table import read_request_table
from tandem.bench.figures.summary import ALL_CLASSES, RecordSummary, summarize_run
from tandem.bench.records.manifest import UNNAMED_METHOD, RunManifest, read_manifest
from tandem.cli.plan_figures import list_drafts
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment
from tandem.errors import InputError
from tandem.metrics import acceptance_position
from tandem.plan.plan_basis import DraftBasis, DraftShare
from tandem.plan.step_tokens import CommitLaw, find_acceptance
from tandem.report.plan_page import MeasuredPoint

DRAFTLESS = {None, "ngram", "suffix"}  # methods that run no draft model


def measure_drafts(
    folder: Path, experiment: Experiment, catalogue: Catalogue, draft: str | None
) -> dict[str, DraftBasis]:
    """Return what a run measured of each draft; of a draft with several windows, by the longest.

    A run of servers by URL may be of any hardware, so it gives acceptance and no cost.

    Args:
        folder: of `tandem bench run`, or of `tandem results --out`.
        experiment: what is planned, which the run's experiment must be, if it names one.
        catalogue: of the runtimes.
        draft: the model that drafts in the run; None to take it from the experiment.

    Raises:
        InputError: it is no run, or another experiment's; no arm drafts with a model, or nobody
            knows with which; nothing was counted.
    """
    manifest = read_manifest(folder)
    where = str(folder)
    if manifest.experiment not in {None, experiment.name}:
        change = f"name a run of {experiment.name}, or plan {manifest.experiment}"
        raise InputError(
            f"the run is of the experiment {manifest.experiment}", where=where, change=change
        )
    windows = _list_arm_windows(manifest)
    if not windows:
        change = "measure with --experiment, or say it with --speculates NAME=K"
        raise InputError(
            "the run does not say which arm drafts with which window", where=where, change=change
        )
    summary = summarize_run(folder)
    is_deployed = manifest.experiment is not None
    bases: dict[str, DraftBasis] = {}
    for arm in sorted(windows, key=lambda arm: windows[arm], reverse=True):
        runtime = next(row.runtime for row in manifest.arms if row.name == arm)
        law = catalogue.runtimes[runtime].counters.tokens_per_step.value if runtime else "k+1"
        names = (manifest.arms[0].name, arm)
        basis = _measure_arm(summary, names, (law, windows[arm]), has_cost=is_deployed)
        if basis is not None:
            bases.setdefault(_find_draft(experiment, arm, draft, where), basis)
    if not bases:
        change = "use a run whose server counts drafts (docs/measurement.md), or pass --acceptance"
        names_text = ", ".join(windows)
        raise InputError(
            f"the run counted no acceptance of {names_text}", where=where, change=change
        )
    return bases


def _list_arm_windows(manifest: RunManifest) -> dict[str, int]:
    """Return the window of each arm that drafts with a model."""
    windows = {}
    for arm in manifest.arms:
        speculation = arm.speculation
        if speculation is None or speculation.method in DRAFTLESS:
            continue
        if speculation.num_speculative_tokens:
            windows[arm.name] = speculation.num_speculative_tokens
    return windows


def _find_draft(experiment: Experiment, arm: str, draft: str | None, where: str) -> str:
    """Return the model that drafts in an arm.

    Raises:
        InputError: neither the flag nor the experiment says it.
    """
    if draft is not None:
        return draft
    drafts = {variant.name: variant.draft for variant in experiment.all_variants()}
    own_draft = drafts.get(arm)
    if own_draft is not None:
        return own_draft
    models = list_drafts(experiment)
    if len(models) == 1:
        return models[0]
    change = f"name it: --from DRAFT=DIR, DRAFT one of {', '.join(models)}"
    raise InputError(
        f"the run does not say which model drafts in {arm}", where=where, change=change
    )


def _measure_arm(
    summary: RecordSummary, names: tuple[str, str], rule: tuple[CommitLaw, int], *, has_cost: bool
) -> DraftBasis | None:
    """Return acceptance, and with `has_cost` the draft's share, of an arm; None if not counted."""
    points = {
        class_: _measure_class(summary, class_, names, rule) for class_ in _list_classes(summary)
    }
    counted = {class_: point for class_, point in points.items() if point is not None}
    pooled = counted.get(ALL_CLASSES)
    if pooled is None and len(counted) == 1:
        (pooled,) = counted.values()
    if pooled is None:
        return None

    shares = [share for _, share in counted.values()]
    share = DraftShare(pooled[1], min(shares), max(shares), "measured")
    return DraftBasis(
        acceptance=pooled[0],
        acceptance_basis="measured",
        position_rates=_list_position_rates(summary, names[1]),
        share=share if has_cost else None,
        is_simulated=bool(summary.simulated),
    )


def _list_position_rates(summary: RecordSummary, arm: str) -> tuple[float, ...]:
    """Return the rates of an arm over all classes at its first load, position by position."""
    cells = [cell for cell in summary.cells if (cell.arm, cell.class_) == (arm, ALL_CLASSES)]
    means = {cell.metric: cell.mean for cell in reversed(cells)}
    rates = (means.get(acceptance_position(position)) for position in count(1))
    return tuple(
        rate for rate in takewhile(lambda rate: rate is not None, rates) if rate is not None
    )


def read_run_points(folder: Path) -> tuple[MeasuredPoint, ...]:
    """Return the TPOT speed-up that a run measured of each drafting arm, by class and load.

    Args:
        folder: as of `measure_basis`.

    Raises:
        InputError: it is no run, or names no arm to judge.
    """
    from tandem.judge.verdict import JudgeOptions, judge_run  # noqa: PLC0415 - scipy

    table = read_request_table(folder)
    verdict = judge_run(table, JudgeOptions(), ())
    arms = {arm.name: arm for arm in table.run.arms}
    points = []
    for cell in verdict.cells:
        speculation = arms[cell.variant].speculation
        speed_up = cell.speed_up
        if (
            speculation is None
            or speculation.method in {*DRAFTLESS, UNNAMED_METHOD}
            or not speculation.num_speculative_tokens
        ):
            continue
        if cell.metric == "tpot_ms" and speed_up is not None and cell.load.concurrency is not None:
            points.append(
                MeasuredPoint(
                    class_=cell.class_,
                    draft=cell.variant,
                    window=speculation.num_speculative_tokens,
                    concurrency=cell.load.concurrency,
                    speed_up=speed_up.value,
                    low=speed_up.low,
                    high=speed_up.high,
                )
            )
    return tuple(points)


def _list_classes(summary: RecordSummary) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.class_ for cell in summary.cells))


def _measure_class(
    summary: RecordSummary, class_: str, names: tuple[str, str], rule: tuple[CommitLaw, int]
) -> tuple[float, float] | None:
    """Return acceptance and a draft's share of a plain step in a class; None if not counted."""
    means = {(cell.arm, cell.metric): cell.mean for cell in summary.cells if cell.class_ == class_}
    (baseline, variant), (law, window) = names, rule
    tokens = means.get((variant, "acceptance_length"))
    times = [means.get((name, "tpot_ms")) for name in (baseline, variant)]
    acceptance = None
    if tokens is not None:
        acceptance = find_acceptance(law, tokens, window)
    if acceptance is None or tokens is None or times[0] is None or times[1] is None:
        return None
    return acceptance, max(0.0, (tokens * times[1] / times[0] - 1) / window)
