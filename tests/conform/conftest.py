"""One named cluster for all tests of this folder, what they make in it, and the table that they
print."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from api_store import ApiStore
from given_manifests import GivenManifests, render_environment
from made_objects import MadeObjects, list_names, list_taken_names
from named_cluster import NamedCluster, NamedClusterError
from played_kubelets import PlayedKubelets
from shipped import ENVIRONMENTS

from rehearsal.cluster.pods import VirtualPods
from tandem.errors import ExitCode

FAULT_CHARACTERS = 300
ROWS: list[tuple[str, str, str, str]] = []
NOT_SHOWN = """\
Not shown: a kubelet, a container runtime and images; the CSI driver and the mounted bucket; the
CNI and whether network policies bind; Pod Identity and EKS's webhooks; EKS's access entries; the
controllers of Argo CD and Flux; AWS, which is the local endpoint."""


@pytest.fixture(scope="session")
def cluster():
    """The cluster that the command line of make names."""
    try:
        return NamedCluster.choose(os.environ)
    except NamedClusterError as error:
        pytest.exit(str(error), ExitCode.BAD_INPUT)


@pytest.fixture(scope="session")
def address():
    """The address of this machine that the API server reaches, for the logs of pods."""
    return os.environ.get("CONFORM_ADDRESS") or "127.0.0.1"


@pytest.fixture(scope="session")
def store(cluster):
    with cluster.open_proxy() as url:
        yield ApiStore(url)


@pytest.fixture(scope="session")
def environments(cluster, tmp_path_factory):
    """The manifests of each example environment."""
    folder = tmp_path_factory.mktemp("manifests")
    return {
        name: GivenManifests.read(cluster, render_environment(name, folder))
        for name in ENVIRONMENTS
    }


@pytest.fixture(scope="session")
def play(cluster, store, address, tmp_path_factory):
    """A function that plays the kubelets of pods that do nothing and are ready at once."""

    def start() -> AbstractContextManager[PlayedKubelets]:
        pods = VirtualPods(store.now)
        folder = tmp_path_factory.mktemp("kubelets")
        return PlayedKubelets(
            cluster, store, pods, lambda pod, _: pods.look_at_pod(pod).log, folder, address
        )

    return start


@pytest.fixture(scope="session")
def made_objects(cluster, store, environments, play):
    """What the tests make; nothing begins while a name is taken, and all of it is deleted whatever
    happens."""
    manifests = tuple(environments.values())
    names = list_taken_names(cluster, manifests)
    if names:
        pytest.exit(
            f"the cluster has {', '.join(names)}: take one that nobody needs",
            ExitCode.BAD_INPUT,
        )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # so that an end by a signal deletes too
    objects = MadeObjects(
        cluster=cluster, store=store, environments=manifests, before=list_names(store)
    )
    try:
        objects.make_surroundings()
        yield objects
    finally:
        with play():
            objects.delete_all()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Function, call: pytest.CallInfo) -> Iterator[None]:
    """Keep a row of each test: what it checks, what it did, its figures, its result."""
    outcome = yield
    report = outcome.get_result()
    if not item.get_closest_marker("conform") or (report.when != "call" and report.passed):
        return
    title = item.name.removeprefix("test_").replace("_", " ")
    figures = ", ".join(f"{name} {value}" for name, value in report.user_properties)
    fault = call.excinfo.exconly().splitlines()[0][:FAULT_CHARACTERS] if call.excinfo else ""
    did = " ".join((item.function.__doc__ or "").split())
    ROWS.append((title, did, figures, f"{report.outcome} {fault}".strip()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, and what no row shows."""
    if not ROWS:
        return
    terminalreporter.section("conform")
    terminalreporter.write_line("| check | what it did | figures | result |\n|---|---|---|---|")
    for row in ROWS:
        terminalreporter.write_line(f"| {' | '.join(row)} |")
    terminalreporter.write_line(f"\n{NOT_SHOWN}")
