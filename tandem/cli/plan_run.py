"""A run's own figures for `tandem plan --from DIR`: acceptance and a draft forward's time.

Invariant: a figure of a simulated run is never taken for one of an accelerator; who prints it says
simulated.
"""

from __future__ import annotations

from pathlib import Path

from tandem.bench.figures.request_table import read_request_table
from tandem.bench.figures.summary import ALL_CLASSES, RecordSummary, summarize_run
from tandem.bench.records.manifest import UNNAMED_METHOD, RunManifest, read_manifest
from tandem.cli.plan_figures import list_drafts
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment
from tandem.errors import InputError
from tandem.metrics import list_position_rates
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
    points = _measure_classes(summary, names, rule)
    pooled = points.get(ALL_CLASSES)
    if pooled is None and len(points) == 1:
        [pooled] = points.values()
    if pooled is None:
        return None

    acceptance, mean_share = pooled
    shares = [share for _, share in points.values()]
    share = DraftShare(mean_share, min(shares), max(shares), "measured")
    return DraftBasis(
        acceptance=acceptance,
        acceptance_basis="measured",
        position_rates=_list_position_rates(summary, names[1]),
        share=share if has_cost else None,
        is_simulated=bool(summary.simulated),
    )


def _measure_classes(
    summary: RecordSummary, names: tuple[str, str], rule: tuple[CommitLaw, int]
) -> dict[str, tuple[float, float]]:
    """Return acceptance and a draft's share of a plain step, of each class where both are known."""
    baseline, variant = names
    law, window = rule
    means = {(cell.class_, cell.arm, cell.metric): cell.mean for cell in summary.cells}
    points = {}
    for class_ in dict.fromkeys(cell.class_ for cell in summary.cells):
        tokens = means.get((class_, variant, "acceptance_length"))
        plain_ms = means.get((class_, baseline, "tpot_ms"))
        drafting_ms = means.get((class_, variant, "tpot_ms"))
        if tokens is None or plain_ms is None or drafting_ms is None:
            continue
        acceptance = find_acceptance(law, tokens, window)
        if acceptance is not None:
            share = (tokens * drafting_ms / plain_ms - 1) / window
            points[class_] = (acceptance, max(0.0, share))
    return points


def _list_position_rates(summary: RecordSummary, arm: str) -> tuple[float, ...]:
    """Return the rates of an arm over all classes at its first load, position by position."""
    means = {}
    for cell in reversed(summary.cells):
        if (cell.arm, cell.class_) == (arm, ALL_CLASSES):
            means[cell.metric] = cell.mean
    return list_position_rates(means.get)


def read_run_points(folder: Path) -> tuple[MeasuredPoint, ...]:
    """Return the TPOT speed-up that a run measured of each drafting arm, by class and load.

    Args:
        folder: as of `measure_drafts`.

    Raises:
        InputError: it is no run, or names no arm to judge.
    """
    from tandem.judge.verdict import JudgeOptions, judge_run  # noqa: PLC0415 - scipy

    table = read_request_table(folder)
    verdict = judge_run(table, JudgeOptions())
    arms = {arm.name: arm for arm in table.run.arms}
    points = []
    for cell in verdict.cells:
        speculation = arms[cell.variant].speculation
        if speculation is None or speculation.method in {*DRAFTLESS, UNNAMED_METHOD}:
            continue
        window = speculation.num_speculative_tokens
        concurrency = cell.load.concurrency
        speed_up = cell.speed_up
        if cell.metric != "tpot_ms" or not window or speed_up is None or concurrency is None:
            continue
        point = MeasuredPoint(
            class_=cell.class_,
            draft=cell.variant,
            window=window,
            concurrency=concurrency,
            speed_up=speed_up,
        )
        points.append(point)
    return tuple(points)
