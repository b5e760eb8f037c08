"""The Job that judges a run: it publishes and judges the run's folder, and stores verdict, report and judgment.

Invariant: judgment.json is stored after every file that it names. A file that was not published, or a claim without an
answer, is a note in it. The sentence says SIMULATED if the servers are simulated.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.files import compute_sha256, translate_disk_errors
from tandem.artifacts.retry import retry_upload
from tandem.artifacts.s3_transfer import upload_file
from tandem.artifacts.store import open_store
from tandem.errors import ExitCode, InputError
from tandem.judge.verdict import JudgeOptions
from tandem.report.run_report import RunReport, report_run
from tandem.run import round_records
from tandem.run.publication import RUN_FILES, publish_confirmed
from tandem.run.run_keys import JUDGMENT_FILE, results_prefix
from tandem.run.run_values import TASK_VARIABLE, BenchTask, JudgmentResult

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
        change = "measure a round first"
        raise InputError("no round is confirmed, so there is nothing to judge", where=TASK_VARIABLE, change=change)
    store = open_store(task.bucket)
    shutil.rmtree(folder, ignore_errors=True)
    round_records.rebuild_folder(store, task.experiment, task.run, task.confirmed, folder)
    notes = publish_confirmed(task, folder)
    if task.llmperf_job:
        notes += list(filter(None, [round_records.write_llmperf(store, task, folder)]))
    report = report_run(folder, JudgeOptions())
    if report.faults:
        raise report.faults[0]
    judgment = JudgmentResult(
        sentence=describe_judgment(report),
        is_void=report.exit_code == ExitCode.VOID,
        exit_code=int(report.exit_code),
        notes=tuple(notes),
    )
    lines = [*report.format_lines(width=TEXT_COLUMNS), *([] if report.verdict else [report.note])]
    with translate_disk_errors(folder):
        (folder / round_records.VERDICT_TEXT).write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / JUDGMENT_FILE).write_bytes(msgspec.json.encode(judgment))
    names = [name for name in (*RUN_FILES, *round_records.JUDGED_FILES, JUDGMENT_FILE) if (folder / name).is_file()]
    prefix = results_prefix(task.experiment, task.run)

    def store_files() -> None:
        for name in dict.fromkeys(names):
            upload_file(store, folder / name, prefix + name, compute_sha256(folder / name))

    retry_upload(store_files, round_records.S3_RETRY_S)
    log_event("judged", sentence=judgment.sentence, is_void=judgment.is_void, notes=judgment.notes)
    return ExitCode.DONE


def describe_judgment(report: RunReport) -> str:
    """Return the result of a run in one sentence."""
    verdict, sentences = report.verdict, [report.note]
    if verdict is not None and verdict.controls.void:
        sentences = [f"the run is void, so nothing is concluded: {verdict.controls.void[0]}"]
    elif verdict is not None:
        sentences = [headline.sentence for headline in verdict.headlines]
    text = "; ".join(sentence.rstrip(".") for sentence in sentences)
    return f"SIMULATED servers: {text}." if report.summary.simulated else f"{text[:1].upper()}{text[1:]}."
