"""The rehearsed world of a run with a named cluster in the place of the rehearsal's.

Invariant: AWS, the hub and the pods' processes are those of the rehearsal; objects, controllers,
scheduler, rights and tokens are the cluster's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from api_store import ApiStore
from bound_tokens import RequestedTokens
from given_manifests import GivenManifests
from named_cluster import NamedCluster, Object
from played_kubelets import PlayedKubelets

from rehearsal.aws.installation import REPOSITORY
from rehearsal.run.settings import RehearsalSettings
from rehearsal.run.world import MANIFESTS, RehearsalAccount, RunWorld

TIME_SCALE = 25.0  # of the simulated servers, as in `make demo`


class PlayedWorld(RunWorld):
    """All that a run needs, on a named cluster.

    Args:
        cluster, store: the cluster.
        address: at which its API server reaches this machine.
    """

    def __init__(
        self,
        account: RehearsalAccount,
        settings: RehearsalSettings,
        folder: Path,
        cluster: NamedCluster,
        store: ApiStore,
        address: str,
    ) -> None:
        super().__init__(account, settings, folder, store)
        self._named = cluster
        self._address = address

    def build_tokens(self) -> RequestedTokens:
        """Return the tokens of the cluster's pods."""
        return RequestedTokens(self.store)

    def open_cluster(
        self, _: list[Object], __: RequestedTokens, actions: list[Callable[[], None]]
    ) -> tuple[PlayedKubelets, PlayedKubelets]:
        """Return the kubelets; the rest of the cluster is at work."""
        kubelets = PlayedKubelets(
            self._named,
            self.store,
            self.pods,
            self.pods.read_log,
            self.folder,
            self._address,
            actions,
        )
        return kubelets, kubelets

    def apply_manifests(self, _: list[Object]) -> Counter[str]:
        """Apply the manifests of the environment; return the kinds that the cluster does not
        have."""
        manifests = GivenManifests.read(
            self._named, self.folder / MANIFESTS / self.settings.environment
        )
        manifests.apply("server side")
        return manifests.absent


@contextmanager
def deploy_world(
    cluster: NamedCluster, store: ApiStore, name: str, folder: Path, address: str
) -> Iterator[PlayedWorld]:
    """Deploy a copy of an environment to a local AWS endpoint, and start its runner in the cluster.

    Args:
        name: of the environment.
        folder: of the account and the world.
        address: at which the API server reaches this machine.
    """
    environments, experiments = (REPOSITORY / part for part in ("environments", "experiments"))
    account = RehearsalAccount.create(name, environments, experiments, folder)
    try:
        account.deploy(folder)
        settings = RehearsalSettings(environment=name, experiment="post", time_scale=TIME_SCALE)
        world = PlayedWorld(account, settings, folder, cluster, store, address)
        world.write_inputs()
        with world:
            world.wait_for_runner()
            yield world
    finally:
        account.endpoint.stop()
