"""Each promise of the proofs by real processes turns red if the product breaks it: a change a
promise."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import test_flips
import test_publishing
import test_stopped_measurements
import test_weather
from doubles.fault_proxy.rules import INTERNAL_ERROR_FAULT, FaultRule
from killing import Bench, Moment, build_upload_command, difference
from product_change import write_change
from test_flips import stored  # noqa: F401 - a fixture
from test_publishing import publication  # noqa: F401 - a fixture
from test_stopped_measurements import pair  # noqa: F401 - a fixture

from tandem.publish.publisher import RunPublisher

pytestmark = pytest.mark.proof
MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]

NEW_FOLDER_EACH_TIME = """
import uuid
import tandem.artifacts.upload as upload
upload.choose_run_name = lambda work, holder: f"{holder}-{uuid.uuid4().hex[:12]}"
"""
UPLOADS_LEFT_OPEN = """
import tandem.artifacts.s3_transfer as transfer
transfer._abort_leftovers = lambda *_: None
"""
WHOLE_FILES_SENT_AGAIN = """
import tandem.artifacts.s3_transfer as transfer
send = transfer._upload_content
class Blind:
    def __init__(self, store):
        self.store = store
    def head(self, key):
        return None
    def __getattr__(self, name):
        return getattr(self.store, name)
transfer._upload_content = lambda store, *rest: send(Blind(store), *rest)
"""
MANIFEST_BEFORE_FILES = """
import tandem.artifacts.manifest as manifest
import tandem.artifacts.upload as upload
send = upload.upload_files
late = []
def upload_later(*args, **options):
    late.append((args, options))
    return args[1].hash_all()
def write_first(store, prefix, made):
    written = store.create(manifest.manifest_key(prefix), made.to_bytes())
    for args, options in late:
        send(*args, **options)
    return written
upload.upload_files = upload_later
manifest.write_stored_manifest = write_first
"""
A_CARELESS_WRITE = """
import tandem.artifacts.store as store
write = store.ObjectStore.create
def create(self, *args, **options):
    try:
        return write(self, *args, **options)
    except Exception:
        return True
