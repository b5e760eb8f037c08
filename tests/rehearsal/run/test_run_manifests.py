"""Rendered manifests in a rehearsed cluster: objects, users and what has no place there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.run.manifests import account_token, apply_manifests, build_users, read_manifests

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests/post-us-east-2"


@pytest.fixture(scope="module")
def bodies():
    return read_manifests(MANIFESTS)


def test_what_has_no_place_is_counted_by_kind(small, bodies):
    absent_kinds = apply_manifests(small.store, bodies)
    assert set(absent_kinds) == {"NetworkPolicy", "ResourceQuota"}


def test_people_of_groups_get_no_token(bodies):
    assert {token.split(":")[1] for token in build_users(bodies)} == {"runner-system"}


def test_a_cluster_role_bound_in_a_namespace_holds_there_alone():
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    account = {"kind": "ServiceAccount", "name": "a", "namespace": "n"}
    reference = {"kind": "ClusterRole", "name": "reader"}
    bodies = [
        {"kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [rule]},
        {
            "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "m"},
            "roleRef": reference,
            "subjects": [account],
        },
    ]
    user = build_users(bodies)[account_token("n", "a")]
    assert (list(user.cluster_rules), user.rules) == ([], {"m": [rule]})
