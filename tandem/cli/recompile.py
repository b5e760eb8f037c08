"""What an edit compiles again: the artifact keys of two states of the declared files, held against each other.

Invariant: two files or folders are compared and nothing else: no git, no network, no clock. Equal means equal
in every field of the key, whichever release wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tandem.artifacts.explain import Differences, compute_key_name
from tandem.cli.inputs import CommandInputs
from tandem.spec.artifact_key import KEY_ENTRY, KEY_VARIABLE, compare_key_fields
from tandem.spec.catalogue import Catalogue
from tandem.spec.document import read_document
from tandem.spec.experiment import Experiment
from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.graph_count import count_graphs
from tandem.spec.record import parse_record
from tandem.spec.variant_key import compute_artifact_key

MANIFESTS = Path("manifests")  # where `tandem render` writes by default
SERVERS_FILE, KEYS_FILE = "serve/serve.yaml", "storage/storage.yaml"  # below an experiment's folder there
REFUSAL_TEXT = "refused above"
DOCUMENT_SEPARATOR = "\n---\n"
NAME_PATTERN = re.compile(r"^metadata:\n(?:  .*\n)*?  name: ([a-z0-9-]+)$", re.MULTILINE)
KEY_PATTERN = re.compile(rf"- name: {KEY_VARIABLE}\n +value: '(.*)'$", re.MULTILINE)  # of a release without key maps
REFERENCE_PATTERN = re.compile(
    rf"- name: {KEY_VARIABLE}\n +valueFrom:\n +configMapKeyRef:\n +key: {re.escape(KEY_ENTRY)}\n +name: ([a-z0-9-]+)$",
    re.MULTILINE,
)
FIELDS_PATTERN = re.compile(rf"^data:\n  {re.escape(KEY_ENTRY)}: '(.*)'$", re.MULTILINE)
UNREADABLE = "its manifest cannot be read: `tandem render` writes it again"
NO_KEYS = "rendered by a release that wrote no keys"

KeyFields = Mapping[str, Any]
ExperimentPath = tuple[str, str]  # environment, experiment; an empty environment is any
PlaceKeys = Mapping[str, KeyFields] | str  # variant to the plain fields of its key, or why no key can be told

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySnapshot:
    """The keys of every variant at one time.

    Args:
        where: the file or folder, for a person.
        places: place to keys.
        environments: those it speaks of; None for any.
        only_experiment: the one experiment it speaks of; None for any.
    """

    where: str
    places: Mapping[ExperimentPath, PlaceKeys]
    environments: frozenset[str] | None = None
    only_experiment: str | None = None

    def find_keys(self, place: ExperimentPath) -> PlaceKeys | None:
        """Return what it knows of a place: None where it knows the environment, and nothing of the experiment."""
        environment, experiment = place
        if self.environments is not None and environment not in self.environments:
            return f"not in {self.where}" if environment else "hosted by no environment"
        return self.places.get(place, self.places.get(("", experiment)))

    def owners(self, environment: str) -> dict[str, str]:
        """Return key to the experiment/variant that has it, of all that share the environment's bucket."""
        return {
            _serialize_key(fields): f"{experiment}/{variant}"
            for (place_environment, experiment), variants in self.places.items()
            if place_environment in {environment, ""} and not isinstance(variants, str)
            for variant, fields in variants.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantChange:
    """One variant before and after.

    Args:
        variant: its name.
        verdict: what the edit does to it.
        old_name, new_name: the artifact's name; None where there is none, or its fields are of another release.
        differences: the fields that changed, before and after.
        previous_owner: the variant that had this artifact before, where that is another one.
        graphs: what its artifact is made of; None where that is not known.
    """

    variant: str
    verdict: Literal["same artifact", "recompiles", "new", "gone"]
    old_name: str | None = None
    new_name: str | None = None
    differences: Differences | None = None
    previous_owner: str | None = None
    graphs: int | None = None

    @property
    def compiles(self) -> bool:
        """Whether its artifact was nobody's before."""
        return self.verdict in {"recompiles", "new"} and self.previous_owner is None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyComparison:
    """One experiment in one environment, before and after.

    Args:
        place: the environment (empty where none hosts it) and the experiment.
        changes: variant by variant.
        skip_reason: why nothing could be compared.
    """

    place: ExperimentPath
    changes: tuple[VariantChange, ...] = ()
    skip_reason: str | None = None

    @property
    def compiles(self) -> dict[str, int | None]:
        """The artifacts that nobody had before, each with the number of its graphs."""
        return {str(change.new_name): change.graphs for change in self.changes if change.compiles}


def compare_experiment_keys(old_snapshot: KeySnapshot, inputs: CommandInputs) -> list[KeyComparison]:
    """Hold what is declared now against `old_snapshot`, place by place; what is gone altogether comes last."""
    new_keys = {
        place: keys
        for place, keys in _compute_declared_keys(inputs).items()
        if old_snapshot.only_experiment in {None, place[1]}
    }
    environments = {environment.name for environment in inputs.environments()}
    old_places = [place for place in old_snapshot.places if place not in new_keys and place[0] in environments]
    comparisons = []
    for place, new in {**new_keys, **{place: {} for place in old_places}}.items():
        old = old_snapshot.find_keys(place)
        if isinstance(new, str) or isinstance(old, str):
            reason = new if isinstance(new, str) else old
            comparisons.append(KeyComparison(place=place, skip_reason=str(reason)))
        else:
            changes = tuple(_list_changes(old or {}, new, old_snapshot.owners(place[0])))
            comparisons.append(KeyComparison(place=place, changes=changes))
    return comparisons


def _compute_declared_keys(inputs: CommandInputs) -> dict[ExperimentPath, PlaceKeys]:
    """Return the keys of everything declared, by where it is hosted; of what the rules refused the reason."""
    places = {
        (environment.name, experiment.name): experiment
        for environment in inputs.environments()
        for experiment in inputs.list_experiments(environment)
    }
    hosted_names = {experiment for _, experiment in places}
    declarations = inputs.workspace.experiments
    places |= {
        ("", name): item.experiment
        for name, item in declarations.items()
        if item.experiment and name not in hosted_names
    }
    refused_files = {fault.file for fault in inputs.faults if fault.severity == "refusal"}
    return {
        place: REFUSAL_TEXT
        if declarations[experiment.name].document.file in refused_files
        else _compute_variant_keys(experiment, inputs.catalogue)
        for place, experiment in places.items()
    }


def _compute_variant_keys(experiment: Experiment, catalogue: Catalogue) -> dict[str, KeyFields]:
    variants = experiment.all_variants()
    return {variant.name: compute_artifact_key(experiment, variant, catalogue).as_fields() for variant in variants}


def read_snapshot(path: Path, inputs: CommandInputs) -> KeySnapshot:
    """Read another state: a folder of manifests, a folder of experiment files, or one experiment file.

    Raises:
        SpecError: there is nothing of the kind, or a file of it is malformed.
    """
    if path.is_dir() and _find_trees(path):
        return read_manifests(path)
    files = [path] if path.is_file() else sorted(path.glob("*.yaml"))
    experiment_names = sorted(inputs.workspace.experiments)
    if path.is_file() and path.stem not in experiment_names:
        got, change = f"{path.stem}, the name of no declared experiment", "name the file after the experiment that it"
        change += " is to be compared with"
        raise SpecError(
            [SpecFault(file=str(path), path="", got=got, allowed=", ".join(experiment_names), change=change)]
        )
    if not files:
        got = "nothing to compare with" if path.exists() else "no such file or folder"
        allowed = "an experiment file, a folder of them, or a folder that `tandem render` wrote"
        change = "name one of these by --against"
        raise SpecError([SpecFault(file=str(path), path="", got=got, allowed=allowed, change=change)])
    places: dict[ExperimentPath, PlaceKeys] = {}
    for file in files:
        experiment = parse_record(Experiment, read_document(file), name=file.stem)
        unknown_name = _find_unknown_name(experiment, inputs.catalogue)
        places["", experiment.name] = (
            f"{file} names {unknown_name}" if unknown_name else _compute_variant_keys(experiment, inputs.catalogue)
        )
    return KeySnapshot(where=str(path), places=places, only_experiment=path.stem if path.is_file() else None)


def read_manifests(folder: Path) -> KeySnapshot:
    """Read the keys that rendered Deployments carry, below `folder` or in the tree of one environment."""
    places: dict[ExperimentPath, PlaceKeys] = {}
    for tree in _find_trees(folder):
        for servers in sorted(tree.glob(f"*/{SERVERS_FILE}")):
            keys = servers.parent.parent / KEYS_FILE
            places[tree.name, servers.parent.parent.name] = _parse_rendered_keys(
                servers.read_text(errors="replace"), keys.read_text(errors="replace") if keys.exists() else ""
            )
    return KeySnapshot(where=str(folder), places=places, environments=frozenset(place[0] for place in places))


def _find_trees(folder: Path) -> list[Path]:
    """Return the trees of environments: those below the folder, or the folder itself."""
    environment_trees = sorted({path.parent.parent.parent for path in folder.glob(f"*/*/{SERVERS_FILE}")})
    return environment_trees or ([folder.resolve()] if any(folder.glob(f"*/{SERVERS_FILE}")) else [])


def _parse_rendered_keys(servers: str, storage: str) -> PlaceKeys:
    """Return Deployment to key, of those that carry one; in words why there is none."""
    fields_by_server: dict[str, KeyFields] = {}
    try:
        maps = dict(_parse_key_map(document) for document in storage.split(DOCUMENT_SEPARATOR) if KEY_ENTRY in document)
        for document in servers.split(DOCUMENT_SEPARATOR):
            if KEY_VARIABLE in document:
                name, key = _match_server_key(document, maps) or _parse_server_key(document, maps)
                fields_by_server[name] = dict(json.loads(key).items())  # whatever else it may be has none
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return UNREADABLE
    return fields_by_server or NO_KEYS


def _parse_key_map(document: str) -> tuple[str, str]:
    """Return name and fields of a ConfigMap, quickly where `tandem render` wrote it."""
    name, fields = NAME_PATTERN.search(document), FIELDS_PATTERN.search(document)
    if name and fields:
        return name[1], fields[1].replace("''", "'")
    body = yaml.load(document, Loader=_Loader)  # noqa: S506 - the safe one, in C
    return body["metadata"]["name"], body["data"][KEY_ENTRY]


def _match_server_key(document: str, maps: Mapping[str, str]) -> tuple[str, str] | None:
    """Return name and key where `tandem render` wrote them; parsing all of it would double the time of `check`."""
    name, reference = NAME_PATTERN.search(document), REFERENCE_PATTERN.search(document)
    if name and reference:
        return name[1], maps[reference[1]]
    key = KEY_PATTERN.search(document)
    return (name[1], key[1].replace("''", "'")) if name and key else None


def _parse_server_key(document: str, maps: Mapping[str, str]) -> tuple[str, str]:
    """Return name and key of a Deployment that another program has written again."""
    body = yaml.load(document, Loader=_Loader)  # noqa: S506 - the safe one, in C
    pod = body["spec"]["template"]["spec"]
    containers = [container for part in ("initContainers", "containers") for container in pod.get(part, ())]
    entries = (entry for container in containers for entry in container["env"])
    key_entry = next(entry for entry in entries if entry["name"] == KEY_VARIABLE)
    if "value" in key_entry:
        return body["metadata"]["name"], key_entry["value"]
    return body["metadata"]["name"], maps[key_entry["valueFrom"]["configMapKeyRef"]["name"]]


def _find_unknown_name(experiment: Experiment, catalogue: Catalogue) -> str | None:
    """Return what an experiment names that this release does not know, and a key cannot be told without."""
    runtime = catalogue.runtimes.get(experiment.runtime)
    if runtime is None or runtime.spelling is None:
        return f"the runtime {experiment.runtime}, which this release does not render"
    drafts = [variant.draft for variant in experiment.all_variants() if variant.draft]
    unknown_models = [model for model in (experiment.target, *drafts) if model not in catalogue.models]
    return f"the model {unknown_models[0]}, which this release does not know" if unknown_models else None


def _list_changes(
    old: Mapping[str, KeyFields], new: Mapping[str, KeyFields], owners: Mapping[str, str]
) -> Iterator[VariantChange]:
    """Yield what becomes of each variant; `owners` is who had an artifact before."""
    for variant, fields in new.items():
        old_fields = old.get(variant)
        changed_fields = None if old_fields is None else compare_key_fields(old_fields, fields)
        is_same = old_fields is not None and not changed_fields
        yield VariantChange(
            variant=variant,
            verdict="new" if old_fields is None else "same artifact" if is_same else "recompiles",
            old_name=None if old_fields is None else compute_key_name(old_fields),
            new_name=compute_key_name(fields),
            differences=changed_fields,
            previous_owner=None if is_same else owners.get(_serialize_key(fields)),
            graphs=count_graphs(fields),
        )
    for variant, fields in old.items():
        if variant not in new:
            yield VariantChange(variant=variant, verdict="gone", old_name=compute_key_name(fields))


def _serialize_key(fields: KeyFields) -> str:
    """Return what two keys share exactly when all their fields are equal, whichever release wrote them."""
    return json.dumps(fields, sort_keys=True)
