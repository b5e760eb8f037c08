"""A run's own figures for `tandem plan --from DIR`: acceptance and a draft forward's time.

Invariant: a figure of a simulated run is never taken for one of an accelerator; who prints it says
simulated.
"""

from __future__ import annotations

from itertools import count, takewhile
from pathlib import Path

from tandem.bench.figures.request_table import read_request_table
from tandem.bench.figures.summary import ALL_CLASSES, RecordSummary, summarize_run
from tandem.bench.records.manifest import UNNAMED_METHOD, read_manifest
from tandem.errors import InputError
from tandem.metrics import acceptance_position
from tandem.plan.forecast import DraftShare, PlanBasis
from tandem.plan.step_tokens import CommitLaw, find_acceptance
from tandem.report.plan_page import MeasuredPoint

# methods that run no draft model, or of which nothing says so
DRAFTLESS = {None, "ngram", "suffix", UNNAMED_METHOD}


def measure_basis(folder: Path, experiment: str, law: CommitLaw) -> PlanBasis:
    """Return what a run measured of speculation.

    Args:
        folder: of `tandem bench run`, or of `tandem results --out`.
        experiment: whose run it must be.
        law: of the runtime.

    Raises:
        InputError: it is no run, or another experiment's; no arm drafts with a model; nothing was
            counted.
    """
    manifest = read_manifest(folder)
    where = str(folder)
    if manifest.experiment is not None and manifest.experiment != experiment:
        change = f"name a run of {experiment}, or plan {manifest.experiment}"
        raise InputError(
            f"the run is of the experiment {manifest.experiment}", where=where, change=change
        )
    arms = [
        arm for arm in manifest.arms if arm.speculation and arm.speculation.method not in DRAFTLESS
    ]
    arm = next(
        (arm for arm in arms if arm.speculation and arm.speculation.num_speculative_tokens), None
    )
    if arm is None or arm.speculation is None or arm.speculation.num_speculative_tokens is None:
        change = "measure with --experiment, which writes each arm's draft and window"
        raise InputError(
            "the run does not say which arm drafts with which window", where=where, change=change
        )
    summary = summarize_run(folder)
    window = arm.speculation.num_speculative_tokens
    names = (manifest.arms[0].name, arm.name)
    points = {
        class_: _measure_class(summary, class_, names, (law, window))
        for class_ in _list_classes(summary)
    }
    found = {class_: point for class_, point in points.items() if point is not None}
    pooled = found.get(ALL_CLASSES) or (next(iter(found.values())) if len(found) == 1 else None)
    if pooled is None:
        change = "use a run whose server counts drafts (docs/measurement.md), or pass --acceptance"
        raise InputError(f"the run counted no acceptance of {arm.name}", where=where, change=change)
    shares = [share for _, share in found.values()]
    share = DraftShare(pooled[1], min(shares), max(shares), "measured")
    return PlanBasis(
        pooled[0],
        "measured",
        share,
        bool(summary.simulated),
        _list_position_rates(summary, arm.name),
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
            or speculation.method in DRAFTLESS
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
    acceptance = None if tokens is None else find_acceptance(law, tokens, window)
    if acceptance is None or tokens is None or times[0] is None or times[1] is None:
        return None
    return acceptance, max(0.0, (tokens * times[1] / times[0] - 1) / window)