store.ObjectStore.create = create
"""
A_RESUME_THAT_FORGETS = """
import tandem.bench.load.resume as resume
resume.read_history = lambda *_: resume.RunHistory()
"""


def build_bench(endpoint, proxy, folder: Path, source: str) -> Bench:
    """Return an upload whose processes have a change."""
    command = build_upload_command(endpoint, folder, rank_bytes=12 * MIB)
    own_command = replace(
        command, environment={**command.environment, **write_change(folder / "change", source)}
    )
    return Bench(endpoint=endpoint, proxy=proxy, command=own_command, home=folder)


def kill_halfway(bench: Bench):
    """Kill the upload at each of its requests in turn until a promise is broken; return that
    trial."""
    bench.undisturbed()
    for request in range(2, bench.requests):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                Moment,
                "draw",
                classmethod(lambda cls, *_, at=request: cls(request=at, when="done")),
            )
            trial = bench.killed(random.Random(0))  # noqa: S311 - no secret
        is_whole = difference(trial.state, bench.expected) == ""
        if not is_whole or trial.uploads or trial.sent_twice or trial.broken_promises:
            return trial
    raise AssertionError("no promise was broken")


def test_another_folder_after_a_kill_is_caught(endpoint, proxy, tmp_path):
    bench = build_bench(endpoint, proxy, tmp_path, NEW_FOLDER_EACH_TIME)
    trial = kill_halfway(bench)
    assert difference(trial.state, bench.expected) != ""


def test_an_upload_that_is_left_open_is_caught(endpoint, proxy, tmp_path):
    assert kill_halfway(build_bench(endpoint, proxy, tmp_path, UPLOADS_LEFT_OPEN)).uploads != []


def test_a_whole_file_that_is_sent_again_is_caught(endpoint, proxy, tmp_path):
    assert (
        kill_halfway(build_bench(endpoint, proxy, tmp_path, WHOLE_FILES_SENT_AGAIN)).sent_twice
        != []
    )


def test_a_manifest_before_its_files_is_caught(endpoint, proxy, tmp_path):
    assert (
        kill_halfway(build_bench(endpoint, proxy, tmp_path, MANIFEST_BEFORE_FILES)).broken_promises
        != []
    )


def test_a_refused_write_that_counts_is_caught(endpoint, proxy, chance, tmp_path, monkeypatch):
    """The manifest is refused for longer than a process tries, so that one gives up and is begun
    again."""
    bench = build_bench(endpoint, proxy, tmp_path, A_CARELESS_WRITE)
    bench.undisturbed()
    rule = FaultRule(
        fault=INTERNAL_ERROR_FAULT, operation="PutObject", path="*tandem-manifest.json", times=8
    )
    monkeypatch.setattr(test_weather, "weather", lambda *_: {"refused": rule})
    monkeypatch.setattr(test_weather, "RUNS", 1)
    with pytest.raises(AssertionError):
        test_weather.test_in_bad_weather_the_end_is_the_same_bytes(
            0.1, bench, proxy, chance, lambda **_: None
        )


def test_a_manifest_before_its_files_beside_another_writer_is_caught(
    endpoint, proxy, chance, tmp_path, monkeypatch
):
    bench = build_bench(endpoint, proxy, tmp_path, MANIFEST_BEFORE_FILES)
    bench.undisturbed()
    monkeypatch.setattr(test_weather, "RUNS", 3)
    with pytest.raises(AssertionError):
        test_weather.test_two_writers_of_one_key_at_once_of_which_one_is_killed(
            bench, proxy, chance, lambda **_: None
        )


def test_a_verify_that_believes_the_metadata_is_caught(store, chance, capsys, request, monkeypatch):
    files = request.getfixturevalue("stored")
    monkeypatch.setattr(
        "tandem.artifacts.verify.receive_object", lambda store, key: store.head(key).sha256
    )
    with pytest.raises(AssertionError):
        test_flips.test_a_flipped_byte_is_found_wherever_it_is(
            store, files, chance, lambda **_: None, capsys
        )


def test_a_resume_that_forgets_is_caught(chance, tmp_path, monkeypatch, request):
    servers = request.getfixturevalue("pair")
    variables = write_change(tmp_path / "change", A_RESUME_THAT_FORGETS)

    def start(flags):
        return subprocess.Popen(
            [sys.executable, "-B", "-m", "tandem", *flags],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    monkeypatch.setattr(test_stopped_measurements, "start", start)
    monkeypatch.setattr(test_stopped_measurements, "STOPS", 5)
    with pytest.raises(AssertionError):
        test_stopped_measurements.test_stopped_at_random_moments_every_request_is_answered_once(
            servers, chance, lambda **_: None, tmp_path
        )


def test_a_batch_that_is_not_written_down_is_caught(proxy, chance, request, monkeypatch):
    run = request.getfixturevalue("publication")
    monkeypatch.setattr("tandem.publish.publisher.BatchLog.__init__", forget_batches)
    with pytest.raises(AssertionError):
        test_publishing.test_publishing_killed_at_each_request(run, proxy, chance, lambda **_: None)


def forget_batches(log, folder, environment):
    log._path = folder / "sent.jsonl"
    log._environment = environment
    log.losses = {}


def test_a_value_that_is_not_sent_is_caught(proxy, chance, request, monkeypatch):
    run = request.getfixturevalue("publication")
    put = RunPublisher._put_data
    monkeypatch.setattr(test_publishing, "WEATHERS", 3)
    monkeypatch.setattr(
        RunPublisher, "_put_data", lambda publisher, data: put(publisher, data[:-1])
    )
    with pytest.raises(AssertionError):
        test_publishing.test_publishing_in_bad_weather(run, proxy, chance, lambda **_: None)
