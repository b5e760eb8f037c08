"""The restarts of a run's servers, one line each in restarts.jsonl.

Invariant: a line stands here only after the server was back, so a restart that failed or was
interrupted is done again by a resumed run.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tandem.bench.records.json_file import append_json, read_json_lines

FILE = "restarts.jsonl"


class RestartEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One restart of one server.

    Args:
        arm: name of the arm.
        start: number of the start that followed, from 2.
        round: number of the round before which it was, from 0.
        utc: when the command began.
        command_s: until the command had ended, in seconds from its begin.
        gone_s: until the old server was known to be gone.
        back_s: until the new server answered.
        evidence: how the old server was known to be gone.
        start_id: the ID that the command printed as `start=ID`; None if it printed none.
    """

    arm: str
    start: int
    round: int
    utc: str
    command_s: float
    gone_s: float
    back_s: float
    evidence: str
    start_id: str | None = None


def read_restarts(folder: Path) -> tuple[RestartEntry, ...]:
    """Return the restarts of a run; none if the file does not exist.

    Raises:
        InputError: the file cannot be read, or a line is no restart.
    """
    path = folder / FILE
    if not path.exists():
        return ()
    change = "restore the file from a copy"
    return tuple(read_json_lines(path, RestartEntry, label="the restarts", change=change))


def append_restart(folder: Path, entry: RestartEntry) -> None:
    """Append a restart.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    append_json(folder / FILE, entry, label="the restarts")
