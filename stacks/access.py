"""Who may do what in the cluster: access entries for the four kinds of people.

Invariant: a principal has one entry; a rule refuses to name one twice, because EKS would. No experiment is named:
an engineer's scope is the start of every experiment's namespace (EKS user guide, "Associate access policies with access
entries": a namespace's name may hold wildcards), so another experiment changes no entry.
"""

from __future__ import annotations

from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from stacks.place import Place
from tandem.spec.environment import Access
from tandem.spec.names import NAMESPACE_PREFIX

_Policy = eks.CfnAccessEntry.AccessPolicyProperty
_Scope = eks.CfnAccessEntry.AccessScopeProperty


class AccessEntries(Construct):
    """One entry per principal."""

    def __init__(self, scope: Construct, id_: str, *, cluster_name: str, access: Access, place: Place) -> None:
        super().__init__(scope, id_)
        for people, policy, where in (
            (access.admin, "AmazonEKSClusterAdminPolicy", everywhere()),
            (access.operator, "AmazonEKSEditPolicy", everywhere()),  # AdminPolicy would let them grant rights
            (access.engineer, "AmazonEKSEditPolicy", experiments()),
            (access.viewer, "AmazonEKSViewPolicy", everywhere()),
        ):
            for principal in people:
                eks.CfnAccessEntry(
                    self, principal.partition(":iam::")[2].replace("/", ":"), cluster_name=cluster_name,
                    principal_arn=principal, type="STANDARD", access_policies=[access_policy(place, policy, where)],
                )  # fmt: skip


def everywhere() -> _Scope:
    """Return the scope of the whole cluster."""
    return _Scope(type="cluster")


def experiments() -> _Scope:
    """Return the scope of every experiment's namespace, also of those to come."""
    return _Scope(type="namespace", namespaces=[f"{NAMESPACE_PREFIX}*"])


def access_policy(place: Place, name: str, where: _Scope) -> _Policy:
    """Return one of EKS's own access policies, by name."""
    return _Policy(policy_arn=place.access_policy(name), access_scope=where)
