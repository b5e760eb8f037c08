"""The register of claims: rows of post.toml as frozen values.

Sources and traps, which only a reader of the file needs, are in the file alone.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

FILE = Path(__file__).parent / "post.toml"


class PostSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Set-up that the post measured.

    Args:
        target, draft: models.
        mode, num_speculative_tokens: of its speculation.
        runtimes: of tandem/declarations/data/runtimes, that are the post's.
        instance_type: half of one served each arm.
        concurrency: requests at once.
        hours: how long its figures' curves run.
    """

    target: str
    draft: str
    mode: str
    num_speculative_tokens: int
    runtimes: tuple[str, ...]
    instance_type: str
    concurrency: int
    hours: float


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim.

    Args:
        id: C1 and so on.
        text: the claim in our words.
        where: where it was made.
        asks: how it is answered: a key of tandem.post.answers.ANSWER_FUNCTIONS.
        confirms: what a run must show.
        metrics: of the claim, in the catalogue's names; empty where it is about no figure.
        classes: of our suites `post` and `real` that stand for its prompts; empty for all.
        beside: classes that it compares these with.
        direction: of the variant's difference.
        every: the claim is about each class, not about some.
        against: ids of claims that contradict it.
        factor: the speed-up it names, a plain number.
        level_ms, beside_ms: the figure it names for its classes, and for those beside, in ms.
        level_of_both: level_ms is of both arms, not of the variant alone.
        drafts: models it compares, the one that it favours first.
        windows: values of num_speculative_tokens that it compares, the one that it favours first.
    """

    id: str
    text: str
    where: str
    asks: str
    confirms: str
    metrics: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    direction: Literal["faster", "same"] | None = None
    every: bool = False
    against: tuple[str, ...] = ()
    factor: float | None = None
    level_ms: float | None = None
    beside_ms: float | None = None
    level_of_both: bool = False
    drafts: tuple[str, ...] = ()
    windows: tuple[int, ...] = ()


class ClaimRegister(msgspec.Struct, frozen=True, kw_only=True):
    """All claims in the file's order, and the set-up that was measured for them."""

    set_up: PostSetup
    claim: tuple[Claim, ...]


@cache
def read_register() -> ClaimRegister:
    """Read the register."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), ClaimRegister)
