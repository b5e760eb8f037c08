"""Who may do what in the cluster: access entries for the four kinds of people.

Invariant: a principal has one entry; a rule refuses to name one twice, because EKS would. An admin has EKS's own
policy, which works from the first minute. The others have a Kubernetes group each and no policy: what a group may do is
rendered (charts/people.py), and until that is applied it may do nothing. No experiment is named, so another changes no
entry.
"""

from __future__ import annotations

from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from stacks.aws_location import AwsLocation
from tandem.ops.people.cluster_rights import CLUSTER_KINDS, kubernetes_group
from tandem.spec.environment import ClusterAccess

_Policy = eks.CfnAccessEntry.AccessPolicyProperty
_Scope = eks.CfnAccessEntry.AccessScopeProperty


class AccessEntries(Construct):
    """One entry per principal."""

    def __init__(
        self, scope: Construct, id_: str, *, cluster_name: str, access: ClusterAccess, location: AwsLocation
    ) -> None:
        super().__init__(scope, id_)

        def add_entry(principal: str, policies: list[_Policy] | None, groups: list[str] | None) -> None:
            eks.CfnAccessEntry(
                self, principal.partition(":iam::")[2].replace("/", ":"), cluster_name=cluster_name,
                principal_arn=principal, type="STANDARD", access_policies=policies, kubernetes_groups=groups,
            )  # fmt: skip

        for principal in access.admin:
            add_entry(principal, [access_policy(location, "AmazonEKSClusterAdminPolicy", cluster_scope())], None)
        for kind in CLUSTER_KINDS:
            for principal in getattr(access, kind):
                add_entry(principal, None, [kubernetes_group(kind)])


def cluster_scope() -> _Scope:
    """Return the scope of the whole cluster."""
    return _Scope(type="cluster")


def access_policy(location: AwsLocation, name: str, access_scope: _Scope) -> _Policy:
    """Return one of EKS's own access policies, by name."""
    return _Policy(policy_arn=location.access_policy_arn(name), access_scope=access_scope)
