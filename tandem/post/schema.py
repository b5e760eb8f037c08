"""The form of claims.json: what a run answers to each claim of the post.

Invariant: the judge of a run alone writes it; a report shows it as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from tandem.bench.records import json_file
from tandem.bench.records.json_file import DECODE_ERRORS, require_schema
from tandem.errors import InputError, convert_os_errors

SCHEMA = 1
FILE = "claims.json"
AnswerWord = Literal["confirmed", "contradicted", "no evidence", "not comparable"]
_CHANGE = "take the file from a copy, or delete it: then the report has no claims"


class ClaimVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a run says to one claim of the post.

    Args:
        claim: its id, C1 and so on.
        text: the claim in our words.
        where: where it was made.
        answer: what the run says. `not comparable`: the run does not measure what the claim speaks
            of.
        why: with figures.
        against: ids of claims that contradict it.
        variant: the arm that it is answered of; None: of the run as a whole.
    """

    claim: str
    text: str
    where: str
    answer: AnswerWord
    why: str
    against: tuple[str, ...] = ()
    variant: str | None = None


class ClaimAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """All of claims.json.

    Args:
        claims: the answers; empty where nobody of the run can answer.
        reason: why there are none, in a sentence; empty where there are.
    """

    schema: int = SCHEMA
    claims: tuple[ClaimVerdict, ...] = ()
    reason: str = ""


def save_answers(folder: Path, answers: ClaimAnswers) -> None:
    """Write claims.json whole.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    json_file.save_json(folder / FILE, answers, label="the answers to the claims")


def read_answers(folder: Path) -> ClaimAnswers | None:
    """Return what claims.json of a run's folder says; None where its run was asked no claims.

    Raises:
        InputError: the file cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        return None
    with convert_os_errors("the answers to the claims cannot be read", path, _CHANGE):
        text = path.read_bytes()
    require_schema(text, SCHEMA, label="claims.json", where=str(path), change=_CHANGE)
    try:
        return msgspec.json.decode(text, type=ClaimAnswers)
    except DECODE_ERRORS as error:
        raise InputError(
            f"these are no answers to claims: {error}", where=str(path), change=_CHANGE
        ) from error
