"""The table of `make others`: what it reads of servers' own logs, and when it is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import urllib.error
from email.message import Message
from pathlib import Path

import pytest
from foreign_servers import (
    HERE,
    REQUESTS,
    ForeignError,
    ForeignServer,
    Measurement,
    Row,
    is_right,
    measure,
    read_llama_cpp_log,
    read_logged_ms,
    read_owner,
    read_xpyd_sim_log,
)
from process_end import has_ended

# as llama.cpp printed it on 2026-11-22
LLAMA_CPP = """\
0.09.28 I slot print_timing: id  0 | task 0 | prompt eval time =     255.44 ms /    32 tokens (    7.98 ms per token)
0.09.28 I slot print_timing: id  0 | task 0 |        eval time =      50.76 ms /     4 tokens (   16.92 ms per token)
0.09.28 I slot print_timing: id  0 | task 0 |       total time =     306.21 ms /    36 tokens
"""


def row(**changes: object) -> Row:
    """A server whose TPOT is its log's."""
    return Row("m", "s", "nothing", REQUESTS, 0, 2, 10.0, 10.0)._replace(**changes)


def test_llama_cpp_log_gives_eval_time_per_later_token(tmp_path):
    (tmp_path / "log").write_text(LLAMA_CPP)
    assert read_llama_cpp_log(tmp_path / "log") == [pytest.approx(16.92)]


def test_xpyd_sim_log_gives_its_time_per_token(tmp_path):
    (tmp_path / "log").write_text('{"output_tokens": 3, "decode_ms": 30.0, "total_ms": 33.54}\n')
    assert read_xpyd_sim_log(tmp_path / "log") == [pytest.approx(11.18)]


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({"tpot_ms": 10.19}, True),
        ({"tpot_ms": 10.21}, False),
        ({"failed": 1}, False),
        ({"requests": 287}, False),
    ],
)
def test_table_is_right_within_two_percent_and_without_failures(changes, right):
    assert is_right([row(**changes)]) is right


def logging(folder: Path, requests: int) -> ForeignServer:
    """A server whose log holds answers of one token that took 10, 11, 12, ... ms."""
    lines = [{"output_tokens": 1, "total_ms": 10.0 + number} for number in range(requests)]
    (folder / "log").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return ForeignServer(name="s", command="", log="log", read_tpots_ms=read_xpyd_sim_log)


def test_log_that_lacks_requests_is_refused(tmp_path):
    with pytest.raises(ForeignError, match="holds 2 of 3 requests"):
        read_logged_ms(logging(tmp_path, 2), tmp_path, 3)


def test_server_that_cannot_run_says_what_it_printed(tmp_path):
    command = shlex.join([sys.executable, "-c", "print('no such weights')"])
    broken = ForeignServer(name="broken", command=command)
    with pytest.raises(
        ForeignError, match=r"broken does not answer; run `make others`.*\nno such weights"
    ):
        measure(
            Measurement(name="m", servers=(broken,), model="m", rounds=1, concurrency=1), tmp_path
        )


@pytest.mark.parametrize(("status", "ready"), [(404, True), (503, False)])
def test_server_that_lists_no_models_is_ready_and_one_that_loads_is_not(monkeypatch, status, ready):
    class Refusing:
        def open(self, url: str, **_: float) -> None:
            raise urllib.error.HTTPError(url, status, "", Message(), None)

    monkeypatch.setattr("foreign_servers._DIRECT", Refusing())
    refusal = contextlib.nullcontext() if ready else pytest.raises(urllib.error.HTTPError)
    with refusal:
        assert read_owner("http://127.0.0.1:1") is None


def test_held_server_and_its_children_end_with_their_starter():
    read, write = os.pipe()
    command = [sys.executable, str(HERE / "hold.py"), "sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdin=read, stdout=subprocess.PIPE, text=True) as process:
        os.close(read)
        child = int(process.stdout.readline())
        os.close(write)  # as a kill of the starter does
        assert process.wait(20) != 0

    assert has_ended(child)
