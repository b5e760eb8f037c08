"""The verdict on a run, from its records, in the form of verdict.json.

Invariant: the module that owns a part makes it from the records of this folder. Nothing comes from
an earlier verdict. The same files and the same flags give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.summary import RecordSummary, summarize_table
from tandem.bench.load import host
from tandem.bench.records import counters, json_file
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.manifest import FILE as MANIFEST
from tandem.bench.records.manifest import RunManifest, run_id
from tandem.bench.records.quality_rows import read_quality
from tandem.errors import InputError
from tandem.judge.acceptance import compute_acceptance
from tandem.judge.arm_figures import measure_arms
from tandem.judge.cells import judge_speed_ups
from tandem.judge.controls import check_controls
from tandem.judge.cost import compute_costs
from tandem.judge.decision import require_margin
from tandem.judge.equality.output_equality import compare_outputs
from tandem.judge.headline import build_headlines, withhold_words
from tandem.judge.pairs import RequestPairing
from tandem.judge.quality import judge_quality
from tandem.judge.routing import route_classes
from tandem.judge.schema import FILE, MARGIN, LoadRouting, Verdict
from tandem.shell_command import quote_command

RUN_FILES = (RECORDS_FILE, counters.FILE, host.FILE, MANIFEST)
"""The files of a run that a verdict needs. The second and the third may be absent; then their
figures are too."""

_CLOCK_TOLERANCE_S = 60.0  # records are written out of order by less than this


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """Options of the person who reads a run.

    Args:
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.
        usd_per_hour: in place of the manifest's price; None keeps that.
        tokenizer: the target's tokenizer.json, for outputs of servers that give no token ids; None
            compares characters.

    Raises:
        InputError: the margin is not above 0.
    """

    margin: float = MARGIN
    usd_per_hour: float | None = None
    tokenizer: Path | None = None

    def __post_init__(self) -> None:
        """Refuse a margin by which nothing could be `same`."""
        require_margin(self.margin)


DEFAULT_OPTIONS = JudgeOptions()


def explain_unjudged(run: RunManifest) -> str | None:
    """Return why a run has no verdict; None where it has one."""
    if run.generator == "llmperf":
        return "llmperf's records have neither prompts nor tokens, so no verdict is built on them"
    if not run.arms:
        return "the manifest names no arm: restore it from a copy"
    if run.goodput_share is not None:
        return "the run searched a knee, where no two arms share a load"
    if len(run.arms) < 2:  # noqa: PLR2004 - a comparison takes two
        return "one arm was measured, so there is nothing to compare: name a --variant"
    return None


def judge_run(
    table: RequestTable,
    options: JudgeOptions = DEFAULT_OPTIONS,
    run_summary: RecordSummary | None = None,
) -> Verdict:
    """Return the verdict on a run.

    >>> from tandem.bench import read_request_table
    >>> verdict = judge_run(read_request_table("monday"))
    >>> verdict.headlines[0].verdict, verdict.headlines[0].faster
    ('faster (restarts not tested)', ('repeat at concurrency 4',))
    >>> for cell in verdict.cells:
    ...     if cell.metric == "e2e_ms":
    ...         ends = cell.speed_up
    ...         print(cell.class_, cell.verdict, f"{ends.low:.2f} to {ends.high:.2f}")
    repeat faster 2.71 to 2.87
    open same 0.98 to 1.02

    Args:
        table: its requests.
        options: how to judge it.
        run_summary: of the table, if the caller has it already; None computes it.

    Raises:
        InputError: the run has one arm, is one of LLMPerf, or its manifest's names leave no arm to
            judge; or a file that an option names cannot be used.
    """
    _require_arms(table)
    return _build_verdict(table, options, run_summary or summarize_table(table))


def describe_arm(
    table: RequestTable,
    options: JudgeOptions = DEFAULT_OPTIONS,
    run_summary: RecordSummary | None = None,
) -> Verdict:
    """Return every figure of a run of one server, in the form of a verdict without a variant.

    Checks that need a second server are left out. Arguments as for `judge_run`.
    """
    figures = _build_verdict(table, options, run_summary or summarize_table(table))
    checks = tuple(check for check in figures.controls.checks if check.result != "absent")
    return msgspec.structs.replace(
        figures, controls=msgspec.structs.replace(figures.controls, checks=checks)
    )


def _build_verdict(
    table: RequestTable,
    options: JudgeOptions,
    run_summary: RecordSummary,
) -> Verdict:
    run = table.run
    margin = options.margin
    price = options.usd_per_hour if options.usd_per_hour is not None else run.price_usd_per_hour
    controls = check_controls(table)
    pairing = RequestPairing(table, controls.marked_rounds)
    equality = compare_outputs(table, tokenizer=options.tokenizer)
    quality = tuple(judge_quality(read_quality(table.folder), table.baseline, table.variants))
    speed_ups = judge_speed_ups(pairing, controls, margin=margin)
    headlines = build_headlines(
        pairing, speed_ups, controls, equality, margin=margin, quality=quality
    )
    speed_ups = withhold_words(speed_ups, headlines)
    routing: tuple[LoadRouting, ...] = ()
    if not controls.void:
        routing = route_classes(
            pairing, speed_ups, usd_per_hour=price, controls=controls, margin=margin
        )
    return Verdict(
        version=run.version,
        run=run_id(run),
        folder=table.folder.resolve().name,
        created_utc=run.created_utc,
        simulated=run.simulated,
        baseline=table.baseline,
        variants=table.variants,
        suites=run.suites,
        speculating=tuple(arm.name for arm in run.arms if arm.speculates),
        requests=len(table),
        failed=int(table.failed.sum()),
        margin=margin,
        controls=controls,
        cells=speed_ups.cells,
        overall=speed_ups.overall,
        arms=measure_arms(table, controls),
        goodput=run.goodput or {},
        attainment=speed_ups.attainment,
        equality=equality,
        acceptance=compute_acceptance(table),
        quality=quality,
        headlines=headlines,
        cost=compute_costs(table, usd_per_hour=price, controls=controls),
        routing=routing,
        notes=tuple(dict.fromkeys([*run_summary.notes, *table.torn_lines, *_note_clock(table)])),
        acceptance_notes=run_summary.acceptance_notes,
        recompute=tuple(_describe_recomputation(table.folder, options, run)),
    )


def _require_arms(table: RequestTable) -> None:
    """Refuse a run without two arms to judge."""
    reason = explain_unjudged(table.run)
    where = str(table.folder / MANIFEST)
    if reason is not None:
        raise InputError(
            f"no verdict: {reason}", where=where, change="judge a run of two servers or more"
        )
    if not table.variants:
        raise InputError(
            f"no arm can be compared with {table.baseline}: every other arm has its name or that of"
            " its control",
            where=where,
            change=(
                "give it a name of its own, without a #, here and in the .jsonl files,"
                " or measure again"
            ),
        )


def save_verdict(folder: Path, verdict: Verdict) -> Path:
    """Write verdict.json whole: a reader sees the old one or the new one.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    path = folder / FILE
    json_file.save_json(path, verdict, label="the verdict")
    return path


