"""The restarts of a run on disk."""

from __future__ import annotations

import msgspec
import pytest

from tandem.bench.records.restart import FILE, RestartEntry, append_restart, read_restarts
from tandem.errors import InputError

ENTRY = RestartEntry(
    arm="base",
    start=2,
    round=1,
    utc="2026-11-29T00:00:00+00:00",
    command_s=3.0,
    gone_s=1.0,
    back_s=9.0,
    evidence="connections are refused",
)


def test_restarts_are_read_in_their_order(tmp_path):
    append_restart(tmp_path, ENTRY)
    append_restart(tmp_path, msgspec.structs.replace(ENTRY, start=3))
    assert [entry.start for entry in read_restarts(tmp_path)] == [2, 3]


def test_a_run_without_restarts_has_none(tmp_path):
    assert read_restarts(tmp_path) == ()


def test_a_line_that_is_no_restart_is_refused(tmp_path):
    (tmp_path / FILE).write_text('{"arm": "base"}\n')
    with pytest.raises(InputError, match="restarts"):
        read_restarts(tmp_path)
