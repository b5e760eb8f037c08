"""`quality.jsonl` of a run: whether each arm answered each item of a task right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tandem.bench.records.json_file import read_json_lines
from tandem.errors import ExternalError, convert_os_errors

QUALITY_FILE = "quality.jsonl"


class QualityRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One item, answered by one arm.

    Args:
        task: name of the task set.
        item: its name in the task set.
        arm: name in the run's manifest.
        right: whether the answer is right.
        chance: share of the items that guessing has right, from 0 to below 1.
        group: of items that belong together, such as the questions on one passage; empty for none.
        fault: why the task has no answers; then item and right mean nothing.
    """

    task: str
    item: str
    arm: str
    right: bool
    chance: float = 0.0
    group: str = ""
    fault: str = ""


def read_quality(folder: Path) -> tuple[QualityRow, ...]:
    """Return the rows of a run; empty if nobody asked its arms any task.

    Raises:
        InputError: a line is malformed.
    """
    path = folder / QUALITY_FILE
    if not path.is_file():
        return ()
    return tuple(
        read_json_lines(path, QualityRow, label="an answered item", change="ask the items again")
    )


def write_quality(folder: Path, rows: Sequence[QualityRow]) -> Path:
    """Write rows next to other tasks', over earlier rows of the same tasks; return the file.

    Raises:
        InputError: a line of the file is malformed.
        ExternalError: the disk failed.
    """
    path = folder / QUALITY_FILE
    tasks = {row.task for row in rows}
    others = [row for row in read_quality(folder) if row.task not in tasks and not row.fault]
    with convert_os_errors(
        "the answers cannot be written", path, "free the disk, ask the items again", ExternalError
    ):
        path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in (*others, *rows)))
    return path
