"""What two runs have in common and what differs between them, from their manifests.

Invariant: suites are the same by content or not at all; what was asked of other prompts is refused, never pooled;
every field of a manifest that a figure may depend on is held against the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tandem.bench.compare.form import Difference
from tandem.bench.fault import BenchError
from tandem.bench.judge.observations import Observations
from tandem.bench.manifest import Arm, Manifest, run_id

_BLOCKS = ("api", "thinking", "temperature", "max_tokens", "schedule", "mixed")
"""Fields that change what is answered or beside what: with another value, figures are of another question."""

_OF_THE_DAY = (
    "schema", "created_utc", "arms", "suites", "clock", "plan", "warm_up", "resumed", "notes", "ended", "goodput",
    "price_usd_per_hour",
)  # fmt: skip
_OF_THE_MACHINE = ("cpus", "python")
_OF_AN_ARM = ("model", "image", "artifact_key", "server_version", "runtime", "speculation", "role", "url")
_ASKED_FIRST = ("model", "image", "artifact_key", "server_version")


class Shared(NamedTuple):
    """What can be compared.

    Args:
        arms: names, the control left out.
        suites: the earlier run's name of each suite, by the later run's.
        left_out: sentences on what only one of the runs has.
    """

    arms: tuple[str, ...]
    suites: Mapping[str, str]
    left_out: tuple[str, ...]


def shared(before: Observations, after: Observations) -> Shared:
    """Return what both runs have.

    Raises:
        BenchError: they cannot be compared; it says why.
    """
    runs = (before.run, after.run)
    for seen in (before, after):
        if seen.run.generator != "tandem":
            raise _refused(seen, "its records have neither prompts nor tokens", "compare runs of tandem bench run")
    if run_id(runs[0]) == run_id(runs[1]):
        raise _refused(after, "this is the same run, or a copy of it", "name two runs")
    names = [tuple(arm for arm in seen.arms if arm != seen.control) for seen in (before, after)]
    arms = tuple(name for name in names[0] if name in names[1])
    if not arms:
        told = f"the runs have no arm in common: {', '.join(names[0])}; and {', '.join(names[1])}"
        raise _refused(after, told, "give the arms of both runs the same names: --baseline NAME=URL")
    suites, left_out = _suites(before, after)
    left_out += [
        f"{', '.join(lone)} of the {which} run {'is' if len(lone) == 1 else 'are'} in this run alone"
        for which, mine in (("earlier", names[0]), ("later", names[1]))
        if (lone := [name for name in mine if name not in arms])
    ]
    return Shared(arms, suites, tuple(left_out))


def differences(before: Manifest, after: Manifest, both: Shared) -> tuple[Difference, ...]:
    """Return what differs, arms first."""
    return (*_of_arms(before, after, both), *_of_runs(before, after))


def alike(before: Manifest, after: Manifest, both: Shared) -> tuple[str, ...]:
    """Return what is the same, of what a reader asks for first."""
    hashes = {suite.name: suite.sha256 for suite in before.suites}
    said = [f"suite {name} ({hashes[name][:12]})" for name in both.suites.values()]
    for name in both.arms:
        pair = [_arm(run, name) for run in (before, after)]
        equal = [
            _field(field) for field in _ASKED_FIRST if getattr(pair[0], field, None) and _same(pair[0], pair[1], field)
        ]
        said += [f"{', '.join(equal)} of {name}"] if equal else []
    return tuple(said)


def _suites(before: Observations, after: Observations) -> tuple[dict[str, str], list[str]]:
    by_content = {suite.sha256: suite.name for suite in before.run.suites}
    mine = {suite.name: suite.sha256 for suite in before.run.suites}
    for suite in after.run.suites:
        if suite.name in mine and mine[suite.name] != suite.sha256:
            raise _refused(
                after,
                f"suite {suite.name} has other content than in {before.folder} "
                f"(SHA-256 {suite.sha256[:12]}, {mine[suite.name][:12]}): its file was changed, or --classes",
                "compare runs of the same suite; nothing is pooled over other prompts",
            )
    common = {suite.name: by_content[suite.sha256] for suite in after.run.suites if suite.sha256 in by_content}
    if not common:
        names = [", ".join(suite.name for suite in seen.run.suites) or "none" for seen in (before, after)]
        raise _refused(after, f"the runs have no suite in common: {names[0]}; and {names[1]}", "measure the same suite")
    lone = [name for name in mine if name not in common.values()]
    lone += [suite.name for suite in after.run.suites if suite.name not in common]
    return common, [f"suite {name} was asked in one run alone" for name in lone]


def _of_arms(before: Manifest, after: Manifest, both: Shared) -> Iterator[Difference]:
    for name in both.arms:
        pair = [_arm(run, name) for run in (before, after)]
        for field in _OF_AN_ARM:
            if not _same(pair[0], pair[1], field):
                told = [_told(getattr(arm, field, None)) for arm in pair]
                yield Difference(what=f"{_field(field)} of {name}", before=told[0], after=told[1])


def _of_runs(before: Manifest, after: Manifest) -> Iterator[Difference]:
    built = [msgspec.to_builtins(run) for run in (before, after)]
    for key in built[0]:
        if key not in (*_OF_THE_DAY, "host") and built[0][key] != built[1][key]:
            told = [_told(one[key]) for one in built]
            blocks = key in _BLOCKS or (key == "simulated" and True in (before.simulated, after.simulated))
            yield Difference(what=_field(key), before=told[0], after=told[1], blocks=blocks)
    for key in _OF_THE_MACHINE:
        told = [_told(one["host"][key]) for one in built]
        if told[0] != told[1]:
            yield Difference(what=f"{key} of the measuring machine", before=told[0], after=told[1])


def _arm(run: Manifest, name: str) -> Arm | None:
    return next((arm for arm in run.arms if arm.name == name), None)


def _same(before: Arm | None, after: Arm | None, field: str) -> bool:
    return bool(getattr(before, field, None) == getattr(after, field, None))


def _field(name: str) -> str:
    return {"version": "version of Tandem", "url": "address"}.get(name, name.replace("_", " "))


def _told(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, list | tuple):
        return ", ".join(map(_told, value)) or "none"
    built = msgspec.to_builtins(value)
    if isinstance(built, dict):
        return ", ".join(f"{_field(key)} {_told(one)}" for key, one in built.items())
    return str(built)


def _refused(seen: Observations, problem: str, change: str) -> BenchError:
    return BenchError(problem, where=str(seen.folder), change=change)
