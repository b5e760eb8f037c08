"""What people may do in a cluster: the rendered RBAC against the table of docs/people.md."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from chart_cases import ENVIRONMENTS, experiments, of_kind, rights
from committed import ROOT
from rbac_evaluator import ApiRequest, allows

from tandem.ops.people.cluster_rights import CLUSTER_KINDS, ClusterKind, kubernetes_group
from tandem.spec import names

# the API of Kubernetes 1.36, and what has no object of its own but is asked of RBAC
RESOURCES = {
    "": """bindings componentstatuses configmaps endpoints events groups limitranges namespaces namespaces/finalize
        namespaces/status nodes nodes/proxy nodes/status nodes/log nodes/metrics nodes/stats persistentvolumeclaims
        persistentvolumeclaims/status persistentvolumes persistentvolumes/status pods pods/attach pods/binding
        pods/ephemeralcontainers pods/eviction pods/exec pods/log pods/portforward pods/proxy pods/resize pods/status
        podtemplates replicationcontrollers replicationcontrollers/scale replicationcontrollers/status resourcequotas
        resourcequotas/status secrets serviceaccounts serviceaccounts/token services services/proxy services/status
        users""",
    "admissionregistration.k8s.io": """mutatingadmissionpolicies mutatingadmissionpolicybindings
        mutatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicies/status
        validatingadmissionpolicybindings validatingwebhookconfigurations""",
    "apiextensions.k8s.io": "customresourcedefinitions customresourcedefinitions/status",
    "apiregistration.k8s.io": "apiservices apiservices/status",
    "apps": """controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status
        replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status""",
    "argoproj.io": "applications applicationsets appprojects",
    "authentication.k8s.io": "selfsubjectreviews tokenreviews userextras",
    "authorization.k8s.io": "localsubjectaccessreviews selfsubjectaccessreviews subjectaccessreviews",
    "autoscaling": "horizontalpodautoscalers horizontalpodautoscalers/status",
    "batch": "cronjobs cronjobs/status jobs jobs/status",
    "certificates.k8s.io": """certificatesigningrequests certificatesigningrequests/approval
        certificatesigningrequests/status clustertrustbundles podcertificaterequests signers""",
    "coordination.k8s.io": "leasecandidates leases",
    "discovery.k8s.io": "endpointslices",
    "events.k8s.io": "events",
    "flowcontrol.apiserver.k8s.io": "flowschemas prioritylevelconfigurations",
    "helm.toolkit.fluxcd.io": "helmreleases",
    "kustomize.toolkit.fluxcd.io": "kustomizations",
    "metrics.k8s.io": "nodes pods",
    "networking.k8s.io": "ingressclasses ingresses ipaddresses networkpolicies servicecidrs",
    "node.k8s.io": "runtimeclasses",
    "policy": "poddisruptionbudgets poddisruptionbudgets/status",
    "rbac.authorization.k8s.io": "clusterrolebindings clusterroles rolebindings roles",
    "resource.k8s.io": """deviceclasses devicetaintrules resourceclaims resourceclaims/binding resourceclaims/status
        resourceclaimtemplates resourceslices""",
    "scheduling.k8s.io": "priorityclasses workloads",
    "storage.k8s.io": """csidrivers csinodes csistoragecapacities storageclasses volumeattachments
        volumeattributesclasses""",
    "unheard.example.com": "things",
}
VERBS = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind",
    "escalate", "approve", "sign", "use", "unheard-of",
)  # fmt: skip
EVERYTHING = [
    (verb, group, resource)
    for group, resources in RESOURCES.items()
    for resource in resources.split()
    for verb in VERBS
]
PLACES = ("an experiment", "elsewhere", "all namespaces")
Right = tuple[str, str, str, str]  # place, verb, group, resource


def page_rows() -> list[list[str]]:
    """The rows of the page's table: verbs, group, resources, where, then yes or no for each kind, reason."""
    text = (ROOT / "docs/people.md").read_text()
    table = text.partition("## In the cluster\n")[2].partition("\n**People make Jobs")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:2] == "| "]
    return rows[1:]


def rights_on_the_page(kind: ClusterKind) -> set[Right]:
    column = 4 + CLUSTER_KINDS.index(kind)
    return {
        (place, verb, group if group != "core" else "", resource)
        for verbs, group, resources, where, *cells in page_rows()
        if [verbs, group, resources, where, *cells][column] == "yes"
        for place in (("an experiment",) if where == "experiments" else PLACES)
        for verb in re.findall(r"`(.+?)`", verbs)
        for resource in re.findall(r"`(.+?)`", resources)
    }


