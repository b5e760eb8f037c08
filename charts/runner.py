"""What the runner needs in the cluster: namespace, rights, traffic policies, declared files.

Invariant: its Roles are the rows of RUNNER_CLUSTER_RIGHTS and no more. It makes Jobs and scales
Deployments in the experiments' namespaces, and reads; it writes to no node. charts/base.py renders
the Roles of an experiment's namespace, so that nothing here needs an experiment to be applied
first. Nobody may call the runner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cdk8s
from cdk8s_plus_36 import k8s
from constructs import Construct

from charts.base import security_labels
from charts.chart import TandemChart
from charts.network import RUNNER, build_runner_policies
from charts.roles import add_runner_role
from charts.runner_pod import SPECS, RunnerPodChart
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.spec_digest import dump_record_yaml
from tandem.ops.people.cluster_rights import RUNNER_ACCOUNT, RUNNER_NAMESPACE

FOLDER = "runner"
WAVE = 0


class RunnerChart(TandemChart):
    """The objects that must be there before the runner's pod.

    Args:
        specs: the declared files by the keys of their ConfigMap.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, specs: Mapping[str, str]
    ) -> None:
        super().__init__(scope, id_, namespace=RUNNER_NAMESPACE, wave=WAVE)

        k8s.KubeNamespace(
            self,
            "namespace",
            metadata=self.build_metadata(
                RUNNER_NAMESPACE,
                RUNNER,
                application=RUNNER,
                labels=security_labels(environment, "restricted"),
                is_clusterwide=True,
            ),
        )

        k8s.KubeServiceAccount(
            self,
            "account",
            metadata=self.build_metadata(RUNNER_ACCOUNT, RUNNER),
            automount_service_account_token=False,
        )

        k8s.KubeConfigMap(self, "specs", metadata=self.build_metadata(SPECS, RUNNER), data=specs)

        for name, policy in build_runner_policies(environment).items():
            k8s.KubeNetworkPolicy(
                self, f"policy-{name}", metadata=self.build_metadata(name, RUNNER), spec=policy
            )

        add_runner_role(self, scope="everywhere")


def build_runner_charts(
    environment: Environment, experiments: Sequence[Experiment]
) -> dict[str, cdk8s.Chart]:
    """Return the runner's charts by their ids: the cluster and its namespace, then its pod."""
    specs = _build_specs(environment, experiments)
    app = cdk8s.App()
    return {
        "cluster": RunnerChart(app, "cluster", environment=environment, specs=specs),
        "pod": RunnerPodChart(app, "pod", environment=environment, specs=specs),
    }


def _build_specs(environment: Environment, experiments: Sequence[Experiment]) -> dict[str, str]:
    """Return the declared files by the keys of their ConfigMap: a key has no slash."""
    return {
        "environment.yaml": dump_record_yaml(environment),
        **{
            f"experiment.{experiment.name}.yaml": dump_record_yaml(experiment)
            for experiment in experiments
        },
    }
