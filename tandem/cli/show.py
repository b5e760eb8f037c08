"""`tandem show`: what an environment is, in the words an operator needs before a deploy."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from tandem.cli.cost_report import (
    build_parked_cost_dict,
    compute_environment_cost,
    format_parked_cost,
    list_part_lines,
)
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.outcome import compute_exit_code, print_json
from tandem.cli.selection import Selection, add_name_flags
from tandem.errors import ExitCode
from tandem.shell_command import build_cdk_command, build_tandem_command, quote_command
from tandem.spec import names
from tandem.spec.budgets import compute_run_usd
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.faults import SpecFault
from tandem.spec.project_image import PROJECT_IMAGES
from tandem.spec.variant_key import compute_artifact_key


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_name_flags(parser)
    parser.add_argument("--verbose", action="store_true", help="the parts of the parked cost too")


def show(selection: Selection) -> ExitCode:
    """Summarize the named environments (all when none is).

    Raises:
        SpecError: a spec is refused, or with `strict` warned of.
    """
    inputs, folders = read_legal_inputs(selection), _list_foreign_folders(selection)
    if selection.as_json:
        print_json(
            {
                "environments": [
                    _environment_as_dict(inputs, environment, folders) for environment in inputs.environments()
                ]
            }
        )
    else:
        for environment in inputs.environments():
            print("\n".join(_format_environment(inputs, environment, folders, verbose=selection.verbose)))
    return compute_exit_code(inputs.faults, strict=selection.strict)


def format_speculation(variant: Variant) -> str:
    """Say a variant's speculation fields, the only ones in which it may differ from the baseline."""
    if variant.mode == "none":
        return "none"
    draft = f" {variant.draft}" if variant.draft else ""
    return f"{variant.mode}{draft} k={variant.num_speculative_tokens}"


def _list_stacks(environment: Environment) -> list[str]:
    return [names.stack_name(environment, kind) for kind in names.stack_kinds(environment)]


def _format_environment(
    inputs: CommandInputs, environment: Environment, folders: Mapping[str, str], *, verbose: bool
) -> Iterator[str]:
    capacity = environment.capacity
    yield f"\n{environment.name}: account {environment.account}, {environment.region}"
    yield f"  stacks      {', '.join(_list_stacks(environment))}"
    if environment.capacity.awaits_reservation:
        yield "              Fleet is left out until capacity.reservation_id names your reservation"
    yield f"  cluster     {names.cluster_name(environment)}, Kubernetes {environment.cluster.kubernetes}"
    yield f"  bucket      {names.bucket_name(environment)}, each artifact in artifacts/<key>/"
    for image in PROJECT_IMAGES:
        yield f"  {image.name:<11} {image.reference(environment)}"
    yield f"  nodes       0 now, at most {capacity.nodes} x {capacity.instance_type} ({capacity.kind}, {capacity.zone})"
    cost = compute_environment_cost(inputs, environment)
    if cost is not None:
        yield f"  cost        {format_parked_cost(cost)}"
        yield from list_part_lines(cost, " " * 14) if verbose else ()
    yield (
        f"              a run at {capacity.usd_per_hour:.2f} USD per node-hour (your figure of "
        f"{capacity.usd_per_hour_date}), guard.max_hours"
    )
    for experiment in inputs.list_experiments(environment):
        yield from _format_experiment(experiment, inputs.catalogue)
    warnings = (
        f"  warning     {fault.path}: {fault.got}; {fault.change}"
        for fault in _list_environment_faults(inputs, environment)
    )
    yield from dict.fromkeys(warnings)
    yield "  next"
    yield from (f"    {command}" for command in list_next_commands(environment, folders))


def _format_experiment(experiment: Experiment, catalogue: Catalogue) -> Iterator[str]:
    runtime = catalogue.runtimes[experiment.runtime]
    tensor_parallel_size = experiment.serving.tensor_parallel_size
    yield f"  experiment  {experiment.name}: {experiment.target} on {runtime.title}, TP {tensor_parallel_size}"
    variants = experiment.all_variants()
    name_width = max(len(variant.name) for variant in variants)
    speculation_width = max(len(format_speculation(variant)) for variant in variants)
    for variant in variants:
        key = compute_artifact_key(experiment, variant, catalogue).name
        yield f"    {variant.name:<{name_width}}  {format_speculation(variant):<{speculation_width}}  {key}"
    yield "    the only difference is what stands above; flags, image, devices and requests are equal"


def _list_environment_faults(inputs: CommandInputs, environment: Environment) -> list[SpecFault]:
    files = {inputs.workspace.environments[environment.name].document.file}
    files |= {
        inputs.workspace.experiments[experiment.name].document.file
        for experiment in inputs.list_experiments(environment)
    }
    return [fault for fault in inputs.faults if fault.file in files]


def _list_foreign_folders(selection: Selection) -> dict[str, str]:
    """Return the folders of files outside this repository; none for its own."""
    folders = {"environments": selection.environments, "experiments": selection.experiments}
    return {key: str(folder) for key, folder in folders.items() if str(folder) != key}


def list_next_commands(environment: Environment, folders: Mapping[str, str]) -> list[str]:
    """Return the commands that bring this environment from files to servers, in order."""
    context = [word for key, folder in folders.items() for word in ("-c", f"{key}={folder}")]
    options = [word for key, folder in folders.items() for word in (f"--{key}", folder)]
    boundary, qualifier = environment.bootstrap.permissions_boundary, environment.bootstrap.qualifier
    bootstrap = quote_command(
        "npx", "cdk", "bootstrap", f"aws://{environment.account}/{environment.region}", "--qualifier", qualifier,
        "--toolkit-stack-name", f"CDKToolkit-{qualifier}",
        *(["--custom-permissions-boundary", boundary] if boundary else []),
    )  # fmt: skip
    deploys = [build_cdk_command(verb, environment.name, "*", *context) for verb in ("diff", "deploy")]
    commands = [bootstrap, *deploys]
    if environment.delivery.kind == "gitops":
        folder = f"manifests/{environment.name}/gitops"
        commands.append(f"git push, then once: {quote_command('kubectl', 'apply', '-k', folder)}")
    # and that prints what comes after
    return [*commands, build_tandem_command("artifacts list", environment.name, *options)]


def _environment_as_dict(
    inputs: CommandInputs, environment: Environment, folders: Mapping[str, str]
) -> dict[str, object]:
    capacity, cost = environment.capacity, compute_environment_cost(inputs, environment)
    return {
        "name": environment.name,
        "account": environment.account,
        "region": environment.region,
        "stacks": _list_stacks(environment),
        "cluster": names.cluster_name(environment),
        "bucket": names.bucket_name(environment),
        **{f"{image.name}_image": image.reference(environment) for image in PROJECT_IMAGES},
        "capacity": capacity.model_dump(mode="json"),
        "max_usd": compute_run_usd(environment),
        "parked": build_parked_cost_dict(cost) if cost else None,
        "experiments": [
            _experiment_as_dict(experiment, inputs.catalogue) for experiment in inputs.list_experiments(environment)
        ],
        "warnings": [fault.as_dict() for fault in _list_environment_faults(inputs, environment)],
        "next": list_next_commands(environment, folders),
    }


def _experiment_as_dict(experiment: Experiment, catalogue: Catalogue) -> dict[str, object]:
    return {
        "name": experiment.name,
        "runtime": experiment.runtime,
        "target": experiment.target,
        "variants": [
            {
                "name": variant.name,
                "difference": format_speculation(variant),
                "artifact": compute_artifact_key(experiment, variant, catalogue).prefix,
            }
            for variant in experiment.all_variants()
        ],
    }
