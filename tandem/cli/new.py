"""`tandem new NAME`: a commented pair of files to start from.

Invariant: `tandem check` refuses nothing of what is written but the placeholders FILL_IN, and
nothing is overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import jinja2
from cyclopts import Parameter

from tandem.cli.console import print_result
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations.catalogue import Catalogue, load_catalogue
from tandem.declarations.environment import CapacitySettings
from tandem.declarations.faults import SpecError, SpecFault
from tandem.errors import ExitCode
from tandem.rules.naming import FOLDER_NAMES
from tandem.shell_command import quote_command

# short enough for every name made from it
NAME_PATTERN = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")
NAME_RULE = (
    "lower-case letters, digits and dashes, starting with a letter, ending with none,"
    " at most 30; not "
)

INSTANCE_TYPES: tuple[str, ...] = get_args(
    CapacitySettings.model_fields["instance_type"].annotation
)
CAPACITY_KINDS: tuple[str, ...] = get_args(CapacitySettings.model_fields["kind"].annotation)
MAX_ZONES = 3
STARTER_RUNTIME = "nxdi-v0"  # the one that serves a plain draft

TEMPLATES = Path(__file__).parent / "templates"


def new(
    name: str,
    /,
    *,
    instance_type: Annotated[
        str, Parameter(name="--type", choices=INSTANCE_TYPES)
    ] = INSTANCE_TYPES[0],
    kind: Annotated[str, Parameter(choices=CAPACITY_KINDS)] = CAPACITY_KINDS[0],
    region: Annotated[str | None, Parameter(metavar="R")] = None,
    vpc: Literal["new", "existing"] = "new",
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Write a commented starter of both files.

    Args:
        name: name of the environment and of the experiment
        instance_type: type of the nodes
        kind: how the nodes are bought
        region: AWS region (default: the first that is known to offer the type)
        vpc: create a VPC, or use an existing one

    Raises:
        SpecError: the name is no label, one of the files exists, or the type is not sold so or
            there.
    """
    catalogue = load_catalogue()
    region = region or next(iter(catalogue.offerings.offerings[instance_type]))
    folders = (selection.environments, selection.experiments)
    paths = [folder / f"{name}.yaml" for folder in folders]
    faults = [
        _build_name_fault(path, "the file exists", "a new name")
        for path in dict.fromkeys(paths)
        if path.exists()
    ]
    faults += _list_faults(name, instance_type, kind, region, catalogue)
    if faults:
        raise SpecError(faults)

    values: dict[str, object] = {
        "name": name,
        "type": instance_type,
        "kind": kind,
        "region": region,
        "vpc": vpc,
    }
    values |= _read_platform_values(instance_type, region, catalogue)
    templates = jinja2.Environment(  # noqa: S701 - YAML, which no browser reads
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for kind_of_file, path in zip(("environment", "experiment"), paths, strict=True):
        text = templates.get_template(f"{kind_of_file}.yaml.j2").render(values)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    command = quote_command("tandem", "check", name)
    lines = [f"wrote {path}" for path in paths]
    lines.append(f"next: `{command}` lists each FILL_IN with what it takes")
    file_names = [str(path) for path in paths]
    return print_result({"written": file_names}, lines, as_json=selection.as_json)


def _build_name_fault(path: Path, problem: str, allowed: str) -> SpecFault:
    return SpecFault(str(path), "", problem, allowed, "choose another name")


def _read_platform_values(
    instance_type: str, region: str, catalogue: Catalogue
) -> dict[str, object]:
    """Return what the data say of the instance type, its region and Kubernetes."""
    region_zones = catalogue.offerings.zones[region]
    # where no list has the type in this region the account decides: `tandem check` warns, `tandem
    # doctor` asks EC2
    offered = catalogue.offerings.offerings[instance_type].get(region, region_zones).value
    # the nodes' zone and the first others of the region
    zones = sorted([*dict.fromkeys((offered[0], *region_zones.value))][:MAX_ZONES])
    kubernetes = catalogue.kubernetes.default.value
    drivers = catalogue.runtimes[STARTER_RUNTIME].versions.refusing_drivers.value
    instance = catalogue.instances.instances[instance_type]
    return {
        "type": instance_type,
        "region": region,
        "offered": offered,
        "zones": zones,
        "counts": instance.device_counts.value,
        "devices": instance.devices.value or 1,
        "runtime": STARTER_RUNTIME,
        "kubernetes": kubernetes,
        "ami_release": catalogue.kubernetes.minors[kubernetes].list_releases(drivers)[0],
    }


def _list_faults(
    name: str, instance_type: str, kind: str, region: str, catalogue: Catalogue
) -> Iterator[SpecFault]:
    """Yield what is wrong of the name, and what the data say against the type's region and kind.

    Source: offerings.yaml and instances.yaml in tandem/declarations/data/platform, each dated.
    """
    if not NAME_PATTERN.fullmatch(name) or name in FOLDER_NAMES:
        allowed = f"{NAME_RULE}{', '.join(sorted(FOLDER_NAMES))}"
        yield _build_name_fault(Path(f"{name}.yaml"), f"{name!r} is not a valid name", allowed)
    regions = catalogue.offerings.zones
    if region not in regions:
        got = f"the zones of {region} are not known"
        allowed = ", ".join(sorted(regions))
        change = (
            "start from one of them, and write region and zones: aws ec2"
            " describe-availability-zones"
        )
        yield SpecFault("--region", "", got, allowed, change)
    kinds = catalogue.instances.instances[instance_type].capacity_kinds.value
    if kind not in kinds:
        got = f"{instance_type} is not sold as {kind}"
        change = "write one of them"
        yield SpecFault("--kind", "", got, ", ".join(kinds), change)
