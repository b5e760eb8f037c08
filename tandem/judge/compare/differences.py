"""What two runs have in common and what differs between them, from their manifests.

Invariant: suites are the same by content or not at all; what was asked of other prompts is refused, never pooled;
every field of a manifest that a figure may depend on is held against the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from tandem.bench.fault import BenchError
from tandem.bench.manifest import ManifestArm, RunManifest, run_id
from tandem.bench.request_table import RequestTable
from tandem.judge.compare.schema import ManifestDifference

_BLOCKING_FIELDS = ("api", "thinking", "temperature", "max_tokens", "schedule", "mixed")
"""Fields that change what is answered or beside what: with another value, figures are of another question."""

_IGNORED_FIELDS = (
    "schema", "created_utc", "arms", "suites", "clock", "plan", "warm_up", "resumed", "notes", "ended", "goodput",
    "price_usd_per_hour",
)  # fmt: skip
_MACHINE_FIELDS = ("cpus", "python")
_ARM_FIELDS = ("model", "image", "artifact_key", "server_version", "runtime", "speculation", "role", "url")
_MAIN_FIELDS = ("model", "image", "artifact_key", "server_version")


class CommonParts(NamedTuple):
    """What can be compared.

    Args:
        arms: names, the control left out.
        suites: the earlier run's name of each suite, by the later run's.
        omissions: sentences on what only one of the runs has.
    """

    arms: tuple[str, ...]
    suites: Mapping[str, str]
    omissions: tuple[str, ...]


def find_common_parts(before: RequestTable, after: RequestTable) -> CommonParts:
    """Return what both runs have.

    Raises:
        BenchError: they cannot be compared; it says why.
    """
    runs = (before.run, after.run)
    for table in (before, after):
        if table.run.generator != "tandem":
            raise _build_error(table, "its records have neither prompts nor tokens", "compare runs of tandem bench run")
    if run_id(runs[0]) == run_id(runs[1]):
        raise _build_error(after, "this is the same run, or a copy of it", "name two runs")
    names = [tuple(arm for arm in table.arms if arm != table.control) for table in (before, after)]
    arms = tuple(name for name in names[0] if name in names[1])
    if not arms:
        reason = f"the runs have no arm in common: {', '.join(names[0])}; and {', '.join(names[1])}"
        raise _build_error(after, reason, "give the arms of both runs the same names: --baseline NAME=URL")
    suites, omissions = _match_suites(before, after)
    omissions += [
        f"{', '.join(single_names)} of the {run_text} run {'is' if len(single_names) == 1 else 'are'} in this run alone"
        for run_text, arm_names in (("earlier", names[0]), ("later", names[1]))
        if (single_names := [name for name in arm_names if name not in arms])
    ]
    return CommonParts(arms, suites, tuple(omissions))


def find_differences(before: RunManifest, after: RunManifest, common: CommonParts) -> tuple[ManifestDifference, ...]:
    """Return what differs, arms first."""
    return (*_compare_arms(before, after, common), *_compare_manifests(before, after))


def list_similarities(before: RunManifest, after: RunManifest, common: CommonParts) -> tuple[str, ...]:
    """Return what is the same, of what a reader asks for first."""
    hashes = {suite.name: suite.sha256 for suite in before.suites}
    similarities = [f"suite {name} ({hashes[name][:12]})" for name in common.suites.values()]
    for name in common.arms:
        pair = [_find_arm(run, name) for run in (before, after)]
        equal_fields = [
            _format_field(field)
            for field in _MAIN_FIELDS
            if getattr(pair[0], field, None) and _is_same_field(pair[0], pair[1], field)
        ]
        similarities += [f"{', '.join(equal_fields)} of {name}"] if equal_fields else []
    return tuple(similarities)


def _match_suites(before: RequestTable, after: RequestTable) -> tuple[dict[str, str], list[str]]:
    by_content = {suite.sha256: suite.name for suite in before.run.suites}
    earlier_hashes = {suite.name: suite.sha256 for suite in before.run.suites}
    for suite in after.run.suites:
        if suite.name in earlier_hashes and earlier_hashes[suite.name] != suite.sha256:
            raise _build_error(
                after,
                f"suite {suite.name} has other content than in {before.folder} "
                f"(SHA-256 {suite.sha256[:12]}, {earlier_hashes[suite.name][:12]}): its file was changed, or --classes",
                "compare runs of the same suite; nothing is pooled over other prompts",
            )
    common = {suite.name: by_content[suite.sha256] for suite in after.run.suites if suite.sha256 in by_content}
    if not common:
        names = [", ".join(suite.name for suite in table.run.suites) or "none" for table in (before, after)]
        raise _build_error(
            after, f"the runs have no suite in common: {names[0]}; and {names[1]}", "measure the same suite"
        )
    single_names = [name for name in earlier_hashes if name not in common.values()]
    single_names += [suite.name for suite in after.run.suites if suite.name not in common]
    return common, [f"suite {name} was asked in one run alone" for name in single_names]


def _compare_arms(before: RunManifest, after: RunManifest, common: CommonParts) -> Iterator[ManifestDifference]:
    for name in common.arms:
        pair = [_find_arm(run, name) for run in (before, after)]
        for field in _ARM_FIELDS:
            if not _is_same_field(pair[0], pair[1], field):
                texts = [_format_value(getattr(arm, field, None)) for arm in pair]
                yield ManifestDifference(what=f"{_format_field(field)} of {name}", before=texts[0], after=texts[1])


def _compare_manifests(before: RunManifest, after: RunManifest) -> Iterator[ManifestDifference]:
    manifests = [msgspec.to_builtins(run) for run in (before, after)]
    for key in manifests[0]:
        if key not in (*_IGNORED_FIELDS, "host") and manifests[0][key] != manifests[1][key]:
            texts = [_format_value(manifest[key]) for manifest in manifests]
            blocks = key in _BLOCKING_FIELDS or (key == "simulated" and True in (before.simulated, after.simulated))
            yield ManifestDifference(what=_format_field(key), before=texts[0], after=texts[1], blocks=blocks)
    for key in _MACHINE_FIELDS:
        texts = [_format_value(manifest["host"][key]) for manifest in manifests]
        if texts[0] != texts[1]:
            yield ManifestDifference(what=f"{key} of the measuring machine", before=texts[0], after=texts[1])


def _find_arm(run: RunManifest, name: str) -> ManifestArm | None:
    return next((arm for arm in run.arms if arm.name == name), None)


def _is_same_field(before: ManifestArm | None, after: ManifestArm | None, field: str) -> bool:
    return bool(getattr(before, field, None) == getattr(after, field, None))


def _format_field(name: str) -> str:
    return {"version": "version of Tandem", "url": "address"}.get(name, name.replace("_", " "))


def _format_value(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_value, value)) or "none"
    plain_value = msgspec.to_builtins(value)
    if isinstance(plain_value, dict):
        return ", ".join(f"{_format_field(key)} {_format_value(item)}" for key, item in plain_value.items())
    return str(plain_value)


def _build_error(table: RequestTable, problem: str, change: str) -> BenchError:
    return BenchError(problem, where=str(table.folder), change=change)
