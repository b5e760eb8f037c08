"""The Job that judges a run: it publishes and judges its folder, stores verdict and judgment.

Invariant: judgment.json is stored after every file that it names. A file that was not published, or
missing records of llmperf, are a note in it. The sentence says SIMULATED if the servers are
simulated.
"""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path
from statistics import NormalDist, geometric_mean

import msgspec

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.files import compute_sha256, translate_disk_errors
from tandem.artifacts.retry import retry_upload
from tandem.artifacts.s3_transfer import upload_file
from tandem.artifacts.store import ObjectStore, open_store
from tandem.bench.figures.request_table import RequestTable
from tandem.bench.llmperf.results import GENERATOR as LLMPERF_FOLDER
from tandem.bench.records.quality_rows import QUALITY_FILE, QualityRow, write_quality
from tandem.errors import ExitCode, InputError
from tandem.judge.schema import RatioEstimate, Verdict
from tandem.judge.sweep_record import PairEvidence, PairVerdict, TaskWord
from tandem.judge.text_format import describe_quality, format_sentence
from tandem.judge.verdict import JudgeOptions
from tandem.post.run_answers import answer_run
from tandem.post.schema import save_answers
from tandem.report.run_report import RunReport, report_run
from tandem.run import round_records
from tandem.run.publication import RUN_FILES, publish_confirmed
from tandem.run.run_keys import JUDGMENT_FILE, job_prefix, results_prefix
from tandem.run.run_values import TASK_VARIABLE, BenchTask, JudgmentResult

START_SD = 0.015
"""Deviation of a server's speed from start to start, by which a pair of one start may be off;
assumed, as no source gives it for this hardware."""

TEXT_COLUMNS = 80
"""Width of verdict.txt, which `tandem results` prints on any terminal."""


def judge_run(task: BenchTask, folder: Path) -> int:
    """Judge the confirmed rounds of a run and store the results; return 0, also if the run is void.

    Args:
        task: of the Job; its round and attempt are ignored.
        folder: this process's own; its content is deleted.

    Raises:
        InputError: no round is confirmed, or one is not stored whole.
        ExternalError: the disk failed, or S3 failed for longer than the retries last.
    """
    if not task.confirmed:
        raise InputError(
            "no round is confirmed, so there is nothing to judge",
            where=TASK_VARIABLE,
            change="measure a round first",
        )
    store = open_store(task.bucket)
    shutil.rmtree(folder, ignore_errors=True)
    round_records.rebuild_folder(store, task.experiment, task.run, task.confirmed, folder)
    notes = [*publish_confirmed(task, folder), *_write_llmperf(store, task, folder)]
    _write_answers(store, task, folder)
    store_claims = None
    if task.claims == "post":
        store_claims = partial(_store_claims, task)
    report = report_run(folder, JudgeOptions(), store_claims)
    if report.faults:
        raise report.faults[0]
    judgment = JudgmentResult(
        sentence=describe_judgment(report),
        is_void=report.exit_code == ExitCode.VOID,
        exit_code=int(report.exit_code),
        notes=tuple(notes),
        pair_verdict=extract_verdict(report.verdict) if report.verdict else None,
        evidence=extract_evidence(report.verdict) if report.verdict else None,
    )
    lines = list(report.format_lines(width=TEXT_COLUMNS))
    if not report.verdict:
        lines.append(report.note)
    with translate_disk_errors(folder):
        (folder / round_records.VERDICT_TEXT).write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / JUDGMENT_FILE).write_bytes(msgspec.json.encode(judgment))
    _store_files(store, task, folder)
    log_event("judged", sentence=judgment.sentence, is_void=judgment.is_void, notes=judgment.notes)
    return ExitCode.DONE


def _write_llmperf(store: ObjectStore, task: BenchTask, folder: Path) -> list[str]:
    """Write the records of the post's generator into the folder; return a note if some lack."""
    if not task.llmperf_job:
        return []
    place = job_prefix(task.experiment, LLMPERF_FOLDER, task.llmperf_job)
    fault = round_records.write_job_files(store, place, round_records.LLMPERF_FILES, folder)
    if fault:
        return [f"{LLMPERF_FOLDER}'s records are not in the results: {fault}"]
    return []


def _store_files(store: ObjectStore, task: BenchTask, folder: Path) -> None:
    """Store the folder's files, those that others name first and the judgment last."""
    files = dict.fromkeys((*RUN_FILES, *round_records.JUDGED_FILES, JUDGMENT_FILE))
    prefix = results_prefix(task.experiment, task.run)

    def store_files() -> None:
        for name in files:
            path = folder / name
            if path.is_file():
                upload_file(store, path, prefix + name, compute_sha256(path))

    retry_upload(store_files, round_records.S3_RETRY_S)


