"""Common parts and differences of two runs, from their manifests.

Invariant: suites are the same only if their content is. Figures of other prompts are refused, never
pooled. Every field of a manifest that a figure may depend on is compared with the other's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.records.manifest import RunManifest, run_id
from tandem.errors import InputError
from tandem.judge.compare.schema import ManifestDifference

_BLOCKING_FIELDS = ("api", "thinking", "temperature", "max_tokens", "schedule", "mixed")
"""Fields that change the answers or the requests next to them: with another value, figures are of
another question."""

_RUN_FIELDS = (
    "schema",
    "created_utc",
    "clock",
    "plan",
    "warm_up",
    "resumed",
    "notes",
    "ended",
    "host",
)
_IGNORED_FIELDS = (*_RUN_FIELDS, "arms", "suites", "goodput", "price_usd_per_hour")
_MACHINE_FIELDS = ("cpus", "python")
_ARM_FIELDS = (
    "model",
    "image",
    "artifact_key",
    "server_version",
    "runtime",
    "speculation",
    "role",
    "url",
)


class CommonParts(NamedTuple):
    """Parts of two runs that can be compared.

    Args:
        arms: names, the control left out.
        suites: the earlier run's name of each suite, by the later run's.
        omissions: sentences on what only one of the runs has.
    """

    arms: tuple[str, ...]
    suites: Mapping[str, str]
    omissions: tuple[str, ...]


def find_common_parts(before: RequestTable, after: RequestTable) -> CommonParts:
    """Return the parts that both runs have.

    Raises:
        InputError: the runs cannot be compared; the error says why.
    """
    for table in (before, after):
        if table.run.generator != "tandem":
            raise _build_error(
                table,
                "its records have neither prompts nor tokens",
                "compare runs of tandem bench run",
            )
    if run_id(before.run) == run_id(after.run):
        raise _build_error(after, "this is the same run, or a copy of it", "name two runs")
    names = [tuple(arm for arm in table.arms if arm != table.control) for table in (before, after)]
    arms = tuple(name for name in names[0] if name in names[1])
    if not arms:
        reason = f"the runs have no arm in common: {', '.join(names[0])}; and {', '.join(names[1])}"
        raise _build_error(
            after, reason, "give the arms of both runs the same names: --baseline NAME=URL"
        )
    suites = _match_suites(before, after)
    suite_names = [suite.name for suite in before.run.suites if suite.name not in suites.values()]
    suite_names += [suite.name for suite in after.run.suites if suite.name not in suites]
    omissions = [f"suite {name} was asked in one run alone" for name in dict.fromkeys(suite_names)]
    for run_text, arm_names in (("earlier", names[0]), ("later", names[1])):
        single_names = [name for name in arm_names if name not in arms]
        if single_names:
            omissions.append(f"in the {run_text} run alone: {', '.join(single_names)}")
    return CommonParts(arms, suites, tuple(omissions))


def _match_suites(before: RequestTable, after: RequestTable) -> dict[str, str]:
    """Return the earlier run's name of each suite that both have, by the later run's."""
    by_content = {suite.sha256: suite.name for suite in before.run.suites}
    earlier_hashes = {suite.name: suite.sha256 for suite in before.run.suites}
    for suite in after.run.suites:
        if earlier_hashes.get(suite.name, suite.sha256) != suite.sha256:
            hashes = f"SHA-256 {suite.sha256[:12]}, {earlier_hashes[suite.name][:12]}"
            reason = f"suite {suite.name} has other content than in {before.folder} ({hashes})"
            change = "compare runs of the same suite; nothing is pooled over other prompts"
            raise _build_error(after, f"{reason}: its file was changed, or --classes", change)
    suites = {
        suite.name: by_content[suite.sha256]
        for suite in after.run.suites
        if suite.sha256 in by_content
    }
    if not suites:
        names = [
            ", ".join(suite.name for suite in table.run.suites) or "none"
            for table in (before, after)
        ]
        reason = f"the runs have no suite in common: {names[0]}; and {names[1]}"
        raise _build_error(after, reason, "measure the same suite")
    return suites


def find_differences(
    before: RunManifest, after: RunManifest, common: CommonParts
) -> tuple[ManifestDifference, ...]:
    """Return the differences of two manifests, arms first."""
    arms = [{arm.name: arm for arm in run.arms} for run in (before, after)]
    differences = [
        (
            f"{_format_field(field)} of {name}",
            [getattr(by_name.get(name), field, None) for by_name in arms],
            False,
        )
        for name in common.arms
        for field in _ARM_FIELDS
    ]
    manifests = [msgspec.to_builtins(run) for run in (before, after)]
    has_simulation = True in (before.simulated, after.simulated)
    differences += [
        (
            _format_field(key),
            [manifest[key] for manifest in manifests],
            key in _BLOCKING_FIELDS or (key == "simulated" and has_simulation),
        )
        for key in manifests[0]
        if key not in _IGNORED_FIELDS
    ]
    differences += [
        (
            f"{key} of the measuring machine",
            [_format_value(manifest["host"][key]) for manifest in manifests],
            False,
        )
        for key in _MACHINE_FIELDS
    ]
    return tuple(
        ManifestDifference(
            what=what, before=_format_value(pair[0]), after=_format_value(pair[1]), blocks=blocks
        )
        for what, pair, blocks in differences
        if pair[0] != pair[1]
    )


def _format_field(name: str) -> str:
    return {"version": "version of Tandem", "url": "address"}.get(name, name.replace("_", " "))


def _format_value(value: Any) -> str:
    if value is None:
        return "not known"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _build_error(table: RequestTable, problem: str, change: str) -> InputError:
    return InputError(problem, where=str(table.folder), change=change)
