"""`tandem show`: what an environment is and costs, in an operator's words, before a deploy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tandem.cli import monitoring_cost
from tandem.cli.console import VerbatimText, print_json, print_line, print_rows
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.money import format_price
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations import names as physical_names
from tandem.declarations.budgets import compute_run_usd
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.faults import SpecFault
from tandem.declarations.variant_key import compute_artifact_key
from tandem.errors import ExitCode
from tandem.monitoring.cost import HOURS_PER_MONTH
from tandem.monitoring.standing_cost import (
    ParkedCost,
    StandingPart,
    compute_parked_cost,
    list_foreign_regions,
    list_unpriced,
)
from tandem.shell_command import (
    build_bootstrap_command,
    build_cdk_command,
    build_tandem_command,
    quote_command,
)

UNKNOWN = "?"


def show(
    *names: str, strict: bool = False, verbose: bool = False, selection: Selection = DEFAULTS
) -> ExitCode:
    """Summarize: variants, artifact keys, cost, warnings, next commands.

    Args:
        names: environments (default: all)
        strict: treat warnings as errors
        verbose: also the parts of the cost, parked and watched

    Raises:
        SpecError: a spec is refused, or with `strict` warned of.
    """
    inputs = read_legal_inputs(selection.narrow(names, strict=strict))
    # the commands name a folder only where it is not the default
    folders = {
        "environments": str(selection.environments),
        "experiments": str(selection.experiments),
    }
    folders = {key: folder for key, folder in folders.items() if folder != key}
    if selection.as_json:
        documents = [
            _environment_as_dict(inputs, environment, folders)
            for environment in inputs.environments()
        ]
        return print_json({"environments": documents})
    for environment in inputs.environments():
        print_line(f"{environment.name}: account {environment.account}, {environment.region}")
        print_rows(_list_rows(inputs, environment, verbose=verbose), label_columns=12)
        print_line("  next")
        for command in list_next_commands(environment, folders):
            print(f"    {command}")
    return ExitCode.DONE


def compute_environment_cost(inputs: CommandInputs, environment: Environment) -> ParkedCost | None:
    """Return an environment's parked cost; None where it, or what it hosts, is refused."""
    watching_cost = inputs.watching_costs.get(environment.name)
    if watching_cost is None:
        return None
    return compute_parked_cost(watching_cost, inputs.catalogue)


def format_parts(usd: float, parts: Sequence[StandingPart], region: str) -> str:
    """Return a sum, whose prices it has and what it lacks.

    As `75.77 USD, in part at us-east-1 prices, + EKS, NAT: no price for us-west-2`.
    """
    text = f"{usd:.2f} USD"
    foreign_regions = ", ".join(list_foreign_regions(parts))
    missing = ", ".join(list_unpriced(parts))
    if foreign_regions:
        text += f", in part at {foreign_regions} prices"
    if foreign_regions and missing:
        text += ","
    if missing:
        text += f" + {missing}: no price for {region}"
    return text


def format_parked_cost(cost: ParkedCost) -> str:
    """Return the figure in one clause, with what it lacks."""
    parked = format_parts(cost.usd, cost.parts, cost.region)
    return f"a month parked: {parked}; a run of {cost.run_hours} h: {cost.run_usd:.2f} USD"


def list_bill_rows(environment: Environment, cost: ParkedCost) -> Iterator[tuple[str, str]]:
    """Yield the four figures that whoever pays asks for first: of what, and how much."""
    if environment.capacity.kind == "capacity-block":
        day = ("a day of the block", f"{cost.day_usd:,.2f} USD, prepaid")
        worst = "0.00 USD more: the block is paid, and EC2 ends it"
    else:
        day = ("a day of nodes", f"{cost.day_usd:,.2f} USD")
        month_usd = cost.day_usd / 24 * HOURS_PER_MONTH
        worst = f"{month_usd:,.2f} USD a month: nothing else ends the nodes"
    yield day
    yield "one run", f"at most {cost.run_usd:,.2f} USD a lease of {cost.run_hours} h"
    yield "a month parked", format_parts(cost.usd, cost.parts, cost.region)
    yield "if every stop failed", worst


