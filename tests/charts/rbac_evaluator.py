"""RBAC's judgement in small: whether the Roles bound to some groups allow a request.

Source: kubernetes.io docs/reference/access-authn-authz/rbac, and the fields of PolicyRule in the
API reference. Rights only add up; `*` stands for any group, verb or resource, `*/sub` for that
subresource of any resource; a resource allows none of its subresources; a rule with resourceNames
allows no request without a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
# the API of Kubernetes 1.36, and what has no object of its own but is asked of RBAC
RESOURCES = {
    "": (
        """bindings componentstatuses configmaps endpoints events groups limitranges namespaces namespaces/finalize
        namespaces/status nodes nodes/proxy nodes/status nodes/log nodes/metrics nodes/stats persistentvolumeclaims
        persistentvolumeclaims/status persistentvolumes persistentvolumes/status pods pods/attach pods/binding
        pods/ephemeralcontainers pods/eviction pods/exec pods/log pods/portforward pods/proxy pods/resize pods/status
        podtemplates replicationcontrollers replicationcontrollers/scale replicationcontrollers/status resourcequotas
        resourcequotas/status secrets serviceaccounts serviceaccounts/token services services/proxy services/status
        users"""
    ),
    "admissionregistration.k8s.io": (
        """mutatingadmissionpolicies mutatingadmissionpolicybindings
        mutatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicies/status
        validatingadmissionpolicybindings validatingwebhookconfigurations"""
    ),
    "apiextensions.k8s.io": "customresourcedefinitions customresourcedefinitions/status",
    "apiregistration.k8s.io": "apiservices apiservices/status",
    "apps": (
        """controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status
        replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status"""
    ),
    "argoproj.io": "applications applicationsets appprojects",
    "authentication.k8s.io": "selfsubjectreviews tokenreviews userextras",
    "authorization.k8s.io": (
        "localsubjectaccessreviews selfsubjectaccessreviews subjectaccessreviews"
    ),
    "autoscaling": "horizontalpodautoscalers horizontalpodautoscalers/status",
    "batch": "cronjobs cronjobs/status jobs jobs/status",
    "certificates.k8s.io": (
        """certificatesigningrequests certificatesigningrequests/approval
        certificatesigningrequests/status clustertrustbundles podcertificaterequests signers"""
    ),
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
    "resource.k8s.io": (
        """deviceclasses devicetaintrules resourceclaims resourceclaims/binding resourceclaims/status
        resourceclaimtemplates resourceslices"""
    ),
    "scheduling.k8s.io": "priorityclasses workloads",
    "storage.k8s.io": (
        """csidrivers csinodes csistoragecapacities storageclasses volumeattachments
        volumeattributesclasses"""
    ),
    "unheard.example.com": "things",
}
# what an API server judges of any resource
API_VERBS = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "impersonate",
    "bind",
    "escalate",
)
VERBS = (*API_VERBS, "approve", "sign", "use", "unheard-of")
EVERYTHING = [
    (verb, group, resource)
    for group, resources in RESOURCES.items()
    for resource in resources.split()
    for verb in VERBS
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request for one resource: `namespace` None asks for all of them, or for what is in none."""

    verb: str
    group: str
    resource: str
    namespace: str | None
    name: str = ""


def allows(objects: Iterable[Object], groups: set[str], request: ApiRequest) -> bool:
    """Whether somebody may: a service account is told among the groups, as
    `system:serviceaccount:NAMESPACE:NAME`."""
    return any(
        matches(rule, request) for rule in list_rules(list(objects), groups, request.namespace)
    )


def list_rules(objects: list[Object], groups: set[str], namespace: str | None) -> Iterator[Object]:
    """Yield the rules that hold for members of `groups` in a namespace."""
    for binding in objects:
        here = binding["metadata"].get("namespace")
        if binding["kind"] != "ClusterRoleBinding" and (
            binding["kind"] != "RoleBinding" or here != namespace
        ):
            continue
        if not any(_name_subject(subject) in groups for subject in binding["subjects"]):
            continue
        wanted_values = (binding["roleRef"]["kind"], binding["roleRef"]["name"])
        for role in objects:
            space = here if role["kind"] == "Role" else None
            if (role["kind"], role["metadata"]["name"]) == wanted_values and role["metadata"].get(
                "namespace"
            ) == space:
                yield from role["rules"]


def _name_subject(subject: Object) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    assert subject["kind"] == "Group"
    return str(subject["name"])


def matches(rule: Object, request: ApiRequest) -> bool:
    """Whether one rule allows a request."""
    _, _, subresource = request.resource.partition("/")
    resources = {"*", request.resource, *([f"*/{subresource}"] if subresource else [])}
    names = rule.get("resourceNames", [])
    return (
        bool({"*", request.verb} & set(rule["verbs"]))
        and bool({"*", request.group} & set(rule["apiGroups"]))
        and bool(resources & set(rule["resources"]))
        and (not names or request.name in names)
    )
