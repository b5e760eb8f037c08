"""The CDK app: load the specs, hold them against the rules, build charts and stacks, hand one to the other.

Invariant: synthesis reads committed files only. The same specs give the same bytes, on any machine, without
network, clock, credentials or look-ups.

Context: `-c env=NAME` builds one environment; `-c environments=DIR -c experiments=DIR` name other folders.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import _node  # noqa: F401  # before anything imports jsii
from tandem.cli.console import format_count, print_spec_faults
from tandem.cli.inputs import read_legal_inputs
from tandem.cli.monitoring_cost import build_scope
from tandem.cli.selection import Selection
from tandem.errors import ExitCode
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.faults import SpecError

if TYPE_CHECKING:
    import aws_cdk as cdk

    from stacks.workloads import ClusterContent

ROOT = Path(__file__).parent


def main(arguments: Sequence[str]) -> int:
    """Synthesize; return 2, with one line per fault on stderr, where a spec is refused."""
    context = _read_context(arguments)
    try:
        inputs = read_legal_inputs(
            Selection(
                environments=Path(context.get("environments", os.path.relpath(ROOT / "environments"))),
                experiments=Path(context.get("experiments", os.path.relpath(ROOT / "experiments"))),
                names=(context["env"],) if "env" in context else (),
            )
        )
    except SpecError as error:
        print_spec_faults(error.faults)
        return int(ExitCode.BAD_INPUT)
    if inputs.faults:
        sys.stderr.write(f"{format_count(len(inputs.faults), 'warning')}: `tandem check` lists them\n")
    from stacks.stack import TemplateLimitError  # noqa: PLC0415  # seconds: a refused spec does not wait for it

    gc.disable()  # what synthesis makes lives to its end, and is much to look through at each collection

    hosts = [(environment, inputs.list_experiments(environment)) for environment in inputs.environments()]
    try:
        build_app(hosts, inputs.catalogue, outdir=os.environ.get("CDK_OUTDIR", "cdk.out"), context=context).synth()
    except TemplateLimitError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return int(ExitCode.BAD_INPUT)
    return int(ExitCode.DONE)


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
        validate: the CDK's template validation; None leaves it to the environment variable CDK_VALIDATION.
    """
    import aws_cdk as cdk  # noqa: PLC0415  # seconds, as in main

    from stacks.environment import EnvironmentStage  # noqa: PLC0415

    flags = json.loads((ROOT / "cdk.json").read_text())["context"]  # plain `python app.py` gets them too
    root = cdk.App(
        outdir=outdir,
        context={**flags, **context},
        analytics_reporting=False,
        tree_metadata=False,
        builtin_cloud_formation_validation=validate,
    )
    for environment, experiments in hosts:
        EnvironmentStage(
            root,
            monitoring_scope=build_scope(environment, experiments),
            catalogue=catalogue,
            cluster_content=collect_cluster_content(environment, experiments, catalogue),
        )
    return root


def collect_cluster_content(
    environment: Environment, experiments: Sequence[Experiment], catalogue: Catalogue
) -> ClusterContent | None:
    """Return what the CDK applies inside the cluster, as the charts say it; None where a GitOps tool does."""
    if environment.delivery.kind != "cdk":
        return None
    from charts import render_workloads  # noqa: PLC0415
    from charts.people import render_people  # noqa: PLC0415
    from charts.runner import render_runner  # noqa: PLC0415
    from stacks.workloads import ClusterContent  # noqa: PLC0415

    charts = {experiment.name: render_workloads(environment, experiment, catalogue) for experiment in experiments}
    return ClusterContent(charts=charts, people=render_people(), runner=render_runner(environment, experiments))


def _read_context(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the context: from the CDK CLI's environment variable, or from the arguments of `python app.py`."""
    parser = argparse.ArgumentParser(prog="app.py", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE")
    pairs = (pair.partition("=") for pair in parser.parse_args(arguments).context)
    return {**json.loads(os.environ.get("CDK_CONTEXT_JSON", "{}")), **{key: value for key, _, value in pairs}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