def rights_by_rbac(environment: str, kind: ClusterKind) -> set[Right]:
    spaces = {
        "an experiment": names.experiment_namespace(experiments(ENVIRONMENTS[environment])[0]),
        "elsewhere": "kube-system",
        "all namespaces": None,
    }
    return {
        (place, *asked)
        for place, (verb, group, resource) in itertools.product(PLACES, EVERYTHING)
        for asked in [(verb, group, resource)]
        if allows(
            rights(environment), {kubernetes_group(kind), "system:authenticated"},
            ApiRequest(verb=verb, group=group, resource=resource, namespace=spaces[place]),
        )
    }  # fmt: skip


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("kind", CLUSTER_KINDS)
def test_rbac_allows_exactly_the_page(environment: str, kind: ClusterKind) -> None:
    assert rights_by_rbac(environment, kind) == rights_on_the_page(kind)


@pytest.mark.parametrize("kind", CLUSTER_KINDS)
def test_what_the_page_denies_is_not_allowed_on_it_too(kind: ClusterKind) -> None:
    allowed = {right[1:] for right in rights_on_the_page(kind)}
    denied = {
        (verb, group if group != "core" else "", resource)
        for verbs, group, resources, where, *_ in page_rows()
        if where == "nowhere"
        for verb in re.findall(r"`(.+?)`", verbs)
        for resource in re.findall(r"`(.+?)`", resources)
    }

    assert denied & allowed == set()


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_experiment_has_the_same_rights(environment: str) -> None:
    spaces = [names.experiment_namespace(experiment) for experiment in experiments(ENVIRONMENTS[environment])]
    made: dict[str, list[Any]] = {space: [] for space in spaces}
    for body in rights(environment):
        if body["kind"] in {"Role", "RoleBinding"}:
            metadata = {key: value for key, value in body["metadata"].items() if key != "namespace"}
            made[body["metadata"]["namespace"]].append({**body, "metadata": metadata})

    assert all(bodies == made[spaces[0]] != [] for bodies in made.values())


# what kubectl asks for its commands, after the way to the object; `label` patches it
ASKED_BY_KUBECTL = {
    "create job": [("get", "batch", "cronjobs"), ("create", "batch", "jobs")],
    "create -f": [("create", "batch", "jobs")],
    "delete job": [("delete", "batch", "jobs")],
    "delete pods": [("list", "", "pods"), ("delete", "", "pods")],
    "exec": [("get", "batch", "jobs"), ("list", "", "pods"), ("get", "", "pods/exec"), ("create", "", "pods/exec")],
    "get nodes": [("list", "", "nodes")],
    "get pods": [("list", "", "pods")],
    "label node": [("patch", "", "nodes")],
    "logs": [("get", "batch", "jobs"), ("get", "apps", "deployments"), ("list", "", "pods"), ("get", "", "pods/log")],
    "scale deploy": [("get", "apps", "deployments"), ("patch", "apps", "deployments/scale")],
}


@pytest.mark.parametrize(("kind", "may"), [("viewer", {"get nodes", "get pods"}),
                                           ("engineer", {*ASKED_BY_KUBECTL} - {"label node"}),
                                           ("operator", {*ASKED_BY_KUBECTL} - {"label node"})])  # fmt: skip
def test_a_run_by_hand_takes_an_engineer_but_for_labels(kind: ClusterKind, may: set[str]) -> None:
    page = (ROOT / "docs/run-by-hand.md").read_text()
    commands = re.findall(
        r"kubectl (?:-n tandem-post )?((?:apply|create|delete|get|label|scale) [\w-]+|exec|logs|cp|rollout)", page
    )
    allowed = {
        command
        for command in commands
        if all(
            allows(rights("post-us-east-2"), {kubernetes_group(kind)},
                   ApiRequest(verb=verb, group=group, resource=resource, namespace="tandem-post"))
            for verb, group, resource in ASKED_BY_KUBECTL[command]
        )
    }  # fmt: skip

    assert (allowed, set(commands)) == (may, {*ASKED_BY_KUBECTL})


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_rule_holds_a_wildcard(environment: str) -> None:
    roles = [body for kind in ("Role", "ClusterRole") for body in of_kind(rights(environment), kind).values()]
    assert roles != []
    assert "*" not in {text for role in roles for one in role["rules"] for texts in one.values() for text in texts}
