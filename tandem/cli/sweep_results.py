"""Files and screen of a sweep's decision: decision.json, a page, the experiment's edit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec

from tandem.artifacts.store import ObjectStore
from tandem.bench.records.terminal_table import format_table
from tandem.bench.records.terminal_text import wrap_text
from tandem.errors import ExternalError, InputError, SchemaError, convert_os_errors
from tandem.judge.sweep_record import CandidateRecord, SweepRecord
from tandem.plan.sweep_patch import patch_experiment
from tandem.report.chart_page import PageHeader
from tandem.report.sweep_page import write_sweep_page
from tandem.run.round_records import download_results
from tandem.run.run_keys import DECISION_FILE, pair_run
from tandem.run.run_values import SCHEMA, StepRecord, list_confirmed
from tandem.run.sweep_pairs import list_pairs

PAGE_FILE = "decision.html"
PATCH_FILE = "experiment.patch"
WIDTH = 100  # of a line on the screen, in columns


def find_decision(steps: Mapping[str, StepRecord]) -> SweepRecord | None:
    """Return the decision of a sweep; None of another run, or as long as there is none.

    Args:
        steps: of the run by their names.

    Raises:
        SchemaError: the decision has another schema.
    """
    judge = steps.get("judge")
    decision = judge.result.get("decision") if judge else None
    if not decision:
        return None
    if decision.get("schema") != SCHEMA:
        raise SchemaError(
            "the decision", decision.get("schema"), SCHEMA, where="the run's step `judge`"
        )
    return msgspec.convert(decision, SweepRecord)


def format_decision(record: SweepRecord) -> Iterator[str]:
    """Yield the decision, a table of candidates, and why some cannot win or were not measured."""
    yield from wrap_text(record.sentence, WIDTH)
    yield ""
    heads = ("candidate", "state", "speed-up", "95 %", "good tokens/USD", "node min", "USD")
    yield from format_table(heads, map(_format_candidate, record.candidates), numbers=(2, 5, 6))
    yield ""
    for row in record.candidates:
        if row.reason:
            yield from wrap_text(f"{row.variant} ({row.state}): {row.reason}", WIDTH, indent="  ")
    if any(row.reason for row in record.candidates):
        yield ""
    budget = ""
    if record.budget_usd:
        budget = f" of a budget of {record.budget_usd:.2f}"
    compiles = "no compile"
    if record.compile_minutes:
        compiles = f"{record.compile_minutes:.0f} of them compile"
    yield f"{record.node_minutes:.0f} node-minutes, {compiles}; {record.usd:.2f} USD{budget}"


def _format_candidate(row: CandidateRecord) -> tuple[str, ...]:
    figures = ["", "", ""]
    if row.speed_up is not None:
        value, low, high = row.speed_up
        figures = [f"{value:.2f}", f"{low:.2f} to {high:.2f}", ""]
        if row.goodput_per_usd:
            plain, own = row.goodput_per_usd
            figures[2] = f"{own / plain:.2f} x plain"
    cost = ["", ""]
    if row.speed_up is not None or row.results:
        cost = [f"{row.node_minutes:.0f}", f"{row.usd:.2f}"]
    return row.variant, row.state, *figures, *cost


def write_decision(
    record: SweepRecord,
    steps: Mapping[str, StepRecord],
    store: ObjectStore,
    experiment_file: Path,
    out: Path,
) -> list[str]:
    """Write the decision, its page, the edit and each pair's folder; return their names.

    Args:
        record: the decision.
        steps: of the run by their names.
        store: the bucket.
        experiment_file: the file to edit; a sweep without an end edits nothing.
        out: a new folder.

    Raises:
        InputError: the folder exists, or the experiment has no sweep any more.
        ExternalError: the disk or S3 failed.
    """
    if out.exists():
        raise InputError("it exists", where=str(out), change="name a new folder")
    texts = {DECISION_FILE: msgspec.json.format(msgspec.json.encode(record)).decode() + "\n"}
    if record.word == "decided":
        texts[PATCH_FILE] = _build_patch(record, experiment_file)
    with convert_os_errors(
        "the results cannot be written", out, "name another folder", ExternalError
    ):
        out.mkdir(parents=True)
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    _write_page(record, out)
    names = [*texts, PAGE_FILE]
    for pair in list_pairs(steps):
        if pair.verdict is not None:
            name = pair_run(record.run, pair.number)
            confirmed_rounds = list_confirmed(pair.steps.values())
            download_results(store, record.experiment, name, out / name, confirmed_rounds)
            names.append(name)
    return names


def _write_page(record: SweepRecord, out: Path) -> None:
    minutes = f"{record.node_minutes:.0f} node-minutes"
    compiles = f"{record.compile_minutes:.0f} of them compile"
    header = PageHeader(
        title=record.sentence,
        eyebrow=f"Sweep {record.run} of {record.experiment}",
        version=version("tandem"),
        sentences=(f"{minutes}, {compiles}: {record.usd:.2f} USD.",),
        source="the verdicts of the pairs",
        is_simulated=record.is_simulated,
    )
    write_sweep_page(header, record.candidates, out / PAGE_FILE)


def _build_patch(record: SweepRecord, experiment_file: Path) -> str:
    fields: dict[str, str | int] = {}
    for row in record.candidates:
        if row.variant == record.winner:
            fields = {
                "name": row.variant,
                "draft": row.draft,
                "num_speculative_tokens": row.num_speculative_tokens,
            }
    with convert_os_errors(
        "the experiment cannot be read", experiment_file, "name its folder by --experiments"
    ):
        text = experiment_file.read_text(encoding="utf-8")
    name = f"experiments/{experiment_file.name}"
    return patch_experiment(text, name, fields, record.output_note)