def _note_clock(table: RequestTable) -> Iterator[str]:
    """Yield a note if the records' clock ran backwards: they stand in order of their ends."""
    backward_rows = np.flatnonzero(np.diff(table.end_s) < -_CLOCK_TOLERANCE_S)
    if len(backward_rows):
        yield (
            "the clock of the records runs backwards, first at"
            f" {RECORDS_FILE}:{int(backward_rows[0]) + 2}: the machine was booted anew, or its"
            " clock was set; a request is timed by itself, so speed-ups hold, but drift and cost"
            " may not"
        )


def _describe_recomputation(folder: Path, options: JudgeOptions, run: RunManifest) -> Iterator[str]:
    """Yield the command that makes the same verdict from a copy of the folder."""
    flags = []
    if options.margin != MARGIN:
        flags += ["--margin", f"{options.margin:.15g}"]
    if options.usd_per_hour is not None:
        flags += ["--price", f"{options.usd_per_hour:.15g}"]
    if options.tokenizer is not None:
        flags += ["--tokenizer", options.tokenizer.name]
    yield quote_command("tandem", "bench", "report", folder.resolve().name, *flags)
    names = f"{', '.join(RUN_FILES[:-1])} and {RUN_FILES[-1]}"
    yield f"measured by Tandem {run.version}; {names} are all it needs"
