"""Runs whose servers are restarted by commands, over real HTTP; most commands restart nothing and
say so by an ID."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import independent_server
import pytest
from running import QUICK, measure, until

from tandem.bench.figures.request_table import read_request_table
from tandem.bench.load import restart, server_watch
from tandem.judge.verdict import JudgeOptions, judge_run

NEW_ID = "echo start=$$"
SERVER = f"{sys.executable} {independent_server.__file__} --ttft-ms 4 --step-ms 1 --tokens 4"


@pytest.fixture(autouse=True)
def quick_watch(monkeypatch):
    for module in (restart, server_watch):
        monkeypatch.setattr(module, "STEADY_S", 0.05)
        monkeypatch.setattr(module, "POLL_S", 0.02)


@pytest.fixture
def process_port(tmp_path):
    """The port of a server in a process of its own; its pid is in the file `pid`."""
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        port = free_socket.getsockname()[1]
    pid_file = tmp_path / "pid"
    subprocess.run(["sh", "-c", start_command(pid_file, port)], check=True)
    end_s = time.monotonic() + 20
    while socket.socket().connect_ex(("127.0.0.1", port)):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    yield port
    os.kill(int(pid_file.read_text()), signal.SIGKILL)


def start_command(pid_file: Path, port: int) -> str:
    """Start a server that keeps the command's output open."""
    return f"{SERVER} --port {port} & echo $! >{pid_file}"


def starts_of(run) -> dict[tuple[str, int], str | None]:
    return {(record.arm, record.round): record.start for record in run.records}


def test_a_command_restarts_its_server_between_rounds(tmp_path, process_port):
    pid_file = tmp_path / "pid"
    command = f"echo down; kill $(cat {pid_file}); {start_command(pid_file, process_port)}"

    run = measure(
        tmp_path,
        schedules=(),
        ports=[process_port],
        rounds=2,
        starts=2,
        restart={"a": command},
        warm_up=1,
    )

    assert (run.outcome.reason, run.outcome.fault) == ("done", None)
    assert starts_of(run) == {("a", 0): "1", ("a", 1): "2"}
    (entry,) = run.lines("restarts.jsonl")
    assert (entry["arm"], entry["start"], entry["round"]) == ("a", 2, 1)
    assert (run.folder / "restart-2-a.log").read_text().startswith("down\n")
    assert run.manifest["warm_up"]["a"]["requests"] == 2


def test_an_arm_without_a_command_keeps_its_start(tmp_path):
    run = measure(tmp_path, rounds=2, starts=2, restart={"b": NEW_ID})
    assert starts_of(run) == {("a", 0): "1", ("b", 0): "1", ("a", 1): "1", ("b", 1): "2"}


def test_servers_with_the_same_command_share_one_run_of_it(tmp_path):
    command = f"echo again >>{tmp_path / 'count'}; {NEW_ID}"
    run = measure(tmp_path, rounds=2, starts=2, restart={"a": command, "b": command})
    assert starts_of(run)["b", 1] == "2"
    assert (tmp_path / "count").read_text() == "again\n"


def test_a_restart_that_nobody_saw_ends_the_run_and_names_the_id(tmp_path):
    run = measure(
        tmp_path, rounds=3, starts=3, restart={"a": "echo start=same"}, restart_limit_s=0.3
    )
    assert run.outcome.reason == "failed"
    assert run.outcome.fault.exit_code == 3
    assert "the old server of a was not seen to go within" in str(run.outcome.fault)
    assert "start=ID" in run.outcome.fault.change


def test_a_failed_command_keeps_the_records_and_the_run_goes_on(tmp_path):
    failed_run = measure(tmp_path, rounds=2, starts=2, restart={"b": "echo no room; exit 7"})
    ports = [int(arm["url"].rpartition(":")[2]) for arm in failed_run.manifest["arms"]]
    resumed_run = measure(
        tmp_path, at=ports, rounds=2, starts=2, restart={"b": NEW_ID}, resume=True
    )

    assert failed_run.outcome.fault.exit_code == 3
    assert "failed with exit code 7: no room" in str(failed_run.outcome.fault)
    assert resumed_run.outcome.reason == "done"
    assert starts_of(resumed_run)["b", 1] == "2"
    ids = [record.request_id for record in resumed_run.records]
    assert len(ids) == len(set(ids)) == 16


def test_a_server_that_stays_away_ends_the_run(tmp_path, process_port):
    run = measure(
        tmp_path,
        schedules=(),
        ports=[process_port],
        rounds=2,
        starts=2,
        restart={"a": f"kill $(cat {tmp_path / 'pid'}); sleep 60 & echo $! >{tmp_path / 'pid'}"},
        restart_limit_s=0.5,
    )
    assert "a did not come back within" in str(run.outcome.fault)
    assert (run.outcome.fault.exit_code, len(run.records)) == (3, 4)


def test_an_interrupt_ends_the_wait_and_not_the_command(tmp_path):
    async def interrupt(_servers, run):
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        run.stop.request("interrupted")

    command = f"echo $$ >{tmp_path / 'pid'}; exec sleep 60"
    run = measure(tmp_path, rounds=2, starts=2, restart={"a": command}, meanwhile=interrupt)

    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGTERM)  # raises if it had been ended
    assert run.outcome.reason == "interrupted"
    assert f"goes on by itself (process {pid})" in " ".join(run.said.split())
    assert not (run.folder / "restarts.jsonl").exists()


def test_six_starts_of_both_arms_cover_restarts(tmp_path):
    run = measure(tmp_path, rounds=6, starts=6, restart={"a": NEW_ID, "b": NEW_ID})
    verdict = judge_run(read_request_table(run.folder), JudgeOptions())
    assert {headline.evidence for headline in verdict.headlines} == {"across-starts"}


def test_the_warm_up_after_a_restart_is_no_sign_of_several_servers(tmp_path):
    """Its requests are in the counters of the new server, and in no turn."""

    async def swap(servers, _run):
        await until((tmp_path / "down").exists)
        await servers[0].__aexit__()
        servers[0].truths.clear()
        await servers[0].__aenter__()
        (tmp_path / "up").touch()

    run = measure(
        tmp_path,
        schedules=(QUICK,),
        meanwhile=swap,
        rounds=2,
        starts=2,
        restart={"a": f"cd {tmp_path}; touch down; while ! [ -e up ]; do sleep 0.01; done"},
        warm_up=9,
    )

    assert starts_of(run) == {("a", 0): "1", ("a", 1): "2"}
    assert not [note for note in run.manifest["notes"] if "several servers" in note]
