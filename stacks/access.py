"""Who may do what in the cluster: access entries for the four kinds of people.

Invariant: a principal has one entry; a rule refuses to name one twice, because EKS would. An admin has EKS's own
policy, which works from the first minute. The others have a Kubernetes group each and no policy: what a group may do is
rendered (charts/people.py), and until that is applied it may do nothing. No experiment is named, so another changes no
entry.
"""

from __future__ import annotations

from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from stacks.place import Place
from tandem.ops.people.cluster_rights import CLUSTER_KINDS, name_group
from tandem.spec.environment import Access

_Policy = eks.CfnAccessEntry.AccessPolicyProperty
_Scope = eks.CfnAccessEntry.AccessScopeProperty


class AccessEntries(Construct):
    """One entry per principal."""

    def __init__(self, scope: Construct, id_: str, *, cluster_name: str, access: Access, place: Place) -> None:
        super().__init__(scope, id_)

        def enter(principal: str, policies: list[_Policy] | None, groups: list[str] | None) -> None:
            eks.CfnAccessEntry(
                self, principal.partition(":iam::")[2].replace("/", ":"), cluster_name=cluster_name,
                principal_arn=principal, type="STANDARD", access_policies=policies, kubernetes_groups=groups,
            )  # fmt: skip

        for principal in access.admin:
            enter(principal, [access_policy(place, "AmazonEKSClusterAdminPolicy", everywhere())], None)
        for kind in CLUSTER_KINDS:
            for principal in getattr(access, kind):
                enter(principal, None, [name_group(kind)])


def everywhere() -> _Scope:
    """Return the scope of the whole cluster."""
    return _Scope(type="cluster")


def access_policy(place: Place, name: str, where: _Scope) -> _Policy:
    """Return one of EKS's own access policies, by name."""
    return _Policy(policy_arn=place.access_policy(name), access_scope=where)