def describe_judgment(report: RunReport) -> str:
    """Return the result of a run in one sentence."""
    verdict = report.verdict
    sentences = [report.note]
    if verdict is not None and verdict.controls.void:
        sentences = [f"the run is void, so nothing is concluded: {verdict.controls.void[0]}"]
    elif verdict is not None:
        sentences = [headline.sentence for headline in verdict.headlines]
    text = "; ".join(sentence.rstrip(".") for sentence in sentences)
    if report.summary.simulated:
        return f"SIMULATED servers: {text}."
    return format_sentence(text)


def _store_claims(task: BenchTask, table: RequestTable, verdict: Verdict) -> None:
    """Write the answers to the post's claims into the run's folder."""
    save_answers(table.folder, answer_run(table, verdict, task.drafts))


def _write_answers(store: ObjectStore, task: BenchTask, folder: Path) -> None:
    """Write the answers of the run's tasks into the folder, or why there are none."""
    fault = task.quality_fault
    if task.quality_job:
        place = job_prefix(task.experiment, "quality", task.quality_job)
        fault = round_records.write_job_files(store, place, [QUALITY_FILE], folder)
    if fault:
        row = QualityRow(task="all tasks", item="", arm=task.arms[0].name, right=False, fault=fault)
        write_quality(folder, [row])


def extract_verdict(verdict: Verdict) -> PairVerdict | None:
    """Return what a sweep decides by, of the only candidate; None of several."""
    if len(verdict.headlines) != 1:
        return None

    headline = verdict.headlines[0]
    rounds = [load.deciding.rounds for load in verdict.overall]
    tasks = [
        TaskWord(
            task=task.task,
            items=task.items,
            word=task.word,
            text=describe_quality(task, verdict.baseline),
        )
        for task in verdict.quality
    ]
    return PairVerdict(
        finding=headline.finding,
        output=headline.output,
        sentence=headline.sentence,
        rounds=min(rounds, default=0),
        equality=" ".join(row.sentence for row in verdict.equality),
        tasks=tuple(tasks),
    )


def extract_evidence(verdict: Verdict) -> PairEvidence | None:
    """Return the only candidate's figures; None of several, a void run, or a missing figure."""
    if verdict.controls.void or len(verdict.variants) != 1:
        return None
    arm = verdict.variants[0]
    acceptances = {row.class_: row for row in verdict.acceptance if row.arm == arm}
    cells = [cell for cell in verdict.cells if cell.variant == arm and cell.metric == "e2e_ms"]
    speed_ups = {}
    tokens = {}
    position_rates = {}
    for cell in cells:
        acceptance = acceptances.get(cell.class_)
        if cell.speed_up is None or acceptance is None or acceptance.acceptance_length is None:
            return None
        name = f"{cell.class_}, {cell.load}"
        speed_ups[name] = cell.speed_up.value
        tokens[name] = acceptance.acceptance_length
        if acceptance.per_position:
            position_rates[name] = acceptance.per_position

    ratios = []
    variances = []
    for load in verdict.overall:
        if load.deciding.variant == arm:
            ratio = load.deciding.speed_up
            log_sd = _find_log_sd(ratio)
            if ratio is None or log_sd is None:
                return None
            ratios.append(ratio.value)
            variances.append(log_sd**2)
    if not cells:
        return None
    own_variance = sum(variances) / len(variances) ** 2  # of the mean over loads
    return PairEvidence(
        score=geometric_mean(ratios),
        speed_ups=speed_ups,
        tokens=tokens,
        log_sd=math.sqrt(own_variance + 2 * START_SD**2),
        position_rates=position_rates,
        goodput_per_usd=_compare_goodput(verdict, arm),
    )


def _find_log_sd(ratio: RatioEstimate | None) -> float | None:
    """Return the standard deviation of a ratio's logarithm, by its 95 % interval, or None."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    return math.log(ratio.high / ratio.low) / (2 * NormalDist().inv_cdf(0.975))


def _compare_goodput(verdict: Verdict, arm: str) -> tuple[float, float] | None:
    """Return good tokens per USD of plain decoding and an arm, over all loads; None if unpriced."""
    goodput = []
    for name in (verdict.baseline, arm):
        costs = [
            cost for cost in verdict.cost if cost.arm == name and cost.usd_per_million_good_tokens
        ]
        usd = sum(
            (cost.usd_per_million_good_tokens or 0) * cost.good_tokens / 1e6 for cost in costs
        )
        if not usd:
            return None
        goodput.append(sum(cost.good_tokens for cost in costs) / usd)
    return goodput[0], goodput[1]
