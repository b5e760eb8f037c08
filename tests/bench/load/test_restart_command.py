"""The process of a restart command, and what it printed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tandem.bench.load.restart_command import RestartCommand
from tandem.errors import ExternalError


def run_command(text: str, log: Path) -> RestartCommand:
    """Run a command to its own end."""
    command = RestartCommand(text, log)
    end_s = time.monotonic() + 10
    while not command.has_ended:
        assert time.monotonic() < end_s
        time.sleep(0.005)
    return command


def test_the_end_of_a_command_is_not_that_of_its_output(tmp_path):
    log = tmp_path / "log"
    run_command("sleep 60 & echo $!", log)
    daemon = int(log.read_text())
    os.kill(daemon, signal.SIGTERM)  # raises if it had been ended


def test_ctrl_c_reaches_no_command(tmp_path):
    command = RestartCommand("sleep 60", tmp_path / "log")
    session = os.getsid(command.pid)
    os.killpg(command.pid, signal.SIGTERM)
    assert session == command.pid != os.getsid(0)


@pytest.mark.parametrize(
    ("text", "start_id"),
    [
        ("echo start=1; echo start=2", "2"),
        ("echo start=7; echo listening", "7"),
        ("echo restart=7", None),
    ],
)
def test_the_last_line_with_an_id_counts(tmp_path, text, start_id):
    assert run_command(text, tmp_path / "log").read_start_id() == start_id


def test_an_id_of_an_earlier_run_counts_no_more(tmp_path):
    run_command("echo start=1", tmp_path / "log")
    assert run_command("true", tmp_path / "log").read_start_id() is None


def test_a_signal_that_ended_a_command_is_named(tmp_path):
    with pytest.raises(ExternalError, match="ended by signal 15"):
        run_command("kill -TERM $$", tmp_path / "log")
