"""No rendered object can deny, default or change an object of a namespace that the tree does not
make.

What the Neuron chart brings, to which a GitOps object points, is that chart's own.

Source: the kinds of the Kubernetes API reference, 1.36. A cluster-wide object reaches every
namespace, so each kind needs a reason to be here; an object in a namespace reaches that namespace
alone.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from chart_cases import DECLARED, EXPERIMENTS, everything

from tandem.declarations import names

Object = dict[str, Any]
# no admission policy, webhook, PriorityClass, StorageClass, IngressClass, RuntimeClass,
# DeviceClass, FlowSchema or APIService: each of these can deny, default or change what others make
CLUSTER_KINDS = {
    "Namespace": "one of our own",
    "PersistentVolume": "for one claim of our own",
    "ClusterRole": "a name for rights, which a binding gives",
    "ClusterRoleBinding": "to subjects of our own",
}
each_environment = pytest.mark.parametrize("environment", DECLARED)


def list_own_namespaces(environment: str) -> set[str]:
    return {
        body["metadata"]["name"] for body in everything(environment) if body["kind"] == "Namespace"
    }


def list_of_kind(environment: str, kind: str) -> list[Object]:
    return [body for body in everything(environment) if body["kind"] == kind]


@each_environment
def test_a_cluster_wide_object_is_of_a_kind_that_reaches_nobody(environment):
    kinds = {
        body["kind"] for body in everything(environment) if "namespace" not in body["metadata"]
    }
    assert kinds == set(CLUSTER_KINDS)


@each_environment
def test_no_role_of_others_is_replaced(environment):
    """A ClusterRole of the name `view` would replace that of the cluster."""
    roles = [
        *list_of_kind(environment, "ClusterRole"),
        *list_of_kind(environment, "ClusterRoleBinding"),
    ]
    names_of_roles = {role["metadata"]["name"] for role in roles}
    assert [name for name in names_of_roles if not name.startswith("tandem-")] == []


@each_environment
def test_no_pod_has_a_priority_over_pods_of_others(environment):
    """With a priority above theirs it would push them off a node."""
    bodies = list_of_kind(environment, "Deployment") + list_of_kind(environment, "CronJob")
    text = json.dumps(bodies)
    assert "priorityClassName" not in text


@each_environment
def test_the_tree_makes_the_namespaces_of_its_experiments_and_runner_alone(environment):
    experiments = {
        names.experiment_namespace(EXPERIMENTS[name]) for name in DECLARED[environment].experiments
    }
    assert list_own_namespaces(environment) == {*experiments, "runner-system"}


@each_environment
def test_no_role_adds_to_a_role_of_others(environment):
    """A label of a ClusterRole can add its rules to admin, edit or view."""
    roles = list_of_kind(environment, "ClusterRole")
    labels = {label for role in roles for label in role["metadata"]["labels"]}
    assert [label for label in labels if "aggregate-to" in label] == []


@each_environment
def test_rights_are_given_to_subjects_of_the_tree_alone(environment):
    bindings = [
        *list_of_kind(environment, "ClusterRoleBinding"),
        *list_of_kind(environment, "RoleBinding"),
    ]
    subjects = {
        (subject["kind"], subject.get("namespace"), subject["name"])
        for binding in bindings
        for subject in binding["subjects"]
    }
    assert subjects == {
        ("Group", None, "tandem-viewer"),
        ("Group", None, "tandem-engineer"),
        ("Group", None, "tandem-operator"),
        ("ServiceAccount", "runner-system", "runner"),
    }
