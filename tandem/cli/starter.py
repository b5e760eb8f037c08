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
        name: of the environment and the experiment
        instance_type: what the nodes are
        kind: how they are bought
        region: AWS region (default: the first known to offer the type)
        vpc: who makes the VPC

    Raises:
        SpecError: the name is no label, one of the files exists, or the type is not sold so or
            there.
    """
    catalogue = load_catalogue()
    region = region or next(iter(catalogue.offerings.offerings[instance_type]))
    folders = (selection.environments, selection.experiments)
    paths = [folder / f"{name}.yaml" for folder in folders]
    faults = [
        SpecFault(
            file=str(path),
            path="",
            got="an existing file",
            allowed="a new name",
            change="choose another name",
        )
        for path in dict.fromkeys(paths)
        if path.exists()
    ]
    faults += _list_faults(name, instance_type, kind, region, catalogue)
    if faults:
        raise SpecError(faults)
    region_zones = catalogue.offerings.zones[region]
    # where no list has the type in this region the account decides: `tandem check` warns, `tandem
    # doctor` asks EC2
    offered = catalogue.offerings.offerings[instance_type].get(region, region_zones).value
    # the nodes' zone and the first others of the region
    zones = sorted([*dict.fromkeys((offered[0], *region_zones.value))][:MAX_ZONES])
    minor = catalogue.kubernetes.minors[catalogue.kubernetes.default.value]
    releases = minor.list_releases(
        catalogue.runtimes[STARTER_RUNTIME].versions.refusing_drivers.value
    )
    instance = catalogue.instances.instances[instance_type]
    templates = jinja2.Environment(  # noqa: S701 - YAML, which no browser reads
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for kind_of_file, path in zip(("environment", "experiment"), paths, strict=True):
        text = templates.get_template(f"{kind_of_file}.yaml.j2").render(
            name=name,
            type=instance_type,
            kind=kind,
            region=region,
            vpc=vpc,
            offered=offered,
            zones=zones,
            counts=instance.device_counts.value,
            devices=instance.devices.value or 1,
            runtime=STARTER_RUNTIME,
            kubernetes=catalogue.kubernetes.default.value,
            ami_release=releases[0],
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    next_step = (
        f"next: `{quote_command('tandem', 'check', name)}` lists each FILL_IN with what it takes"
    )
    lines = [*(f"wrote {path}" for path in paths), next_step]
    print_result({"written": [str(path) for path in paths]}, lines, as_json=selection.as_json)
    return ExitCode.DONE


def _list_faults(
    name: str, instance_type: str, kind: str, region: str, catalogue: Catalogue
) -> Iterator[SpecFault]:
    """Yield what is wrong of the name, and what the data say against the type's region and kind.

    Source: offerings.yaml and instances.yaml in tandem/declarations/data/platform, each dated.
    """
    if not NAME_PATTERN.fullmatch(name) or name in FOLDER_NAMES:
        allowed = f"{NAME_RULE}{', '.join(sorted(FOLDER_NAMES))}"
        yield SpecFault(
            file=f"{name}.yaml",
            path="",
            got=repr(name),
            allowed=allowed,
            change="choose another name",
        )
    regions = catalogue.offerings.zones
    if region not in regions:
        got = f"{region}, whose zones are not known here"
        allowed = ", ".join(sorted(regions))
        change = (
            "start from one of them, and write region and zones: aws ec2"
            " describe-availability-zones"
        )
        yield SpecFault(file="--region", path="", got=got, allowed=allowed, change=change)
    kinds = catalogue.instances.instances[instance_type].capacity_kinds.value
    if kind not in kinds:
        got = f"{kind} for {instance_type}"
        change = "write one of them"
        yield SpecFault(file="--kind", path="", got=got, allowed=", ".join(kinds), change=change)