def list_cost_rows(cost: ParkedCost) -> Iterator[tuple[str, str]]:
    """Yield the parts of the parked cost and of what is paid once: USD, and of what."""
    yield from _list_part_rows(cost.parts)
    yield "", f"once, at the start: {format_parts(cost.start_usd, cost.start_parts, cost.region)}"
    yield from _list_part_rows(cost.start_parts)
    if list_unpriced((*cost.parts, *cost.start_parts)):
        yield (
            f"{UNKNOWN:>9}",
            f"no price for {cost.region}: write yours into `prices:`; `tandem doctor` reads them",
        )
    yield (
        "",
        "without what moves or grows: other bytes through NAT, flow logs, requests, the bucket",
    )


def _list_part_rows(parts: Iterable[StandingPart]) -> Iterator[tuple[str, str]]:
    for part in parts:
        usd = UNKNOWN if part.usd is None else f"{part.usd:.2f}"
        yield f"{usd:>9}", f"{part.name}: {part.explanation}"


def dump_parked_cost(cost: ParkedCost) -> dict[str, Any]:
    """Return the parked cost as `--json` prints it; a part without a price has the `usd` null."""
    return asdict(cost) | {
        "usd_month": round(cost.usd, 2),
        "no_price_for": list_unpriced(cost.parts),
        "start_usd": round(cost.start_usd, 2),
        "start_no_price_for": list_unpriced(cost.start_parts),
    }


def format_speculation(variant: Variant) -> str:
    """Return a variant's speculation fields, the only ones that may differ from the baseline's."""
    if variant.mode == "none":
        return "none"
    draft = f" {variant.draft}" if variant.draft else ""
    return f"{variant.mode}{draft} k={variant.num_speculative_tokens}"


def _list_rows(
    inputs: CommandInputs, environment: Environment, *, verbose: bool
) -> Iterator[tuple[str, str]]:
    capacity = environment.capacity
    nodes = f"at most {capacity.nodes} x {capacity.instance_type}"
    cluster = physical_names.cluster_name(environment)
    yield "stacks", ", ".join(_list_stacks(inputs, environment))
    if capacity.awaits_reservation:
        yield "", "Fleet is left out until capacity.reservation_id names your reservation"
    yield "cluster", f"{cluster}, Kubernetes {environment.cluster.kubernetes}"
    yield "bucket", f"{physical_names.bucket_name(environment)}, each artifact in artifacts/<key>/"
    for image in inputs.list_images(environment):
        yield image.name, VerbatimText(image.reference(environment))
    yield "nodes", f"0 now, {nodes} ({capacity.kind}, {capacity.zone})"
    yield from _list_money_rows(inputs, environment, verbose=verbose)
    for experiment in inputs.list_experiments(environment):
        yield from _list_experiment_rows(inputs, experiment)
    if count := len(_list_faults(inputs, environment)):
        yield "warnings", f"{count}: {quote_command('tandem', 'check', environment.name)}"


def _list_money_rows(
    inputs: CommandInputs, environment: Environment, *, verbose: bool
) -> Iterator[tuple[str, str]]:
    """Yield what an environment costs: four figures, if verbose their parts, and the price."""
    cost = compute_environment_cost(inputs, environment)
    if cost is not None:
        bill = list(list_bill_rows(environment, cost))
        columns = max(len(label) for label, _ in bill)
        for number, (label, figure) in enumerate(bill):
            yield "" if number else "cost", f"{label:<{columns}}  {figure}"
        if verbose:
            parts = [*list_cost_rows(cost), ("", "of which watching, at most:")]
            parts += monitoring_cost.list_cost_rows(inputs.watching_costs[environment.name])
            for usd, part in parts:
                yield "", VerbatimText(f"{usd}  {part}")
    yield "", f"a run at {format_price(environment.capacity)}, guard.max_hours"


