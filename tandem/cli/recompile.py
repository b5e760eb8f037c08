"""What an edit compiles again: the artifact keys of two states of the declared files, held against each other.

Invariant: two files or folders are compared and nothing else: no git, no network, no clock. Equal means equal
in every field of the key, whichever release wrote them. An edit that compiles nothing is told in one line, and no
figure of a cost is Tandem's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from tandem.artifacts.explain import Differences, compute_key_name, describe_differences
from tandem.cli.console import format_count, print_line, print_rows
from tandem.cli.inputs import CommandInputs
from tandem.spec.artifact_key import KEY_ENTRY, KEY_VARIABLE, compare_key_fields
from tandem.spec.catalogue import Catalogue
from tandem.spec.document import read_document
from tandem.spec.environment import Environment
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

Number = TypeVar("Number", int, float)
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
    only, declared_keys = old_snapshot.only_experiment, _compute_declared_keys(inputs)
    new_keys = {place: keys for place, keys in declared_keys.items() if only in {None, place[1]}}
    environments = {environment.name for environment in inputs.environments()}
    gone_places = [place for place in old_snapshot.places if place not in new_keys and place[0] in environments]
    comparisons = []
    for place, new in {**new_keys, **{place: {} for place in gone_places}}.items():
        old = old_snapshot.find_keys(place)
        if isinstance(new, str):
            comparisons.append(KeyComparison(place=place, skip_reason=new))
        elif isinstance(old, str):
            comparisons.append(KeyComparison(place=place, skip_reason=old))
        else:
            changes = tuple(_list_changes(old or {}, new, old_snapshot.owners(place[0])))
            comparisons.append(KeyComparison(place=place, changes=changes))
    return comparisons


def _compute_declared_keys(inputs: CommandInputs) -> dict[ExperimentPath, PlaceKeys]:
    """Return the keys of everything declared, by where it is hosted; of what the rules refused the reason."""
    declarations = inputs.workspace.experiments
    places = [(host.name, entry.name) for host in inputs.environments() for entry in inputs.list_experiments(host)]
    hosted_names = {experiment for _, experiment in places}
    places += [("", name) for name, item in declarations.items() if item.experiment and name not in hosted_names]
    refused_files = {fault.file for fault in inputs.faults if fault.severity == "refusal"}
    keys: dict[ExperimentPath, PlaceKeys] = {}
    for place in places:
        experiment, file = declarations[place[1]].experiment, declarations[place[1]].document.file
        is_legal = file not in refused_files
        keys[place] = _compute_variant_keys(experiment, inputs.catalogue) if experiment and is_legal else REFUSAL_TEXT
    return keys


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
    files, names = [path] if path.is_file() else sorted(path.glob("*.yaml")), sorted(inputs.workspace.experiments)
    got = ""
    if path.is_file() and path.stem not in names:
        got, allowed = f"{path.stem}, the name of no declared experiment", ", ".join(names)
        change = "name the file after the experiment that it is to be compared with"
    elif not files:
        got = "nothing to compare with" if path.exists() else "no such file or folder"
        allowed = "an experiment file, a folder of them, or a folder that `tandem render` wrote"
        change = "name one of these by --against"
    if got:
        raise SpecError([SpecFault(file=str(path), path="", got=got, allowed=allowed, change=change)])
    places: dict[ExperimentPath, PlaceKeys] = {}
    for file in files:
        experiment = parse_record(Experiment, read_document(file), name=file.stem)
        unknown_name = _find_unknown_name(experiment, inputs.catalogue)
        keys = _compute_variant_keys(experiment, inputs.catalogue) if unknown_name is None else {}
        places["", experiment.name] = f"{file} names {unknown_name}" if unknown_name else keys
    return KeySnapshot(where=str(path), places=places, only_experiment=path.stem if path.is_file() else None)


def read_manifests(folder: Path) -> KeySnapshot:
    """Read the keys that rendered Deployments carry, below `folder` or in the tree of one environment."""
    places: dict[ExperimentPath, PlaceKeys] = {}
    for servers in (file for tree in _find_trees(folder) for file in sorted(tree.glob(f"*/{SERVERS_FILE}"))):
        experiment = servers.parent.parent
        keys = experiment / KEYS_FILE
        texts = [file.read_text(errors="replace") if file.exists() else "" for file in (servers, keys)]
        places[experiment.parent.name, experiment.name] = _parse_rendered_keys(*texts)
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
    entry = next(entry for entry in entries if entry["name"] == KEY_VARIABLE)
    key = entry["value"] if "value" in entry else maps[entry["valueFrom"]["configMapKeyRef"]["name"]]
    return body["metadata"]["name"], key


def _find_unknown_name(experiment: Experiment, catalogue: Catalogue) -> str | None:
    """Return what an experiment names that this release does not know, and a key cannot be told without."""
    runtime = catalogue.runtimes.get(experiment.runtime)
    if runtime is None or runtime.spelling is None:
        return f"the runtime {experiment.runtime}, which this release does not render"
    models = [experiment.target, *(variant.draft for variant in experiment.all_variants() if variant.draft)]
    unknown_model = next((model for model in models if model not in catalogue.models), None)
    return f"the model {unknown_model}, which this release does not know" if unknown_model else None


def _list_changes(
    old: Mapping[str, KeyFields], new: Mapping[str, KeyFields], owners: Mapping[str, str]
) -> Iterator[VariantChange]:
    """Yield what becomes of each variant; `owners` is who had an artifact before."""
    for variant, fields in new.items():
        new_name, graphs, owner = compute_key_name(fields), count_graphs(fields), owners.get(_serialize_key(fields))
        if variant not in old:
            change = VariantChange(variant=variant, verdict="new", previous_owner=owner)
        else:
            differences, old_name = compare_key_fields(old[variant], fields), compute_key_name(old[variant])
            change = VariantChange(variant=variant, verdict="same artifact", old_name=old_name, differences=differences)
            if differences:
                change = replace(change, verdict="recompiles", previous_owner=owner)
        yield replace(change, new_name=new_name, graphs=graphs)
    for variant in (name for name in old if name not in new):
        yield VariantChange(variant=variant, verdict="gone", old_name=compute_key_name(old[variant]))


def _serialize_key(fields: KeyFields) -> str:
    """Return what two keys share exactly when all their fields are equal, whichever release wrote them."""
    return json.dumps(fields, sort_keys=True)


def print_comparisons(old_snapshot: KeySnapshot, comparisons: list[KeyComparison], inputs: CommandInputs) -> None:
    """Say for a person what the edit compiles."""
    changed = [entry for entry in comparisons if any(change.verdict != "same artifact" for change in entry.changes)]
    if changed:
        print_line(f"what differs from {old_snapshot.where}:")
    elif any(comparison.skip_reason is None for comparison in comparisons):
        print_line(f"nothing is compiled again: every variant keeps the artifact that {old_snapshot.where} names")
    for environment in (*inputs.environments(), None):
        name = environment.name if environment else ""
        comparisons_here = [comparison for comparison in changed if comparison.place[0] == name]
        if comparisons_here:
            print_line(f"  {name or 'in no environment'}: {_format_bill(comparisons_here, environment, inputs)}")
        for comparison in comparisons_here:
            for change in comparison.changes:
                _print_change(change, comparison.place[1])
    skips: dict[str, list[str]] = {}
    for comparison in comparisons:
        if comparison.skip_reason:
            skips.setdefault(comparison.skip_reason, []).append("/".join(filter(None, comparison.place)))
    print_rows(((f"not compared, {reason}: {', '.join(places)}",) for reason, places in skips.items()), indent=0)


def comparisons_as_dict(
    old_snapshot: KeySnapshot, comparisons: list[KeyComparison], inputs: CommandInputs
) -> dict[str, Any]:
    """Return the same as the plain values that --json prints."""
    experiments: list[dict[str, Any]] = []
    for comparison in comparisons:
        environment, experiment = comparison.place
        place = {"environment": environment or None, "experiment": experiment}
        variants = [_change_as_dict(change) for change in comparison.changes]
        experiments.append(place | {"not_compared": comparison.skip_reason, "variants": variants})
    bills = {environment.name: _compute_bill(comparisons, environment, inputs) for environment in inputs.environments()}
    return {"against": old_snapshot.where, "environments": bills, "experiments": experiments}


def _compute_bill(
    comparisons: Iterable[KeyComparison], environment: Environment, inputs: CommandInputs
) -> dict[str, Any]:
    """Return what an edit compiles in an environment, and the most that this can cost.

    Returns:
        `artifacts`: their number; two experiments that need the same one compile it once. `graphs`: of all of them;
        None where a runtime decides it by itself. `most_usd`: the declared deadline of each at the declared price of a
        node-hour; None where one is compiled on a node whose price is not declared.
    """
    experiments = {experiment.name: experiment for experiment in inputs.list_experiments(environment)}
    graphs: dict[str, int | None] = {}
    hours: dict[str, float | None] = {}
    for comparison in comparisons:
        environment_name, experiment = comparison.place
        if environment_name == environment.name and experiment in experiments:
            settings = experiments[experiment].compile
            graphs |= comparison.compiles
            hours |= dict.fromkeys(comparison.compiles, settings.deadline_hours if settings.where == "device" else None)
    total_hours = _sum_values(hours)
    most_usd = None if total_hours is None else total_hours * environment.capacity.usd_per_hour
    return {"artifacts": len(graphs), "graphs": _sum_values(graphs), "most_usd": most_usd}


def _sum_values(values: Mapping[str, Number | None]) -> Number | int | None:
    known_values = [value for value in values.values() if value is not None]
    return sum(known_values) if len(known_values) == len(values) else None


def _format_bill(comparisons: list[KeyComparison], environment: Environment | None, inputs: CommandInputs) -> str:
    if environment is None:
        names = {name for comparison in comparisons for name in comparison.compiles}
        return f"{format_count(len(names), 'artifact')} to compile" if names else "nothing to compile"
    bill = _compute_bill(comparisons, environment, inputs)
    if not bill["artifacts"]:
        return "nothing to compile"
    graphs = f" ({format_count(bill['graphs'], 'graph')})" if bill["graphs"] else ""
    text = f"{format_count(bill['artifacts'], 'artifact')}{graphs} to compile"
    if bill["most_usd"] is None:
        return f"{text}, on a CPU node: its price is not declared"
    price = f"deadline_hours x {environment.capacity.usd_per_hour:.2f}"
    return f"{text}, at most {bill['most_usd']:.2f} USD ({price})"


def _print_change(change: VariantChange, experiment: str) -> None:
    if change.verdict == "gone":
        text = f"gone, its artifact stays until collected: {change.old_name or 'unnamed'}"
    elif change.previous_owner is not None:
        text = f"nothing to compile, it takes the artifact of {change.previous_owner}"
    elif change.verdict == "new":
        text = f"new, compiles {change.new_name}"
    elif change.verdict == "recompiles":
        text = f"recompiles because {', '.join(describe_differences(change.differences or {}))}"
    else:
        text = change.verdict
    print_rows([(f"{experiment}/{change.variant}: {text}",)], indent=4)
    if change.compiles and change.differences:
        print_line(f"      compiles {change.new_name}")
        print_line(f"      until applied, serves {change.old_name or 'the artifact that it has'}")


def _change_as_dict(change: VariantChange) -> dict[str, Any]:
    names = {"was": change.old_name, "now": change.new_name, "same_as": change.previous_owner}
    differences = {field: {"was": was, "now": now} for field, (was, now) in (change.differences or {}).items()}
    identity = {"variant": change.variant, "verdict": change.verdict, "compiles": change.compiles}
    return {**identity, **names, "differences": differences}
