"""Runs that do not reach their end at once: killed, interrupted, resumed, out of disk."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
import time

import pytest
from bench_cli import Pair, Schedule, however_busy, records, start, wait, without_page

from tandem.bench.load.interrupt import GRACE_S
from tandem.cli.program import main

pytestmark = [
    pytest.mark.xdist_group("bench-stops"),  # its servers and runs are made once
    pytest.mark.usefixtures("pageless"),
]
TEXTS = {
    "code": [f"say {number}" for number in range(30)],
    "chat": [f"tell {number}" for number in range(6)],
}
PLANNED = 2 * 36


@pytest.fixture(scope="module")
def pageless():
    with without_page(), however_busy():
        yield


@pytest.fixture(scope="module")
def pair(pageless):  # noqa: ARG001 - runs of every scope are without their page
    servers = Pair(Schedule(ttft_ms=15, step_ms=2, tokens=4))
    yield servers
    servers.end()


@pytest.fixture
def flags(pair, tmp_path):
    pair.forget()
    return pair.flags(tmp_path, TEXTS)


def killed(flags, out, *more):
    """Kill a run once it has recorded so many requests more."""
    count = len(records(out))
    process = start([*flags, *more])
    wait(lambda: len(records(out)) >= count + 8, process)
    process.kill()
    process.communicate()
    return [record["request_id"] for record in records(out)]


@pytest.fixture(scope="module")
def resumed(pair, tmp_path_factory):
    """A run that was killed twice and torn, then resumed to its end; and one of the same flags that
    never stopped."""
    folder = tmp_path_factory.mktemp("killed")
    flags = pair.flags(folder, TEXTS)
    out = folder / "out"
    killed(flags, out, "--out", str(out))
    ids = killed(flags, out, "--resume", str(out))
    with (out / "records.jsonl").open("ab") as file:
        file.write(b'{"schema":1,"request_id":"a.r0.b0.')
    pair.forget()
    with contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([*flags, "--resume", str(out)])
    sent_ids = pair.asked()
    main([*flags, "--out", str(folder / "whole")])
    return code, ids, sent_ids, err.getvalue(), records(out), records(folder / "whole")


def test_after_two_kills_each_request_is_recorded_once(resumed):
    code, _, _, _, records_, _ = resumed
    ids = [record["request_id"] for record in records_]
    assert code == 0
    assert len(ids) == len(set(ids)) == PLANNED


def test_what_was_recorded_before_a_kill_is_not_asked_again(resumed):
    _, ids, sent_ids, *_ = resumed
    assert len(ids) >= 16
    assert set(sent_ids).isdisjoint(ids)


def test_a_torn_line_is_named_and_its_request_asked_again(resumed):
    _, ids, _, err, *_ = resumed
    assert f"records.jsonl:{len(ids) + 1}: the last line is torn after 34 bytes" in err
    assert "its request is sent again" in " ".join(err.split())


def test_a_resumed_run_measures_the_same_requests(resumed):
    *_, cut, unbroken = resumed
    fields = ("request_id", "arm", "class", "prompt_id", "round", "repeat", "slot", "concurrency")

    assert {tuple(record[field] for field in fields) for record in cut} == {
        tuple(record[field] for field in fields) for record in unbroken
    }


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.proof)]
)
def test_an_interrupted_run_gives_130_and_says_how_to_resume(flags, tmp_path, number):
    out = tmp_path / "out"
    process = start([*flags, "--out", str(out)])
    wait(lambda: len(records(out)) >= 8, process)
    process.send_signal(number)
    table, err = process.communicate()

    assert process.returncode == 130
    assert f"go on with: tandem bench run --resume {out}" in err
    assert "Traceback" not in err
    assert json.loads((out / "manifest.json").read_text())["ended"]["reason"] == "interrupted"
    assert len(json.loads((out / "summary.json").read_text())["requests"]) > 0
    assert "concurrency 2" in table


@pytest.fixture
def waiting_process(pair, tmp_path):
    """A run whose measured requests wait for servers that are slow to answer."""
    pair.forget()
    flags = pair.flags(tmp_path, {"code": ['#schedule {"ttft_ms": 20000}']})
    process = start([*flags, "--out", str(tmp_path / "out")])
    wait(lambda: any(not identity.startswith("probe-") for identity in pair.asked()), process)
    return process


def test_a_second_signal_ends_the_process_at_once(waiting_process):
    process = waiting_process
    process.send_signal(signal.SIGINT)
    assert "stopping" in next(line for line in process.stderr if "stopping" in line)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=4)  # before the grace of 5 s is over

    assert (process.returncode, "ended at once" in err) == (130, True)


def test_signals_end_a_run_whose_reader_is_gone(waiting_process, tmp_path):
    process = waiting_process
    process.stdout.close()
    process.stderr.close()
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # two of a kind at once are one

    process.wait(timeout=GRACE_S - 1)

    assert json.loads((tmp_path / "out/manifest.json").read_text())["ended"] is None


@pytest.fixture(scope="module")
def full(pair, tmp_path_factory):
    """A run whose files may have 20 kB, which feels as a full disk does."""
    folder = tmp_path_factory.mktemp("full")
    room = 20_000
    flags = pair.flags(folder, TEXTS)
    process = start(
        [*flags, "--out", str(folder / "out")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    _, err = process.communicate()
    return process.returncode, err, len(records(folder / "out")), flags, folder / "out"


def test_a_full_disk_gives_3_and_keeps_the_records(full):
    code, err, count, _, out = full

    assert code == 3
    assert f"error: {out / 'records.jsonl'}: " in err
    assert "the records written before are kept" in " ".join(err.split())
    assert 0 < count < PLANNED
    assert "Traceback" not in err


def test_a_run_that_a_full_disk_stopped_can_be_resumed(full):
    *_, flags, out = full
    code = main([*flags, "--resume", str(out)])
    assert (code, len(records(out))) == (0, PLANNED)


@pytest.fixture(scope="module")
def finished(pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    flags = pair.flags(folder, {"code": ["a", "b"]})
    assert main([*flags, "--out", str(folder / "out")]) == 0
    return flags, folder / "out"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--seed", "7"), "seed was 0 when this run began and is 7 now"),
        (("--warm-up", "3"), "--warm-up was 0 when this run began and is 3 now"),
        (("--quick", "--rounds", "4"), "--quick was not given when this run began"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_flag_beside_resume_that_contradicts_is_refused(finished, more, said, capsys):
    _, out = finished
    code = main(["bench", "run", *more, "--resume", str(out)])
    assert (code, said in capsys.readouterr().err) == (2, True)


def test_resume_alone_goes_on_from_any_folder(flags, tmp_path, monkeypatch):
    out = tmp_path / "out"
    killed(flags, out, "--out", str(out))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    code = main(["bench", "run", "--resume", str(out)])

    assert (code, len(records(out))) == (0, PLANNED)
    assert {record["placement"] for record in records(out)} == {None}


def test_a_finished_run_that_is_resumed_sends_nothing(finished, pair):
    flags, out = finished
    pair.forget()
    before = json.loads((out / "manifest.json").read_text())

    code = main([*flags, "--resume", str(out)])

    assert code == 0
    assert all(identity.startswith("probe-") for identity in pair.asked())
    after = json.loads((out / "manifest.json").read_text())
    assert (after["host"], after["notes"]) == (before["host"], before["notes"])
