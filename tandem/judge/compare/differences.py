"""Common parts and differences of two runs, from their manifests.

Invariant: suites are the same only if their content is. Figures of other prompts are refused, never
pooled. Every field of a manifest that a figure may depend on is compared with the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
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
    "extra_body",
    "left_out",
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
        if table.run.goodput_share is not None:
            raise _build_error(
                table,
                "it searched a knee, and shares no load with another run",
                "compare two servers in one search: --baseline and --variant",
            )
    if run_id(before.run) == run_id(after.run):
        raise _build_error(after, "this is the same run, or a copy of it", "name two runs")
    earlier_arms = _list_arms(before)
    later_arms = _list_arms(after)
    arms = tuple(name for name in earlier_arms if name in later_arms)
    if not arms:
        names = f"{', '.join(earlier_arms)}; and {', '.join(later_arms)}"
        change = "give the arms of both runs the same names: --baseline NAME=URL"
        raise _build_error(after, f"the runs have no arm in common: {names}", change)
    suites = _match_suites(before, after)
    suite_names = [suite.name for suite in before.run.suites if suite.name not in suites.values()]
    suite_names += [suite.name for suite in after.run.suites if suite.name not in suites]
    omissions = [f"suite {name} was asked in one run alone" for name in dict.fromkeys(suite_names)]
    for run_text, arm_names in (("earlier", earlier_arms), ("later", later_arms)):
        single_names = [name for name in arm_names if name not in arms]
        if single_names:
            omissions.append(f"in the {run_text} run alone: {', '.join(single_names)}")
    return CommonParts(arms, suites, tuple(omissions))


def _list_arms(table: RequestTable) -> list[str]:
    """Return the arms of a run without its control."""
    return [arm for arm in table.arms if arm != table.control]


def _match_suites(before: RequestTable, after: RequestTable) -> dict[str, str]:
    """Return the earlier run's name of each suite that both have, by the later run's."""
    earlier_hashes = {suite.name: suite.sha256 for suite in before.run.suites}
    for suite in after.run.suites:
        earlier_hash = earlier_hashes.get(suite.name, suite.sha256)
        if earlier_hash != suite.sha256:
            hashes = f"SHA-256 {suite.sha256[:12]}, {earlier_hash[:12]}"
            reason = f"suite {suite.name} has other content than in {before.folder} ({hashes})"
            change = "compare runs of the same suite; nothing is pooled over other prompts"
            raise _build_error(after, f"{reason}: its file was changed, or --classes", change)

    by_content = {sha256: name for name, sha256 in earlier_hashes.items()}
    suites = {}
    for suite in after.run.suites:
        if suite.sha256 in by_content:
            suites[suite.name] = by_content[suite.sha256]
    if not suites:
        names = f"{_name_suites(before.run)}; and {_name_suites(after.run)}"
        reason = f"the runs have no suite in common: {names}"
        raise _build_error(after, reason, "measure the same suite")
    return suites


def _name_suites(run: RunManifest) -> str:
    return ", ".join(suite.name for suite in run.suites) or "none"


def find_differences(
    before: RunManifest, after: RunManifest, common: CommonParts
) -> tuple[ManifestDifference, ...]:
    """Return the differences of two manifests, arms first."""
    differences = []
    for what, earlier, later, blocks in _list_pairs(before, after, common):
        if earlier != later:
            difference = ManifestDifference(
                what=what, before=_format_value(earlier), after=_format_value(later), blocks=blocks
            )
            differences.append(difference)
    return tuple(differences)


def _list_pairs(
    before: RunManifest, after: RunManifest, common: CommonParts
) -> Iterator[tuple[str, Any, Any, bool]]:
    """Yield what is compared, both values, and whether a difference blocks every row."""
    before_arms = {arm.name: arm for arm in before.arms}
    after_arms = {arm.name: arm for arm in after.arms}
    for name, field in product(common.arms, _ARM_FIELDS):
        earlier = getattr(before_arms.get(name), field, None)
        later = getattr(after_arms.get(name), field, None)
        blocks = field == "extra_body" and before.forces_lengths != after.forces_lengths
        yield f"{_format_field(field)} of {name}", earlier, later, blocks

    earlier_fields = msgspec.to_builtins(before)
    later_fields = msgspec.to_builtins(after)
    has_simulation = True in (before.simulated, after.simulated)
    for key, earlier in earlier_fields.items():
        if key not in _IGNORED_FIELDS:
            blocks = key in _BLOCKING_FIELDS or (key == "simulated" and has_simulation)
            yield _format_field(key), earlier, later_fields[key], blocks
    for key in _MACHINE_FIELDS:
        name = f"{key} of the measuring machine"
        yield name, getattr(before.host, key), getattr(after.host, key), False


def _format_field(name: str) -> str:
    return {"version": "version of Tandem", "url": "address"}.get(name, name.replace("_", " "))


def _format_value(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _build_error(table: RequestTable, problem: str, change: str) -> InputError:
    return InputError(problem, where=str(table.folder), change=change)
