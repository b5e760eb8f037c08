"""What an edit compiles again: the artifact keys of two states of the declared files, compared.

Invariant: two files or folders are compared and nothing else: no git, no network, no clock. Equal
means equal in every field of the key, whichever release wrote them. An edit that compiles nothing
takes one line, and no figure of a cost is Tandem's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from tandem.artifacts.explain import compute_key_name, describe_differences
from tandem.cli.console import format_count, print_line, print_rows
from tandem.cli.inputs import CommandInputs
from tandem.declarations.artifact_key import KEY_ENTRY, KEY_VARIABLE, compare_key_fields
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.document import read_document
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.graph_count import count_graphs
from tandem.declarations.record import parse_record
from tandem.declarations.variant_key import compute_artifact_key

MANIFESTS = Path("manifests")  # where `tandem render` writes by default
# below an experiment's folder there
SERVERS_FILE = "serve/serve.yaml"
KEYS_FILE = "storage/storage.yaml"
REFUSAL_TEXT = "refused above"
UNREADABLE = "its manifest cannot be read: `tandem render` writes it again"

# of a rendered file that somebody has edited
UNREADABLE_ERRORS = (OSError, yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError)

Verdict = Literal["same artifact", "recompiles", "new", "gone", "not compared"]
KeyFields = Mapping[str, Any]
VariantKeys = Mapping[str, KeyFields]
ExperimentPath = tuple[str, str]  # environment, experiment; an empty environment is any
PlaceKeys = VariantKeys | str  # variant to the plain fields of its key, or why there is no key

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class KeySnapshot:
    """The keys of every variant at one time.

    Args:
        where: the file or folder, for a person.
        places: place to keys.
        only_experiment: the one experiment it speaks of; None for any.
    """

    where: str
    places: Mapping[ExperimentPath, PlaceKeys]
    only_experiment: str | None = None

    def find_keys(self, place: ExperimentPath) -> PlaceKeys:
        """Return what is known of a place; None for an environment without the experiment."""
        environment, experiment = place
        if not {environment, ""} & {known_environment for known_environment, _ in self.places}:
            return f"not in {self.where}" if environment else "hosted by no environment"
        return self.places.get(place) or self.places.get(("", experiment)) or {}

    def owners(self, environment: str) -> dict[str, str]:
        """Return key to its experiment/variant, over all that share the environment's bucket."""
        owners = {}
        for (place_environment, experiment), variants in self.places.items():
            if place_environment in {environment, ""} and not isinstance(variants, str):
                for variant, fields in variants.items():
                    owners[_serialize_key(fields)] = f"{experiment}/{variant}"
        return owners


@dataclass(frozen=True, kw_only=True)
class VariantChange:
    """One variant before and after, as --json prints it.

    Args:
        environment: None where none hosts its experiment.
        experiment, variant: their names; no variant where nothing of the experiment could be
            compared.
        verdict: what the edit does to it.
        reason: why nothing could be compared.
        compiles: whether its artifact was nobody's before.
        was, now: the artifact's name; None where there is none, or its fields are of another
            release.
        same_as: the variant that had this artifact before, where that is another one.
        graphs: what its artifact is made of; None where that is not known.
        most_usd: the declared deadline at the declared price of a node-hour; None where no price is
            declared.
        differences: field to its value before (`was`) and after (`now`).
    """

    environment: str | None
    experiment: str
    variant: str | None = None
    verdict: Verdict = "not compared"
    reason: str | None = None
    compiles: bool = False
    was: str | None = None
    now: str | None = None
    same_as: str | None = None
    graphs: int | None = None
    most_usd: float | None = None
    differences: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def compare_keys(old_snapshot: KeySnapshot, inputs: CommandInputs) -> list[VariantChange]:
    """Compare what is declared now with `old_snapshot`, place by place; what is gone comes last."""
    only = old_snapshot.only_experiment
    places = {
        place: keys
        for place, keys in _compute_declared_keys(inputs).items()
        if only in {None, place[1]}
    }
    environments = {environment.name for environment in inputs.environments()}
    for place in old_snapshot.places:
        if place[0] in environments:
            places.setdefault(place, {})

    changes = []
    for place, new in places.items():
        old = old_snapshot.find_keys(place)
        if isinstance(new, str):
            changes.append(_skip_place(place, new))
        elif isinstance(old, str):
            changes.append(_skip_place(place, old))
        else:
            most_usd = _compute_most_usd(place, inputs)
            changes += _list_changes(place, old, new, old_snapshot.owners(place[0]), most_usd)
    return changes


def _skip_place(place: ExperimentPath, reason: str) -> VariantChange:
    return VariantChange(environment=place[0] or None, experiment=place[1], reason=reason)


