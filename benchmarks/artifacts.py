"""Measure the promises of the artifacts; print Markdown for docs/performance.md.

The program measures upload and download of shards by `upload_files` and `download_files` against `aws s3 sync`, in
alternation on one local endpoint with objects on disk. It also measures the peak memory of each process, the time of a
key, and the time of a process that finds all present. Every transfer is a separate process. Our process hashes every
file before it sends and after it receives it, as the commands do; the AWS CLI compares only sizes and times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
for place in (ROOT, ROOT / "tests" / "artifacts"):
    sys.path.insert(0, str(place))

from compiled import TARGET, variables, write_artifact, write_outcome  # noqa: E402
from machine import describe_day

from rehearsal.aws.endpoint import AwsEndpoint  # noqa: E402
from tandem.artifacts.files import LocalFiles  # noqa: E402
from tandem.artifacts.manifest import Manifest, write_stored_manifest  # noqa: E402
from tandem.artifacts.s3_transfer import upload_files  # noqa: E402
from tandem.artifacts.store import ObjectStore, open_store  # noqa: E402
from tandem.spec.catalogue import load_catalogue  # noqa: E402
from tandem.spec.variant_key import compute_artifact_key  # noqa: E402
from tandem.spec.workspace import load_workspace  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
SHARDS = 8
AWS = ROOT / ".venv-awscli"
PINS = Path(__file__).parent / "awscli-requirements.txt"
BUCKET, PREFIX = "benchmark-artifacts", "models/bench/shards/main"
ACCOUNT, REGION = "111122223333", "us-east-2"
LIMIT_RATIO, LIMIT_MIB, LIMIT_KEY_MS, LIMIT_SKIP_S = 1.1, 400, 5, 1.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One process: wall and processor time in seconds, peak memory in MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=4.0, help="size of all shards")
    parser.add_argument("--runs", type=int, default=3, help="counted pairs of each transfer")
    parser.add_argument("--only", choices=["transfer", "key", "skip"], help="one of the measures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tandem-bench-", dir=os.environ.get("TMPDIR")) as name:
        rows = measure(Path(name), options)
    print(f"{describe_day()}, `{' '.join(['python', 'benchmarks/artifacts.py', *sys.argv[1:]])}`\n")
    print("| what | ours | `aws s3 sync` | target |\n|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def measure(work: Path, options: argparse.Namespace) -> list[tuple[str, str, str, str]]:
    """Return the rows of the table."""
    rows = []
    with AwsEndpoint(account=ACCOUNT, region=REGION, state_dir=work / "endpoint") as endpoint:
        home = work / "home"
        home.mkdir()
        environment = {"PATH": os.environ["PATH"], **endpoint.client_environment(home)}
        os.environ.update(environment)
        where = {"LocationConstraint": REGION}
        endpoint.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where)
        if options.only in {None, "transfer"}:
            rows += transfers(work, endpoint, environment, options)
        if options.only in {None, "skip"}:
            rows += skips(work, environment, options.runs)
    if options.only in {None, "key"}:
        rows += keys()
    return rows


def transfers(
    work: Path, endpoint: AwsEndpoint, environment: dict[str, str], options: argparse.Namespace
) -> list[tuple[str, str, str, str]]:  # fmt: skip
    """Measure uploads and downloads, ours and the AWS CLI's in turn."""
    source, target, files = work / "source", work / "target", work / "files.json"
    write_shards(source, int(options.gib * GIB))
    files.write_text(json.dumps([file.model_dump() for file in LocalFiles(source).hash_all()]))
    there = {"bucket": BUCKET, "prefix": PREFIX}
    send = [sys.executable, "-c", SEND.format(folder=str(source), **there)]
    receive = [sys.executable, "-c", RECEIVE.format(folder=str(target), files=str(files), **there)]
    sync = [str(aws()), "s3", "sync", "--only-show-errors"]
    url = f"s3://{BUCKET}/{PREFIX}"

    def empty_bucket() -> None:
        store = open_store(BUCKET)
        store.delete([listed.key for listed in store.list("")])

    def empty_target() -> None:
        shutil.rmtree(target, ignore_errors=True)

    uploads = pairs(options.runs, environment, empty_bucket, send, [*sync, str(source), url])
    held = sum(row["Size"] for row in endpoint.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"])
    assert held == sum(path.stat().st_size for path in source.iterdir()), "the last upload is not whole"
    downloads = pairs(
        options.runs, environment, empty_target,
        receive, [*sync, url, str(target)],
    )  # fmt: skip
    assert sorted(path.name for path in target.iterdir()) == sorted(path.name for path in source.iterdir())
    empty_bucket()
    return [*rows_of(f"upload of {options.gib:g} GiB in {SHARDS} shards", uploads),
            *rows_of(f"download of {options.gib:g} GiB in {SHARDS} shards", downloads)]  # fmt: skip


def write_shards(folder: Path, size: int) -> None:
    """Write shards and a small file, of incompressible bytes."""
    folder.mkdir()
    chance = random.Random(0)  # noqa: S311 - no secret
    for shard in range(SHARDS):
        with (folder / f"model-{shard}.safetensors").open("wb") as file:
            for _ in range(size // SHARDS // MIB):
                file.write(chance.randbytes(MIB))
    (folder / "config.json").write_text("{}")


def aws() -> Path:
    """Return the AWS CLI, installed once with exact versions next to the project's own environment."""
    stamp = AWS / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != PINS.read_text():
        print(f"making {AWS.name} for the AWS CLI", file=sys.stderr)
        venv.create(AWS, with_pip=True, clear=True)
        words = ["-qq", "--disable-pip-version-check", "--require-hashes", "-r", PINS]
        subprocess.run([AWS / "bin" / "python", "-m", "pip", "install", *words], check=True)
        stamp.write_text(PINS.read_text())
    return AWS / "bin" / "aws"


def pairs(
    runs: int, environment: dict[str, str], clear: Callable[[], None], ours: list[str], theirs: list[str]
) -> list[tuple[Run, Run]]:  # fmt: skip
    """Run both commands in turn, after one pair that does not count."""
    found = []
    for number in range(runs + 1):
        pair = {}
        for name, command in (
            (("ours", ours), ("theirs", theirs)) if number % 2 else (("theirs", theirs), ("ours", ours))
        ):
            clear()
            pair[name] = process(command, environment)
        if number:
            found.append((pair["ours"], pair["theirs"]))
            print(f"ours {pair['ours']}, theirs {pair['theirs']}", file=sys.stderr)
    return found


def process(command: Sequence[str], environment: dict[str, str]) -> Run:
    """Run one process to its end; return the system's figures for it."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        running = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(running.pid, 0)
        wall_s = time.perf_counter() - began
        running.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if running.returncode:
            sys.exit(f"{' '.join(command)} ended with {running.returncode}: {said.read().decode()[-2000:]}")
    return Run(wall_s=wall_s, cpu_s=usage.ru_utime + usage.ru_stime, peak_mib=usage.ru_maxrss / 1024)


def rows_of(what: str, found: list[tuple[Run, Run]]) -> list[tuple[str, str, str, str]]:
    """Return the rows of a measurement: medians, and the ratio pair by pair."""
    ours, theirs = zip(*found, strict=True)
    ratios = [one.wall_s / other.wall_s for one, other in found]
    middle = statistics.median
    span = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return [
        (f"{what}, s", f"{middle(run.wall_s for run in ours):.1f}", f"{middle(run.wall_s for run in theirs):.1f}",
         f"at most {LIMIT_RATIO} times: {middle(ratios):.2f} ({span} over {len(found)} pairs)"),
        ("processor time of it, s", f"{middle(run.cpu_s for run in ours):.1f}",
         f"{middle(run.cpu_s for run in theirs):.1f}", "-"),
        ("most memory in any run, MiB", f"{max(run.peak_mib for run in ours):.0f}",
         f"{max(run.peak_mib for run in theirs):.0f}", f"under {LIMIT_MIB}"),
    ]  # fmt: skip


def skips(work: Path, environment: dict[str, str], runs: int) -> list[tuple[str, str, str, str]]:
    """Measure whole processes that find all present: `fetch` its artifact, `stage` its model."""
    store, set_ = open_store(BUCKET), {**environment, **variables()}
    model, revision = TARGET.split("@")
    stage_model(store, model, revision)
    artifact, folder = write_artifact(work / "artifact"), write_outcome(work / "work")
    python = [sys.executable, "-m", "tandem.artifacts"]
    process([*python, "upload", "--bucket", BUCKET, "--artifact", str(artifact), "--work", str(folder)], set_)
    commands = {
        "fetch": ["--model", TARGET, "--models", str(work / "models"), "--work", str(folder), "--lease-s", "60"],
        "stage": ["--model", model, "--revision", revision, "--work", str(folder)],
    }
    rows = []
    for name, arguments in commands.items():
        found = [process([*python, name, "--bucket", BUCKET, *arguments], set_) for _ in range(2 * runs + 1)][1:]
        seconds = [run.wall_s for run in found]
        said = f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
        rows.append((f"`{name}` that finds all present, whole process, s", said, "-", f"under {LIMIT_SKIP_S:g}"))
    return rows


def stage_model(store: ObjectStore, model: str, revision: str) -> None:
    """Store a model of one small file with its manifest."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text("{}")
        files = upload_files(store, LocalFiles(Path(name)), f"models/{model}/{revision}")
    manifest = Manifest(schema_version=1, kind="model", name=f"{model}@{revision}", folder="", files=files, made={},
                        fields={"id": model, "revision": revision})  # fmt: skip
    write_stored_manifest(store, f"models/{model}/{revision}", manifest)


def keys() -> list[tuple[str, str, str, str]]:
    """Measure the key of every variant of every committed experiment: its fields, digest and name."""
    known = load_catalogue()
    declared = load_workspace(ROOT / "environments", ROOT / "experiments").experiments.values()
    cases = [(one.record, variant) for one in declared for variant in one.record.all_variants()]
    times = []
    for experiment, variant in cases * 20:
        began = time.perf_counter()
        assert compute_artifact_key(experiment, variant, known).name
        times.append((time.perf_counter() - began) * 1000)
    said = f"{statistics.median(times):.3f} (at most {max(times):.3f})"
    return [(f"key of a variant, ms, {len(cases)} variants", said, "-", f"under {LIMIT_KEY_MS}")]


if __name__ == "__main__":
    main()