def _list_experiment_rows(
    inputs: CommandInputs, experiment: Experiment
) -> Iterator[tuple[str, str]]:
    """Yield an experiment's target, and how each variant speculates, with its artifact."""
    title = inputs.catalogue.runtimes[experiment.runtime].title
    parallelism = f"TP {experiment.serving.tensor_parallel_size}"
    yield "experiment", f"{experiment.name}: {experiment.target} on {title}, {parallelism}"
    variants = experiment.all_variants()
    width = max(len(variant.name) for variant in variants)
    for variant in variants:
        key = compute_artifact_key(experiment, variant, inputs.catalogue)
        yield "", VerbatimText(f"{variant.name:<{width}}  {format_speculation(variant)}")
        yield "", VerbatimText(f"  {key.name}")
    yield "", "nothing else differs: flags, image, devices and requests are equal"


def _list_stacks(inputs: CommandInputs, environment: Environment) -> list[str]:
    images = [image.name for image in inputs.list_images(environment)]
    kinds = physical_names.stack_kinds(environment, images)
    return [physical_names.stack_name(environment, kind) for kind in kinds]


def _list_faults(inputs: CommandInputs, environment: Environment) -> list[SpecFault]:
    workspace = inputs.workspace
    hosted = inputs.list_experiments(environment)
    files = {workspace.experiments[experiment.name].document.file for experiment in hosted}
    files.add(workspace.environments[environment.name].document.file)
    return [fault for fault in inputs.faults if fault.file in files]


def list_next_commands(environment: Environment, folders: Mapping[str, str]) -> list[str]:
    """Return the commands that bring this environment from files to servers, in order.

    Args:
        environment: as declared.
        folders: `environments` or `experiments` to its folder, where that is not the default.
    """
    context = []
    options = []
    for key, folder in folders.items():
        context += ["-c", f"{key}={folder}"]
        options += [f"--{key}", folder]
    bootstrap = environment.bootstrap
    place = f"aws://{environment.account}/{environment.region}"
    commands = [build_bootstrap_command(place, bootstrap.qualifier, bootstrap.permissions_boundary)]
    commands += [
        build_cdk_command(verb, environment.name, "*", *context) for verb in ("diff", "deploy")
    ]
    flags = [*context, "--require-approval", "never"]
    pipeline = build_cdk_command("deploy", environment.name, "*", *flags)
    commands.append(f"{pipeline}  # in a pipeline, instead")
    if environment.delivery.kind == "gitops":
        folder = f"manifests/{environment.name}/gitops"
        commands.append(f"git push, then once: {quote_command('kubectl', 'apply', '-k', folder)}")
    # this command prints those that come after it
    return [*commands, build_tandem_command("artifacts list", environment.name, *options)]


def _environment_as_dict(
    inputs: CommandInputs, environment: Environment, folders: Mapping[str, str]
) -> dict[str, object]:
    cost = compute_environment_cost(inputs, environment)
    images = {}
    for image in inputs.list_images(environment):
        images[f"{image.name}_image".replace("-", "_")] = image.reference(environment)
    return {
        "name": environment.name,
        "account": environment.account,
        "region": environment.region,
        "stacks": _list_stacks(inputs, environment),
        "cluster": physical_names.cluster_name(environment),
        "bucket": physical_names.bucket_name(environment),
        **images,
        "capacity": environment.capacity.model_dump(mode="json"),
        "max_usd": compute_run_usd(environment),
        "parked": dump_parked_cost(cost) if cost else None,
        "experiments": [
            _experiment_as_dict(inputs, experiment)
            for experiment in inputs.list_experiments(environment)
        ],
        "warnings": [fault.as_dict() for fault in _list_faults(inputs, environment)],
        "next": list_next_commands(environment, folders),
    }


def _experiment_as_dict(inputs: CommandInputs, experiment: Experiment) -> dict[str, object]:
    variants = []
    for variant in experiment.all_variants():
        key = compute_artifact_key(experiment, variant, inputs.catalogue)
        difference = format_speculation(variant)
        variants.append({"name": variant.name, "difference": difference, "artifact": key.prefix})
    return {
        "name": experiment.name,
        "runtime": experiment.runtime,
        "target": experiment.target,
        "variants": variants,
    }