def _compute_declared_keys(inputs: CommandInputs) -> dict[ExperimentPath, PlaceKeys]:
    """Return all declared keys by where they are hosted; for a refused one, the reason."""
    places: list[ExperimentPath] = []
    for host in inputs.environments():
        places += [(host.name, experiment.name) for experiment in inputs.list_experiments(host)]
    hosted_names = {experiment for _, experiment in places}
    places += [("", name) for name in inputs.workspace.experiments if name not in hosted_names]
    refused_files = {fault.file for fault in inputs.faults if fault.severity == "refusal"}
    keys: dict[ExperimentPath, PlaceKeys] = {}
    for place in places:
        declaration = inputs.workspace.experiments[place[1]]
        if declaration.document.file in refused_files:
            keys[place] = REFUSAL_TEXT
        else:
            keys[place] = _compute_variant_keys(declaration.record, inputs.catalogue)
    return keys


def _compute_variant_keys(experiment: Experiment, catalogue: Catalogue) -> dict[str, KeyFields]:
    return {
        variant.name: compute_artifact_key(experiment, variant, catalogue).as_fields()
        for variant in experiment.all_variants()
    }


def read_snapshot(path: Path, inputs: CommandInputs) -> KeySnapshot:
    """Read another state: a folder of manifests or experiments, or one experiment file.

    Raises:
        SpecError: there is nothing of the kind, or a file of it is malformed.
    """
    if path.is_dir() and _find_trees(path):
        return read_manifests(path)
    names = inputs.workspace.experiments
    catalogue = inputs.catalogue
    files = [path] if path.is_file() and path.stem in names else sorted(path.glob("*.yaml"))
    if not files:
        raise _build_snapshot_error(path, sorted(names))
    places = {}
    for file in files:
        experiment = parse_record(Experiment, read_document(file), name=file.stem)
        places["", experiment.name] = _compute_known_keys(experiment, file, catalogue)
    only_experiment = path.stem if path.is_file() else None
    return KeySnapshot(where=str(path), places=places, only_experiment=only_experiment)


def _compute_known_keys(experiment: Experiment, file: Path, catalogue: Catalogue) -> PlaceKeys:
    """Return the keys of an older file's variants, or what of it this release does not know."""
    known_names = {name for name, runtime in catalogue.runtimes.items() if runtime.spelling}
    known_names |= catalogue.models.keys()
    unknown = sorted({experiment.runtime, *experiment.all_models()} - known_names)
    if unknown:
        return f"{file} names {', '.join(unknown)}, which this release does not know"
    return _compute_variant_keys(experiment, catalogue)


def _build_snapshot_error(path: Path, names: Sequence[str]) -> SpecError:
    kinds = f"a folder with experiment files of these names: {', '.join(names)}"
    fault = SpecFault(
        file=str(path),
        path="",
        got="nothing to compare with",
        allowed=f"{kinds}; or rendered manifests",
        change="name one of these by --against",
    )
    return SpecError([fault])


def read_manifests(folder: Path) -> KeySnapshot:
    """Read the keys of rendered Deployments, below `folder` or of one environment."""
    places = {}
    for tree in _find_trees(folder):
        for servers in sorted(tree.glob(f"*/{SERVERS_FILE}")):
            experiment = servers.parent.parent
            keys = _read_rendered_keys(servers, experiment / KEYS_FILE)
            places[tree.name, experiment.name] = keys
    return KeySnapshot(where=str(folder), places=places)


def _find_trees(folder: Path) -> list[Path]:
    """Return the trees of environments: those below the folder, or the folder itself."""
    trees = sorted({path.parents[2] for path in folder.glob(f"*/*/{SERVERS_FILE}")})
    if not trees and any(folder.glob(f"*/{SERVERS_FILE}")):
        return [folder.resolve()]
    return trees


def _read_rendered_keys(servers: Path, storage: Path) -> PlaceKeys:
    """Return Deployment to key, of those that carry one; in words why there is none."""
    fields_by_server = {}
    try:
        keys = {}
        for body in _load_documents(storage, KEY_ENTRY):
            keys[body["metadata"]["name"]] = json.loads(body["data"][KEY_ENTRY])
        for body in _load_documents(servers, KEY_VARIABLE):
            config_map = _find_config_map(body["spec"]["template"]["spec"])
            fields_by_server[body["metadata"]["name"]] = dict(keys[config_map].items())
    except UNREADABLE_ERRORS:
        return UNREADABLE
    return fields_by_server or UNREADABLE


def _find_config_map(pod: Mapping[str, Any]) -> str:
    """Return which object holds the key that a pod's container reads.

    Raises:
        LookupError: no container reads one.
    """
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        for variable in container["env"]:
            if variable["name"] == KEY_VARIABLE:
                return str(variable["valueFrom"]["configMapKeyRef"]["name"])
    raise LookupError(KEY_VARIABLE)


def _load_documents(file: Path, word: str) -> Iterator[Any]:
    """Yield a rendered file's objects with this word in them; parsing all would take a second."""
    for document in file.read_text(errors="replace").split("\n---\n"):
        if word in document:
            yield yaml.load(document, Loader=_Loader)  # noqa: S506 - the safe one, in C


