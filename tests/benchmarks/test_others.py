"""Whose processor time is whose."""

from __future__ import annotations

import os
import subprocess
import sys

import others
import pytest
from others import Taken, share, taken


def test_what_is_ours_is_not_taken_for_others():
    before = Taken(all=1000, busy=500, ours=100)
    after = Taken(all=2000, busy=1300, ours=800)
    assert share(before, after) == pytest.approx(0.1)  # 800 busy ticks, 700 of them ours, of 1000


def test_an_unknown_load_stays_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(others, "PROC", tmp_path)
    assert taken() is None
    assert share(None, Taken(all=100, busy=90, ours=0)) is None


def test_the_work_of_a_named_process_group_is_ours():
    code = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as worker:
        worker.stdout.readline()
        with_group = taken([worker.pid])
        without = taken()
        worker.communicate(b"\n")

    assert with_group.ours - without.ours >= 0.3 * os.sysconf("SC_CLK_TCK")
