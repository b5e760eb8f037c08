"""Rights of people and accounts, as the API server itself judges them, against the rows that
docs/people.md shows.

Invariant: the judgement is a SubjectAccessReview for every verb on every resource that the API
lists, in an experiment's namespace, in another one, and in all of them. What any user or service
account may do is no right of ours: an account that no manifest knows says what that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from api_store import ApiStore
from named_cluster import Object
from rbac_evaluator import API_VERBS

from tandem.ops.people.cluster_rights import (
    CLUSTER_KINDS,
    CLUSTER_RIGHTS,
    RUNNER_ACCOUNT,
    RUNNER_CLUSTER_RIGHTS,
    RUNNER_NAMESPACE,
    ClusterRight,
    kubernetes_group,
)

POD_ACCOUNTS = ("tandem-stage", "tandem-compile", "tandem-serve", "tandem-bench")
PARALLEL = 8
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True, order=True)
class AccessRequest:
    """One verb on one resource; an empty namespace means all of them, or an object in none."""

    namespace: str
    verb: str
    group: str
    resource: str


@dataclass(frozen=True, slots=True)
class ClusterAccount:
    """Somebody whom the API server knows by a name and groups, and the rows of the table that are
    his.

    Args:
        stranger: the name of somebody of the same kind whom no manifest knows.
    """

    title: str
    user: str
    groups: tuple[str, ...]
    rights: tuple[ClusterRight, ...]
    stranger: tuple[str, tuple[str, ...]]


def list_accounts(namespace: str) -> list[ClusterAccount]:
    """Return the people's groups, the runner, and the accounts of an experiment's pods."""
    people = [
        ClusterAccount(
            kind,
            "somebody",
            (kubernetes_group(kind), "system:authenticated"),
            tuple(right for right in CLUSTER_RIGHTS if kind in right.kinds),
            ("somebody", ("system:authenticated",)),
        )
        for kind in CLUSTER_KINDS
    ]
    runner = _build_service_account(
        "runner", RUNNER_NAMESPACE, RUNNER_ACCOUNT, RUNNER_CLUSTER_RIGHTS
    )
    pods = [_build_service_account(name, namespace, name, ()) for name in POD_ACCOUNTS]
    return [*people, runner, *pods]


def _build_service_account(
    title: str, namespace: str, name: str, rights: tuple[ClusterRight, ...]
) -> ClusterAccount:
    prefix = "system:serviceaccount"
    everybody = ("system:serviceaccounts", "system:authenticated")
    groups = (f"system:serviceaccounts:{namespace}", *everybody)
    stranger = (f"{prefix}:elsewhere:nobody", ("system:serviceaccounts:elsewhere", *everybody))
    return ClusterAccount(title, f"{prefix}:{namespace}:{name}", groups, rights, stranger)


def list_requests(store: ApiStore, experiment: str) -> list[AccessRequest]:
    """Return every verb on every resource that the API lists or the tables name, in each place that
    it can lie in."""
    scopes = dict[tuple[str, str], bool]()
    for right in (*CLUSTER_RIGHTS, *RUNNER_CLUSTER_RIGHTS):
        scopes |= {(right.group, resource): True for resource in right.resources}
    scopes |= {(group, row["name"]): row["namespaced"] for group, _, row in list_resources(store)}
    return [
        AccessRequest(namespace, verb, group, resource)
        for (group, resource), is_namespaced_item in sorted(scopes.items())
        for namespace in ((experiment, "kube-system", "") if is_namespaced_item else ("",))
        for verb in API_VERBS
    ]


def list_resources(store: ApiStore) -> Iterator[tuple[str, str, Object]]:
    """Yield group, path and entry of each resource of the API's preferred versions."""
    roots = {"": "/api/v1"}
    for row in store.call("GET", "/apis")["groups"]:
        roots[row["name"]] = f"/apis/{row['preferredVersion']['groupVersion']}"
    for group, root in roots.items():
        for entry in store.call("GET", root)["resources"]:
            yield group, f"{root}/{entry['name']}", entry


def list_expected(
    rights: Iterable[ClusterRight], requests: Iterable[AccessRequest], experiment: str
) -> set[AccessRequest]:
    """Return the requests that the rows of a table admit."""
    rows = {
        (right.scope, right.group, resource, verb)
        for right in rights
        for resource in right.resources
        for verb in right.verbs
    }
    return {
        request
        for request in requests
        if ("everywhere", request.group, request.resource, request.verb) in rows
        or (
            request.namespace == experiment
            and ("experiments", request.group, request.resource, request.verb) in rows
        )
    }


def list_allowed(
    store: ApiStore, user: str, groups: tuple[str, ...], requests: list[AccessRequest]
) -> set[AccessRequest]:
    """Return the requests that the API server allows to somebody."""

    def is_allowed(request: AccessRequest) -> bool:
        resource, _, subresource = request.resource.partition("/")
        attributes = {
            "namespace": request.namespace,
            "verb": request.verb,
            "group": request.group,
            "resource": resource,
            "subresource": subresource,
        }
        spec = {"user": user, "groups": list(groups), "resourceAttributes": attributes}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        return bool(store.call("POST", _REVIEWS, body)["status"].get("allowed"))

    with ThreadPoolExecutor(PARALLEL) as pool:
        answers = list(pool.map(is_allowed, requests))
    return {request for request, answer in zip(requests, answers, strict=True) if answer}