def _list_changes(
    place: ExperimentPath,
    old: VariantKeys,
    new: VariantKeys,
    owners: Mapping[str, str],
    most_usd: float | None,
) -> Iterator[VariantChange]:
    """Yield what becomes of each variant; `owners` is who had an artifact before."""
    for variant in dict.fromkeys((*new, *old)):
        before = old.get(variant)
        fields = new.get(variant)
        differences = compare_key_fields(before, fields) if before and fields else {}
        verdict = _choose_verdict(before, fields, differences)
        needs_artifact = verdict in {"new", "recompiles"}
        owner = None
        if fields and needs_artifact:
            owner = owners.get(_serialize_key(fields))
        yield VariantChange(
            environment=place[0] or None,
            experiment=place[1],
            variant=variant,
            verdict=verdict,
            compiles=needs_artifact and owner is None,
            was=compute_key_name(before) if before else None,
            now=compute_key_name(fields) if fields else None,
            same_as=owner,
            graphs=count_graphs(fields) if fields else None,
            most_usd=most_usd,
            differences={
                name: {"was": was, "now": now} for name, (was, now) in differences.items()
            },
        )


def _choose_verdict(
    before: KeyFields | None, fields: KeyFields | None, differences: Mapping[str, object]
) -> Verdict:
    if fields is None:
        return "gone"
    if before is None:
        return "new"
    return "recompiles" if differences else "same artifact"


def _compute_most_usd(place: ExperimentPath, inputs: CommandInputs) -> float | None:
    """Return the most that one compile of a place costs; None where no price is declared."""
    environment = inputs.workspace.environments.get(place[0])
    declared = inputs.workspace.experiments.get(place[1])
    if environment is None or declared is None or declared.record.compile.where != "device":
        return None
    return declared.record.compile.deadline_hours * environment.record.capacity.usd_per_hour


def _serialize_key(fields: KeyFields) -> str:
    """Return what two keys share exactly if all fields are equal, whatever release wrote them."""
    return json.dumps(fields, sort_keys=True)


def print_changes(old_snapshot: KeySnapshot, changes: Sequence[VariantChange]) -> None:
    """Say for a person what the edit compiles."""
    unchanged = {"same artifact", "not compared"}
    changed = [change for change in changes if change.verdict not in unchanged]
    if changed:
        print_line(f"what differs from {old_snapshot.where}:")
    elif any(change.verdict == "same artifact" for change in changes):
        where = old_snapshot.where
        print_line(f"nothing compiles again: every variant keeps the artifact that {where} names")
    for environment, own_changes in _group_by_environment(changed).items():
        bill = _format_bill(_compute_bill(own_changes))
        print_line(f"  {environment or 'in no environment'}: {bill}")
        for change in own_changes:
            _print_change(change)
    for change in changes:
        if change.reason:
            place = change.experiment
            if change.environment:
                place = f"{change.environment}/{place}"
            print_rows([(f"not compared, {change.reason}: {place}",)], indent=0)


def _group_by_environment(
    changes: Iterable[VariantChange],
) -> dict[str | None, list[VariantChange]]:
    groups: dict[str | None, list[VariantChange]] = {}
    for change in changes:
        groups.setdefault(change.environment, []).append(change)
    return groups


def changes_as_dict(old_snapshot: KeySnapshot, changes: Sequence[VariantChange]) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    groups = _group_by_environment(change for change in changes if change.environment)
    return {
        "against": old_snapshot.where,
        "environments": {name: _compute_bill(group) for name, group in groups.items()},
        "variants": [asdict(change) for change in changes],
    }


def _compute_bill(changes: Iterable[VariantChange]) -> dict[str, Any]:
    """Return the artifacts to compile, their graphs and highest cost; None where unknown.

    Two experiments that need the same artifact compile it once.
    """
    compiles = {change.now: change for change in changes if change.compiles}.values()
    return {
        "artifacts": len(compiles),
        "graphs": _sum_known([change.graphs for change in compiles]),
        "most_usd": _sum_known([change.most_usd for change in compiles]),
    }


def _sum_known(values: Sequence[float | None]) -> float | None:
    if None in values:
        return None
    return sum(filter(None, values))


def _format_bill(bill: Mapping[str, Any]) -> str:
    if not bill["artifacts"]:
        return "nothing to compile"
    text = format_count(bill["artifacts"], "artifact")
    if bill["graphs"]:
        text += f" ({format_count(bill['graphs'], 'graph')})"
    cost = "no price is declared"
    if bill["most_usd"] is not None:
        cost = f"at most {bill['most_usd']:.2f} USD"
    return f"{text} to compile, {cost}"


def _print_change(change: VariantChange) -> None:
    pairs = {name: (pair["was"], pair["now"]) for name, pair in change.differences.items()}
    text: str = change.verdict
    if change.verdict == "gone":
        text = f"gone, its artifact stays until collected: {change.was or 'unnamed'}"
    elif change.same_as is not None:
        text = f"nothing to compile, it takes the artifact of {change.same_as}"
    elif change.verdict == "new":
        text = f"new, compiles {change.now}"
    elif change.verdict == "recompiles":
        text = f"recompiles because {', '.join(describe_differences(pairs))}"
    print_rows([(f"{change.experiment}/{change.variant}: {text}",)], indent=4)
    if change.compiles and pairs:
        print_line(f"      compiles {change.now}")
