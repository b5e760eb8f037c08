"""Measure the transfers of artifacts; print Markdown for docs/performance.md.

The program measures upload and download of shards by `upload_files` and `download_files` against
`aws s3 sync`, in alternation on one local endpoint with objects on disk, and the peak memory of
each process. Every transfer is a separate process. Our process hashes every file before it sends
and after it receives it, as the commands do; the AWS CLI compares only sizes and times. The AWS CLI
is in `.venv-awscli`, which `make bench-artifacts` makes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from machine import describe_day

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.artifacts.files import LocalFiles
from tandem.artifacts.store import open_store

ROOT = Path(__file__).resolve().parent.parent
AWS = ROOT / ".venv-awscli" / "bin" / "aws"
MIB = 2**20
SHARDS = 8
BUCKET = "benchmark-artifacts"
PREFIX = "models/bench/shards/main"
REGION = "us-east-2"
LIMIT_RATIO = 1.1
LIMIT_MIB = 400
# the work of `upload` and `fetch` on the bytes, and nothing else
SEND = """
from pathlib import Path
from tandem.artifacts.files import LocalFiles
from tandem.artifacts.s3_transfer import upload_files
from tandem.artifacts.store import open_store

upload_files(open_store({bucket!r}), LocalFiles(Path({folder!r})), {prefix!r})
"""
RECEIVE = """
import json
from pathlib import Path
from tandem.artifacts.manifest import ManifestFile
from tandem.artifacts.s3_transfer import download_files
from tandem.artifacts.store import open_store

files = [ManifestFile(**file) for file in json.loads(Path({files!r}).read_text())]
download_files(open_store({bucket!r}), {prefix!r}, Path({folder!r}), files)
"""


class ProcessFigures(NamedTuple):
    """What one process took: wall and processor time in seconds, peak memory in MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float


class TransferPair(NamedTuple):
    """One transfer by each program, one after the other."""

    ours: ProcessFigures
    theirs: ProcessFigures


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=4.0, help="size of all shards")
    parser.add_argument("--runs", type=int, default=3, help="counted pairs of each transfer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        tables = measure_transfers(Path(name), int(options.gib * 1024), options.runs)
    print(
        f"{describe_day()}, `{shlex.join(['python', 'benchmarks/artifacts.py', *sys.argv[1:]])}`\n"
    )
    print("| what | ours | `aws s3 sync` | target |\n|---|---|---|---|")
    for word, pairs in tables.items():
        print(*format_rows(f"{word} of {options.gib:g} GiB in {SHARDS} shards", pairs), sep="\n")


def measure_transfers(work: Path, size_mib: int, runs: int) -> dict[str, list[TransferPair]]:
    """Measure uploads and downloads, ours and the AWS CLI's in turn."""
    source = work / "source"
    target = work / "target"
    write_shards(source, size_mib)
    files = work / "files.json"
    files.write_text(json.dumps([file.model_dump() for file in LocalFiles(source).hash_all()]))
    home = work / "home"
    home.mkdir()

    def empty_bucket() -> None:
        store = open_store(BUCKET)
        store.delete([stored.key for stored in store.list("")])

    def empty_target() -> None:
        shutil.rmtree(target, ignore_errors=True)

    python = [sys.executable, "-c"]
    send = [*python, SEND.format(bucket=BUCKET, prefix=PREFIX, folder=str(source))]
    receive = [
        *python,
        RECEIVE.format(bucket=BUCKET, prefix=PREFIX, folder=str(target), files=str(files)),
    ]
    sync = [str(AWS), "s3", "sync", "--only-show-errors"]
    url = f"s3://{BUCKET}/{PREFIX}"
    with AwsEndpoint(
        account="111122223333", region=REGION, state_dir=work / "endpoint"
    ) as endpoint:
        os.environ.update(endpoint.client_environment(home))
        s3 = endpoint.client("s3")
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        uploads = list(alternate(runs, empty_bucket, send, [*sync, str(source), url]))
        downloads = list(alternate(runs, empty_target, receive, [*sync, url, str(target)]))
    names = sorted(path.name for path in source.iterdir())
    assert names == sorted(path.name for path in target.iterdir()), "the last download is not whole"
    return {"upload": uploads, "download": downloads}


def write_shards(folder: Path, size_mib: int) -> None:
    """Write shards and a small file, of incompressible bytes."""
    folder.mkdir()
    chance = random.Random(0)  # noqa: S311 - no secret
    for shard in range(SHARDS):
        with (folder / f"model-{shard}.safetensors").open("wb") as file:
            for _ in range(size_mib // SHARDS):
                file.write(chance.randbytes(MIB))
    (folder / "config.json").write_text("{}")


def alternate(
    runs: int, clear: Callable[[], None], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[TransferPair]:
    """Run both commands in turn, alternating which is first, after one uncounted pair."""
    commands = {"ours": ours, "theirs": theirs}
    for number in range(runs + 1):
        figures = {}
        for name in sorted(commands, reverse=number % 2 == 0):
            clear()
            figures[name] = run_process(commands[name])
        print(number, figures, file=sys.stderr)
        if number:
            yield TransferPair(**figures)


def run_process(command: Sequence[str]) -> ProcessFigures:
    """Run one process to its end; return the system's figures for it."""
    start_s = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start_s
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        if process.returncode:
            sys.exit(
                f"{shlex.join(command)} ended with {process.returncode}:"
                f" {output.read().decode()[-2000:]}"
            )
    return ProcessFigures(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def format_rows(what: str, pairs: Sequence[TransferPair]) -> Iterator[str]:
    """Yield the rows of a measurement: medians, and the ratio pair by pair."""
    ratios = [pair.ours.wall_s / pair.theirs.wall_s for pair in pairs]
    span = f"{min(ratios):.2f} to {max(ratios):.2f} over {len(pairs)} pairs"
    sides = ([pair.ours for pair in pairs], [pair.theirs for pair in pairs])
    walls = []
    processors = []
    peaks = []
    for side in sides:
        walls_s, cpus_s, peaks_mib = zip(*side, strict=True)
        walls.append(f"{median(walls_s):.1f}")
        processors.append(f"{median(cpus_s):.1f}")
        peaks.append(f"{max(peaks_mib):.0f}")
    yield (
        f"| {what}, s | {' | '.join(walls)} | at most {LIMIT_RATIO} times: {median(ratios):.2f}"
        f" ({span}) |"
    )
    yield f"| processor time of it, s | {' | '.join(processors)} | - |"
    yield f"| most memory in any run, MiB | {' | '.join(peaks)} | under {LIMIT_MIB} |"


if __name__ == "__main__":
    main()
