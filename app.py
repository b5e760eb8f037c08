"""The CDK app: load the declarations, check them, build charts, add stacks, synthesize.

Invariant: synthesis reads committed files only. The same specs give the same bytes, on any machine,
without network, clock, credentials or look-ups.

Context: `-c env=NAME` builds one environment; `-c environments=DIR -c experiments=DIR` name other
folders.
"""

from __future__ import annotations

import _node  # noqa: F401  # shows jsii its Node, so it comes before all that imports jsii

# isort: split
import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aws_cdk as cdk

from charts import build_charts
from charts.people import build_people_charts
from charts.runner import build_runner_charts
from stacks.environment import EnvironmentStage
from stacks.stack import TemplateLimitError
from stacks.workloads import ClusterContent
from tandem.cli.console import format_count, print_spec_faults
from tandem.cli.inputs import CommandInputs, read_legal_inputs
from tandem.cli.monitoring_cost import build_scope
from tandem.cli.selection import Selection
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecError
from tandem.errors import ExitCode

ROOT = Path(__file__).parent


def main(arguments: Sequence[str]) -> int:
    """Synthesize; return 2, with one line per fault on stderr, where a declaration is refused."""
    context = read_context(arguments)
    try:
        inputs = load_inputs(context)
        hosts = [
            (environment, inputs.list_experiments(environment))
            for environment in inputs.environments()
        ]
        outdir = os.environ.get("CDK_OUTDIR", "cdk.out")
        build_app(hosts, inputs.catalogue, outdir=outdir, context=context).synth()
    except SpecError as error:
        print_spec_faults(error.faults)
        return int(ExitCode.BAD_INPUT)
    except TemplateLimitError as error:
        sys.stderr.write(f"{error}\n")
        return int(ExitCode.BAD_INPUT)
    return int(ExitCode.DONE)


def load_inputs(context: Mapping[str, Any]) -> CommandInputs:
    """Load the declared environments and experiments, and hold them against the rules.

    Raises:
        SpecError: a declaration cannot be read, or breaks a rule.
    """
    selection = Selection(
        environments=Path(context.get("environments", os.path.relpath(ROOT / "environments"))),
        experiments=Path(context.get("experiments", os.path.relpath(ROOT / "experiments"))),
        names=(context["env"],) if "env" in context else (),
    )
    inputs = read_legal_inputs(selection)
    if inputs.faults:
        warnings = format_count(len(inputs.faults), "warning")
        sys.stderr.write(f"{warnings}: `tandem check` lists them\n")
    return inputs


def build_app(
    hosts: Sequence[tuple[Environment, Sequence[Experiment]]],
    catalogue: Catalogue,
    *,
    outdir: str,
    context: Mapping[str, Any] = MappingProxyType({}),
    validate: bool | None = None,
) -> cdk.App:
    """Build one stage per environment.

    Args:
        hosts: legal environments, each with the experiments it hosts.
        outdir: folder of the cloud assembly.
        context: what the user said by `-c`, for the CDK's own keys.
        validate: the CDK's template validation; None leaves it to the environment variable
            CDK_VALIDATION.
    """
    # plain `python app.py` gets them too
    flags = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = cdk.App(
        outdir=outdir,
        # a stack trace of a construct has the frames of Node, and none of ours
        context={"aws:cdk:disable-creation-stack-traces": True, **flags, **context},
        analytics_reporting=False,
        tree_metadata=False,
        builtin_cloud_formation_validation=validate,
    )
    for environment, experiments in hosts:
        EnvironmentStage(
            app,
            monitoring_scope=build_scope(environment, experiments),
            catalogue=catalogue,
            cluster_content=build_cluster_content(environment, experiments, catalogue),
        )
    return app


def build_cluster_content(
    environment: Environment, experiments: Sequence[Experiment], catalogue: Catalogue
) -> ClusterContent | None:
    """Build the charts that the CDK applies inside the cluster; None where a GitOps tool does."""
    if environment.delivery.kind != "cdk":
        return None
    return ClusterContent(
        experiments={
            experiment.name: build_charts(environment, experiment, catalogue)
            for experiment in experiments
        },
        people=build_people_charts(),
        runner=build_runner_charts(environment, experiments),
    )


def read_context(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the context, from the CDK CLI's environment variable or `python app.py` arguments."""
    parser = argparse.ArgumentParser(prog="app.py", description="Synthesize the stacks.")
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE")
    context: dict[str, Any] = json.loads(os.environ.get("CDK_CONTEXT_JSON", "{}"))
    for pair in parser.parse_args(arguments).context:
        key, _, value = pair.partition("=")
        context[key] = value
    return context


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
