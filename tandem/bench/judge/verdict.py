"""The verdict on a run: all that its records allow to be said, in the form of verdict.json.

Invariant: every part is made from the records of this folder by the module that owns it; nothing is read from an
earlier verdict; the same files and the same flags give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tandem.bench import counters, json_file, rounds
from tandem.bench.claims.answers import answers
from tandem.bench.claims.eligibility import explain_unasked
from tandem.bench.fault import BenchError
from tandem.bench.folder import RECORDS
from tandem.bench.judge.acceptance import acceptance
from tandem.bench.judge.cells import cells
from tandem.bench.judge.controls import controls
from tandem.bench.judge.cost import costs
from tandem.bench.judge.form import FILE, MARGIN, Definition, Verdict
from tandem.bench.judge.headline import headlines
from tandem.bench.judge.observations import Observations
from tandem.bench.manifest import FILE as MANIFEST
from tandem.bench.manifest import Manifest, run_id
from tandem.bench.output.equality import equality
from tandem.metrics import metric
from tandem.shell_command import quote_command

NEEDED = (RECORDS, counters.FILE, rounds.FILE, MANIFEST)
"""The files of a run that a verdict is made from; each but the first and the last may be absent, and is missed."""

_BACK_S = 60.0  # further back than any two records are written out of turn

_WORDS = (
    Definition(
        name="speed-up",
        unit="1",
        definition="how many times as fast the variant is: baseline / variant for times, variant / baseline for rates; "
        "the geometric mean over prompts of each prompt's own speed-up, of medians over its repeats",
    ),
    Definition(
        name="interval",
        unit="1",
        definition="95 of 100 such intervals hold the true speed-up; by resampling prompts, because requests of one "
        "prompt are alike and would make it look narrower than it is",
    ),
    Definition(
        name="faster, slower",
        unit="",
        definition="the test that the speed-up is 1 is refuted with all tests of the report taken into account (Holm), "
        "the speed-up is beyond the noise floor, and of E2E neither mean nor 90th percentile goes the other way",
    ),
    Definition(
        name="mixed",
        unit="",
        definition="of a class: the median of E2E says one thing, its mean or 90th percentile another; of a variant: "
        "a class is mixed, or some are faster and some slower",
    ),
    Definition(
        name="within one start",
        unit="",
        definition="true of the starts of the servers that were measured; starts differ, and 6 of each arm put that in",
    ),
    Definition(name="same", unit="", definition="the whole interval lies inside the margin"),
    Definition(
        name="no evidence", unit="", definition="neither: the run cannot tell; how many prompts could stands beside it"
    ),
    Definition(
        name="noise floor",
        unit="1",
        definition="how far the baseline is from itself when it is asked twice, by the farther end of the interval",
    ),
    Definition(
        name="detectable",
        unit="1",
        definition="the smallest speed-up that so many prompts would find four times out of five",
    ),
    Definition(name="void", unit="", definition="a control failed, so nothing may be concluded from the run"),
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the reader of a run asks for.

    Args:
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.
        usd_per_hour: in place of the manifest's price; None keeps that.
        tokenizer: the target's tokenizer.json, for outputs of servers that give no token ids; None compares characters.
    """

    margin: float = MARGIN
    usd_per_hour: float | None = None
    tokenizer: Path | None = None


def unjudged(run: Manifest) -> str | None:
    """Return why a run has no verdict; None where it has one."""
    if run.generator == "llmperf":
        return "llmperf's records have neither prompts nor tokens, so no verdict is built on them"
    if not run.arms:
        return "the manifest names no arm: restore it from a copy"
    if len(run.arms) < 2:  # noqa: PLR2004 - a comparison takes two
        return "one arm was measured, so there is nothing to compare: name a --variant"
    return None


def judge(seen: Observations, asked: Asked, notes: Sequence[str] = ()) -> Verdict:
    """Return the verdict on a run.

    Args:
        seen: its requests.
        asked: how it is to be judged.
        notes: what a reader must know beside.

    Raises:
        BenchError: the manifest's names leave no arm to judge, or a file that is asked for cannot be used.
    """
    run = seen.run
    if not seen.variants:
        raise _nobody(seen)
    checked = controls(seen)
    found = cells(seen, checked, margin=asked.margin)
    equal = equality(seen, tokenizer=asked.tokenizer)
    accepted = acceptance(seen)
    unasked = explain_unasked(seen)
    price = asked.usd_per_hour if asked.usd_per_hour is not None else run.price_usd_per_hour
    return Verdict(
        version=run.version, run=run_id(run), folder=seen.folder.resolve().name, created_utc=run.created_utc,
        simulated=run.simulated,
        baseline=seen.baseline, variants=seen.variants, requests=len(seen), failed=int(seen.failed.sum()),
        margin=asked.margin, controls=checked, cells=found, equality=equal, acceptance=accepted,
        headlines=headlines(seen, found, checked, equal, margin=asked.margin),
        claims=() if unasked else answers(seen, found, equal, accepted, margin=asked.margin, controls=checked),
        claims_unasked=unasked,
        cost=costs(seen, usd_per_hour=price, controls=checked),
        definitions=tuple(_definitions(cell.metric for cell in found)),
        notes=tuple(dict.fromkeys([*notes, *map(str, seen.torn), *_clock(seen)])),
        recompute=tuple(_recompute(seen.folder, asked, run)),
    )  # fmt: skip


def save(folder: Path, verdict: Verdict) -> Path:
    """Write verdict.json whole: a reader sees the old one or the new one.

    Raises:
        WorldError: the folder cannot be written to.
    """
    path = folder / FILE
    json_file.save(path, verdict, what="the verdict")
    return path


def _nobody(seen: Observations) -> BenchError:
    """Return the fault of a manifest with several arms of which, by their names, each is the baseline."""
    own = any(arm.name == seen.control for arm in seen.run.arms)
    name = f"the name {seen.control} is that of the baseline's own control"
    why = name if own else f"every arm is named {seen.baseline}"
    return BenchError(
        f"no arm can be held against {seen.baseline}: {why}",
        where=str(seen.folder / MANIFEST),
        change="give the other arm a name of its own, without a #, here and in records.jsonl and counters.jsonl, or "
        "measure again with --variant NAME=URL",
    )


def _clock(seen: Observations) -> Iterator[str]:
    """Yield what is doubtful where the clock of the records ran backwards: they are written in the order they ended."""
    back = np.flatnonzero(np.diff(seen.end_s) < -_BACK_S)
    if len(back):
        yield (
            f"the clock of the records runs backwards, first at {RECORDS}:{int(back[0]) + 2}: the machine was booted "
            "anew, or its clock was set; a request is timed by itself, so speed-ups hold, but drift and cost may not"
        )


def _definitions(metrics: Iterable[str]) -> Iterator[Definition]:
    for name in dict.fromkeys(metrics):
        known = metric(name)
        yield Definition(name=name, unit=known.unit, definition=known.definition)
    yield from _WORDS


def _recompute(folder: Path, asked: Asked, run: Manifest) -> Iterator[str]:
    """Yield the command that makes the same verdict from a copy of the folder."""
    flags = [] if asked.margin == MARGIN else ["--margin", f"{asked.margin:.15g}"]
    if asked.usd_per_hour is not None:
        flags += ["--price", f"{asked.usd_per_hour:.15g}"]
    if asked.tokenizer is not None:
        flags += ["--tokenizer", asked.tokenizer.name]
    yield quote_command("tandem", "bench", "report", folder.resolve().name, *flags)
    yield f"measured by Tandem {run.version}; {', '.join(NEEDED[:-1])} and {NEEDED[-1]} are all it needs"
