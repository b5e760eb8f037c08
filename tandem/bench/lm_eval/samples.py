"""Samples of lm-eval as rows of `quality.jsonl`: one arm's answers to the items of each task.

Invariant: only generated answers count. A multiple choice needs log-probabilities of the prompt,
which these servers do not give: both arms would score chance and look the same.

Source: the files that lm-eval 0.4.13 writes with `--log_samples --output_path`, read on 2026-11-27.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tandem.bench.records.json_file import read_json_lines
from tandem.bench.records.quality_rows import QualityRow
from tandem.errors import InputError

GROUP_FIELD = "group"
"""Field of a document that names the item's group, unless another field is named."""

# in characters; a longer group, such as the text of a passage, goes by its digest
_LONGEST_NAME = 80
_CHANGE = (
    "give the folder of `lm_eval --log_samples --output_path`,"
    " of tasks with generate_until and exact_match"
)


class LmEvalSample(msgspec.Struct, frozen=True, kw_only=True):
    """One answer; further fields of lm-eval are ignored.

    Args:
        doc_hash: of the item, the same for every server.
        doc: the item's fields, as the task prepared them.
        filter: name of the filter that took the answer out of the text.
        arguments: of the request, by number.
        exact_match: 1 for a right answer, 0 for a wrong one; None if the task has another metric.
    """

    doc_hash: str
    doc: dict[str, Any] = {}
    filter: str = "none"
    arguments: dict[str, dict[str, Any]] = {}
    exact_match: float | None = None

    @property
    def is_generated(self) -> bool:
        """Whether the server generated the answer: such a request has settings of a generation."""
        settings = [argument.get("arg_1") for argument in self.arguments.values()]
        return bool(settings) and all(
            isinstance(setting, dict) and "until" in setting for setting in settings
        )


def list_prompts(folder: Path) -> set[str]:
    """Return the distinct prompts of all samples below a folder: messages as JSON.

    Raises:
        InputError: a sample is malformed.
    """
    prompts: set[str] = set()
    for path in folder.rglob("samples_*.jsonl"):
        for sample in read_json_lines(path, LmEvalSample, label="the samples", change=_CHANGE):
            prompts |= {argument["arg_0"][0] for argument in sample.arguments.values()}
    return prompts


def list_sample_rows(
    folder: Path, arm: str, *, chance: float = 0.0, group: str | None = None
) -> list[QualityRow]:
    """Return the rows of every task below a folder; of a task's several calls the last counts.

    Args:
        folder: of lm-eval's output.
        arm: name of the server in the run.
        chance: share of the items that guessing has right.
        group: field of the documents that names an item's group; None for `GROUP_FIELD`, which a
            document may lack.

    Raises:
        InputError: there is no file, or a sample is malformed, was not generated, or has no exact
            match or no group.
    """
    paths = {
        path.name.removeprefix("samples_").rpartition("_")[0]: path
        for path in sorted(folder.rglob("samples_*.jsonl"), key=lambda path: path.name)
    }
    if not paths:
        raise InputError("there are no samples of lm-eval", where=str(folder), change=_CHANGE)
    rows: list[QualityRow] = []
    for task, path in paths.items():
        rows += _read_task(path, task, arm, chance, group)
    return rows


def _read_task(
    path: Path, task: str, arm: str, chance: float, group: str | None
) -> Iterator[QualityRow]:
    """Yield the rows of a file; each filter of a task is a task of its own."""
    for sample in read_json_lines(path, LmEvalSample, label="the samples", change=_CHANGE):
        if not sample.is_generated:
            raise InputError(
                "an answer was not generated: a multiple choice", where=str(path), change=_CHANGE
            )
        if sample.exact_match not in {0.0, 1.0}:
            raise InputError("a sample has no exact match", where=str(path), change=_CHANGE)
        name = task if sample.filter == "none" else f"{task}, {sample.filter}"
        yield QualityRow(
            task=name,
            item=sample.doc_hash,
            arm=arm,
            right=sample.exact_match == 1,
            chance=chance,
            group=_name_group(sample, group, path),
        )


def _name_group(sample: LmEvalSample, field: str | None, path: Path) -> str:
    """Return the name of an item's group, or a digest of a long one; empty for none."""
    value = sample.doc.get(field or GROUP_FIELD)
    if value is None and field:
        fields = ", ".join(sorted(sample.doc)) or "none"
        problem = f"document {sample.doc_hash} has no field {field!r}; it has {fields}"
        raise InputError(
            problem, where=str(path), change="name a field of the documents, or no group"
        )
    name = "" if value is None else str(value)
    return name if len(name) <= _LONGEST_NAME else hashlib.sha256(name.encode()).hexdigest()
