"""A run's folder of records in the bucket: stored round by round, and rebuilt from the rounds.

Invariant: the records of one Job are at `round_prefix`, its `round.json` last, so that a torn round
does not count. A folder is made of the confirmed rounds alone, each by the attempt that counts. A
round's records keep their bytes: the folder equals that of one run of the bench. The run's journal
alone says which rounds are confirmed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tandem.artifacts.files import LocalFiles, translate_disk_errors
from tandem.artifacts.retry import retry_upload
from tandem.artifacts.s3_transfer import upload_files
from tandem.artifacts.store import ObjectStore
from tandem.bench.figures import summary
from tandem.bench.llmperf.results import GENERATOR as LLMPERF_FOLDER
from tandem.bench.load import host
from tandem.bench.records import counters, manifest
from tandem.bench.records.folder import RECORDS_FILE, WARM_UP_FILE
from tandem.bench.records.json_file import require_schema
from tandem.bench.records.quality_rows import QUALITY_FILE
from tandem.bench.records.record import read_records
from tandem.errors import ExternalError, InputError
from tandem.judge import schema
from tandem.post import schema as claims
from tandem.run.run_keys import JUDGMENT_FILE, ROUND_FILE, results_prefix, round_prefix
from tandem.run.run_values import SCHEMA, BenchTask, RoundResult

ROUND_FILES = (RECORDS_FILE, counters.FILE, host.FILE, WARM_UP_FILE)
"""The files to which each round adds lines."""

VERDICT_TEXT = "verdict.txt"
LLMPERF_FILES = tuple(f"{LLMPERF_FOLDER}/{name}" for name in (RECORDS_FILE, manifest.FILE))
JUDGED_FILES = (
    *LLMPERF_FILES,
    QUALITY_FILE,
    summary.FILE,
    schema.FILE,
    claims.FILE,
    VERDICT_TEXT,
    schema.REPORT_FILE,
)
"""The files that the judge adds to a run's folder, next to judgment.json, which is stored after all
of them."""

# S3 may be down for ten minutes, and a pod's disk has the only copy of a round
S3_RETRY_S = 20 * 60.0

Confirmed = tuple[tuple[int, int], ...]


def store_round(
    store: ObjectStore, task: BenchTask, folder: Path, sizes: Mapping[str, int], duration_s: float
) -> RoundResult:
    """Store the additions of this process to the folder as the task's round and attempt.

    Args:
        store: the bucket.
        task: names the round and the attempt.
        folder: of the run.
        sizes: bytes of each of ROUND_FILES before this process measured.
        duration_s: how long this process measured.

    Raises:
        ExternalError: the disk failed, or S3 failed for longer than S3_RETRY_S; or another process
            stored this attempt meanwhile, so the owner of its files is unknown.
    """
    prefix = round_prefix(task.experiment, task.run, task.number, task.attempt)
    with (
        TemporaryDirectory(dir=folder.parent, prefix=".round-") as scratch,
        translate_disk_errors(folder),
    ):
        delta = Path(scratch)
        shutil.copy(folder / manifest.FILE, delta)
        for name in ROUND_FILES:
            content = b""
            if (folder / name).exists():
                content = (folder / name).read_bytes()
            (delta / name).write_bytes(content[sizes[name] :])
        records = list(read_records(delta / RECORDS_FILE))
        result = RoundResult(
            environment=task.environment,
            number=task.number,
            attempt=task.attempt,
            requests=len(records),
            failed=sum(record.error is not None for record in records),
            duration_s=round(duration_s, 3),
            is_simulated=bool(manifest.read_manifest(folder).simulated),
        )

        def store_files() -> bool:
            upload_files(store, LocalFiles(delta), prefix.removesuffix("/"))
            return store.create(prefix + ROUND_FILE, msgspec.json.encode(result))

        if not retry_upload(store_files, S3_RETRY_S):
            raise ExternalError(
                "another process stored this attempt",
                where=store.url(prefix),
                change="measure the round again, as another attempt",
            )
    return result


def rebuild_folder(
    store: ObjectStore, experiment: str, run: str, confirmed: Confirmed, folder: Path
) -> dict[str, int]:
    """Rebuild a run's folder from its confirmed rounds; return the bytes of each of ROUND_FILES.

    Args:
        store: the bucket.
        experiment, run: names.
        confirmed: round and attempt, in the order of measurement; the manifest is that of the last.
        folder: a new one.

    Raises:
        InputError: the folder is not empty, or a round is not stored whole.
        ExternalError: the disk failed, or S3 failed for longer than S3_RETRY_S.
    """
    with translate_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(
                "the folder is not empty", where=str(folder), change="name a new folder"
            )
        sizes = dict.fromkeys(ROUND_FILES, 0)
        for number, attempt in confirmed:
            prefix = round_prefix(experiment, run, number, attempt)
            contents = {
                name: _read_object(store, prefix + name)
                for name in (*ROUND_FILES, manifest.FILE, ROUND_FILE)
            }
            _check_round(contents, number, store.url(prefix))
            for name in ROUND_FILES:
                content = contents[name] or b""
                sizes[name] += len(content)
                if content:
                    with (folder / name).open("ab") as file:
                        file.write(content)
            (folder / manifest.FILE).write_bytes(contents[manifest.FILE] or b"")
    return sizes


def download_results(
    store: ObjectStore, experiment: str, run: str, folder: Path, confirmed: Confirmed
) -> Path:
    """Download a run's folder from the bucket: confirmed rounds' records and all the judge made.

    Args:
        store: the bucket.
        experiment, run: names.
        folder: a new one; it gets its name only when it is complete.
        confirmed: round and attempt, as the run's journal has them.

    Raises:
        InputError: the folder is not empty, no round is confirmed, or one is not stored whole.
        ExternalError: the disk failed, or S3 failed for longer than S3_RETRY_S.
    """
    prefix = results_prefix(experiment, run)
    if not confirmed:
        problem = "no round of this run is confirmed"
        change = "see what was measured: tandem runs show"
        raise InputError(problem, where=store.url(prefix), change=change)
    if folder.exists() and any(folder.iterdir()):
        change = "name a new folder by --out"
        raise InputError("the folder is not empty", where=str(folder), change=change)
    # the rest of an interrupted download is deleted
    partial = folder.with_name(f".{folder.name}.receiving")
    shutil.rmtree(partial, ignore_errors=True)
    rebuild_folder(store, experiment, run, confirmed, partial)
    _write_files(
        partial,
        {name: _read_object(store, prefix + name) for name in (*JUDGED_FILES, JUDGMENT_FILE)},
    )
    partial.replace(folder)
    return folder


def write_job_files(store: ObjectStore, job: str, files: Sequence[str], folder: Path) -> str:
    """Write the files of a Job of ours into the run's folder; return why they are missing, else "".

    Args:
        store: the bucket.
        job: the prefix of its files; the Job's uid follows.
        files: paths in the folder; the last part of each is its name in the bucket.
        folder: of the run.

    Raises:
        ExternalError: S3 failed for longer than S3_RETRY_S.
    """
    keys = retry_upload(lambda: [row.key for row in store.list(f"{job}-")], S3_RETRY_S)
    contents = {}
    for key in keys:
        for file in files:
            if key.endswith(f"/{Path(file).name}"):
                contents[file] = _read_object(store, key)
    if len(contents) < len(files):
        return f"{store.url(job)} lacks {', '.join(sorted(set(files) - set(contents)))}"
    _write_files(folder, contents)
    return ""


def _write_files(folder: Path, contents: Mapping[str, bytes | None]) -> None:
    """Write those of the files that have content."""
    with translate_disk_errors(folder):
        for name, content in contents.items():
            if content is not None:
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(content)


def _check_round(contents: Mapping[str, bytes | None], number: int, url: str) -> None:
    """Refuse a round that is not stored whole.

    Raises:
        InputError: the round is not.
    """
    round_body = contents[ROUND_FILE] or b""
    require_schema(round_body, SCHEMA, label="the round", where=url)
    count = (contents[RECORDS_FILE] or b"").count(b"\n")
    missing = [name for name, content in contents.items() if content is None]
    reason = ""
    if missing:
        reason = f"{', '.join(missing)} is missing"
    elif count != msgspec.json.decode(round_body, type=RoundResult).requests:
        reason = f"it has {count} records, and not those it counts"
    if reason:
        problem = f"round {number} is not stored whole: {reason}"
        raise InputError(problem, where=url, change="measure it again, as another attempt")


def _read_object(store: ObjectStore, key: str) -> bytes | None:
    content = retry_upload(lambda: store.read(key), S3_RETRY_S)
    return None if content is None else content.body
