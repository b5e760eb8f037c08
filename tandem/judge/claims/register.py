"""The register of claims: rows of a data file as frozen values, refused at the border when one is not as it must be.

Invariant: what loads is whole: each id once, every class one of our suites, every metric of the catalogue, every row
of a source that the file has, and two claims that contradict each other both say so.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tandem.bench.fault import BenchError
from tandem.bench.suites.suite import BUILT_IN, load_suite
from tandem.metrics import CATALOGUE

FILE = Path(__file__).parent / "post.toml"

AnswerMethod = Literal[
    "best class",
    "cells",
    "over time",
    "pattern",
    "drafts",
    "windows of speculation",
    "cost",
    "equality",
    "steps",
    "declared",
    "set-up",
    "months",
    "image",
]
"""How a claim is answered; each word has one function in tandem.judge.claims.answers."""

ClaimScope = Literal["any run", "direction", "the post's set-up"]
"""What a claim speaks of. `any run`: of speculation, so any pair of servers may answer it. `direction`: which way it
goes, any pair may answer; its milliseconds belong to the post's models on the post's accelerators. `the post's
set-up`: of a size, a cost or a tuning of that set-up, so nothing else can answer it."""


class ClaimSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who says it, when that was published, and when it was read."""

    title: str
    published: str
    read: dt.date
    address: str | None = None


class PostSetup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the post measured.

    Args:
        target, draft: models.
        mode, num_speculative_tokens: of its speculation.
        runtimes: of tandem/spec/data/runtimes, that are the post's.
        instance_type: half of one served each arm.
        concurrency: requests at once.
        hours: how long its figures' curves run.
        source: key of the source that says so.
    """

    target: str
    draft: str
    mode: str
    num_speculative_tokens: int
    runtimes: tuple[str, ...]
    instance_type: str
    concurrency: int
    hours: float
    source: str


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One claim.

    Args:
        id: C1 and so on.
        text: the claim in our words.
        where: where it was made.
        source: key of the source.
        asks: how it is answered.
        carries: what it speaks of.
        confirms: what a run must show.
        trap: what makes it easy to be wrong about.
        metrics: what it is about, in the catalogue's names; empty where it is about no figure.
        classes: of our suites `post` and `real` that stand for its prompts; empty for all.
        beside: classes that it compares these with.
        direction: what it says of the variant.
        every: it holds of each class, not of some.
        against: ids of claims that contradict it.
        factor: the speed-up it names, a plain number.
        level_ms, beside_ms: the figure it names for its classes, and for those beside, in ms.
        level_of_both: level_ms is of both arms, not of the variant alone.
        drafts: models it compares, the one that it favours first.
        windows: values of num_speculative_tokens that it compares, the one that it favours first.
        llmperf: its figures were by llmperf's definition of the inter-token latency.
    """

    id: str
    text: str
    where: str
    source: str
    asks: AnswerMethod
    carries: ClaimScope
    confirms: str
    trap: str
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
    llmperf: bool = False


AnswerWord = Literal["confirmed", "contradicted", "no evidence", "not comparable"]


class ClaimAnswer(NamedTuple):
    """What a run says to a claim, and why."""

    answer: AnswerWord
    reason: str

    def add_sentence(self, sentence: str) -> ClaimAnswer:
        """Return the same answer with one more sentence."""
        return ClaimAnswer(self.answer, f"{self.reason}. {sentence}")


class ClaimRegister(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All claims in the file's order, what was measured for them, and who says so."""

    sources: dict[str, ClaimSource]
    set_up: PostSetup
    claim: tuple[Claim, ...]


@cache
def read_register(path: Path = FILE) -> ClaimRegister:
    """Read the register.

    Raises:
        BenchError: a row is not as it must be; it names the claim.
    """
    try:
        claim_register = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), ClaimRegister)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BenchError(
            f"this is no register of claims: {error}", where=str(path), change="restore the file, or correct this row"
        ) from error
    faults = _find_faults(claim_register)
    if faults:
        raise BenchError("; ".join(faults), where=str(path), change="correct these rows")
    return claim_register


def _find_faults(claim_register: ClaimRegister) -> list[str]:
    """Say what is wrong with rows whose form is right."""
    ids, sources = [claim.id for claim in claim_register.claim], claim_register.sources
    class_names = {name for suite in BUILT_IN for name in load_suite(suite).classes}
    against = {claim.id: claim.against for claim in claim_register.claim}
    faults = [f"{name} stands more than once" for name in dict.fromkeys(ids) if ids.count(name) > 1]
    if claim_register.set_up.source not in sources:
        faults.append(f"the set-up cites {claim_register.set_up.source!r}; allowed: {', '.join(sources)}")
    for claim in claim_register.claim:
        checks: dict[str, tuple[tuple[str, ...], Collection[str]]] = {
            "source": ((claim.source,), sources),
            "metrics": (claim.metrics, CATALOGUE),
            "classes": ((*claim.classes, *claim.beside), class_names),
            "against": (claim.against, against.keys() - {claim.id}),
        }
        faults += [
            f"{claim.id}: {key} has {name!r}; allowed: {', '.join(sorted(allowed_names))}"
            for key, (names, allowed_names) in checks.items()
            for name in names
            if name not in allowed_names
        ]
        faults += [
            f"{claim.id} contradicts {name}, which does not say so"
            for name in claim.against
            if claim.id not in against.get(name, [claim.id])
        ]
    return faults
