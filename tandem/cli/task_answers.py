"""Rows of `tandem bench quality`: answered now, or of lm-eval's samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import uvloop

from tandem.bench.lm_eval.samples import list_sample_rows
from tandem.bench.records.manifest import read_manifest
from tandem.bench.records.quality_rows import QualityRow
from tandem.bench.suites.task_items import ITEMS_FILE, OWN_TASK, ItemTask, ask_items, load_items
from tandem.cli.server_flags import ServerWord, read_access
from tandem.errors import InputError


def ask_task(
    folder: Path,
    items: Path | None,
    chance: float,
    group: str | None,
    *,
    keys: Sequence[ServerWord],
    headers: Sequence[ServerWord],
) -> list[QualityRow]:
    """Ask every arm of a run the items of a task; a task set's file is of the task of its folder.

    Raises:
        InputError: the manifest or the task is none, a field is named for the groups, or a key or
            header cannot be read.
        ExternalError: a server left too many items without an answer.
    """
    if group:
        change = "write `group` into the items, or give samples with --lm-eval"
        raise InputError(
            "only samples of lm-eval have such a field", where=f"--group {group}", change=change
        )
    manifest = read_manifest(folder)
    path = items or OWN_TASK
    access = read_access({arm.name: arm.url for arm in manifest.arms}, keys, headers)
    name = path.resolve().parent.name if path.name == ITEMS_FILE else path.stem
    task = ItemTask(name=name, items=load_items(path), chance=chance)
    return uvloop.run(ask_items(manifest.arms, task, api=manifest.api, access=access))


def read_samples(
    folder: Path, words: Sequence[str], chance: float, group: str | None
) -> list[QualityRow]:
    """Return the rows of lm-eval's samples.

    Args:
        folder: of the run.
        words: `ARM=DIR`, one for each arm of the run.
        chance: share of the items that guessing has right.
        group: field of lm-eval's documents that names an item's group; None for the usual one.

    Raises:
        InputError: a word names no arm, an arm is missing, or samples are malformed.
    """
    names = [arm.name for arm in read_manifest(folder).arms]
    folders = {}
    for word in words:
        name, _, place = word.partition("=")
        folders[name] = Path(place)
    if set(folders) != set(names):
        change = f"write --lm-eval ARM=DIR for each arm: {', '.join(names)}"
        raise InputError(f"samples of {', '.join(folders)}", where="--lm-eval", change=change)
    rows = []
    for name in names:
        rows += list_sample_rows(folders[name], name, chance=chance, group=group)
    return rows
