"""Sixty prompts of one's own in three forms, each with a word that no other text has."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CLASSES = ("billing", "returns", "setup")
PROMPT_COUNT = 60
MAX_TOKENS = 160
MARK = "quagga"
"""Part of each prompt; no file of this repository that a run reads has the word."""

PROMPTS = [
    (CLASSES[number % 3], f"Ticket {MARK}-{number:02}: what do you do first? Answer in a sentence.")
    for number in range(PROMPT_COUNT)
]


def format_own() -> str:
    """Return the prompts in Tandem's own form."""
    rows = [
        {"id": f"t-{number}", "class": class_, "prompt": text, "max_tokens": MAX_TOKENS}
        for number, (class_, text) in enumerate(PROMPTS)
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def format_table() -> str:
    """Return them as CSV."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["team", "question", "max_tokens"])
    writer.writerows([class_, text, MAX_TOKENS] for class_, text in PROMPTS)
    return file.getvalue()


def format_conversations() -> str:
    """Return them as ShareGPT's, each with an answer behind it."""
    return json.dumps(
        [
            {
                "topic": class_,
                "max_tokens": MAX_TOKENS,
                "conversations": [
                    {"from": "human", "value": text},
                    {"from": "gpt", "value": f"I look for {MARK} in the archive."},
                ],
            }
            for class_, text in PROMPTS
        ]
    )


FORMS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "own.jsonl": (format_own(), {}),
    "table.csv": (format_table(), {"prompt_column": "question", "class_field": "team"}),
    "talks.json": (format_conversations(), {"class_field": "topic", "turns": 1}),
}
"""File to its content, and how it is read."""


def write_suite(project: Path, name: str) -> dict[str, Any]:
    """Write a file of prompts into a project; return how an experiment declares it.

    Args:
        project: folder that holds experiments/.
        name: of FORMS.
    """
    content, options = FORMS[name]
    path = project / "prompts" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    digest = hashlib.sha256(content.encode()).hexdigest()
    classes = dict.fromkeys(CLASSES, PROMPT_COUNT // len(CLASSES))
    declaration = {"file": f"prompts/{name}", "sha256": digest, "classes": classes}
    return {**declaration, **options}
