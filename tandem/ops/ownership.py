"""Owner of a resource: known by its tags, or by its name if it has none.

Invariant: a tag beats a name. A name counts only up to its last dash-separated part, and never if
it belongs to another environment: `tandem-post` is no part of `tandem-post-us-east-2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tandem.declarations import names
from tandem.guard.observe import CLUSTER_TAG
from tandem.ops.account import AccountClients, tags_of
from tandem.ops.destroy.stacks import (
    CNI_TAG,
    DELETION_ORDER,
    EKS_TAG,
    IN_TREE_TAG,
    PERMANENT_KIND,
)

STACK_KIND_PATTERN = "|".join((*DELETION_ORDER, PERMANENT_KIND))


@dataclass(frozen=True, kw_only=True)
class ResourceOwnership:
    """Marks of an environment's resources.

    Args:
        name: of the environment.
        cluster: its name.
        neighbours: names of other environments that begin like this one.
    """

    name: str
    cluster: str
    neighbours: tuple[str, ...]

    @classmethod
    def discover(cls, account: AccountClients, other_environments: Sequence[str] = ()) -> Self:
        """Return the marks that tell an environment's resources from its neighbours'.

        Args:
            account: of the environment.
            other_environments: names of other environments; deployed ones are found.

        Raises:
            ExternalError: CloudFormation does not list its stacks.
        """
        environment_names = set(other_environments)
        for row in account.list_rows("cloudformation", "DescribeStacks", "Stacks", "all stacks"):
            environment_names.add(tags_of(row.get("Tags")).get(names.OWNER_TAG, ""))
        neighbours = sorted(
            name for name in environment_names if name.startswith(f"{account.name}-")
        )
        return cls(name=account.name, cluster=account.cluster, neighbours=tuple(neighbours))

    def list_own_tags(self) -> tuple[tuple[str, str], ...]:
        """Return the tags of which any one makes a resource this environment's.

        Sources: names.OWNER_TAG; the EKS user guide (eks:cluster-name on instances,
        aws:eks:cluster-name on its security group); amazon-vpc-cni-k8s
        (cluster.k8s.amazonaws.com/name on interfaces); aws-load-balancer-controller
        (elbv2.k8s.aws/cluster); aws-ebs-csi-driver docs/tagging.md (kubernetes.io/cluster/NAME on
        volumes and snapshots), AWS's managed policy AmazonEBSCSIDriverEKSClusterScopedPolicy
        (ebs.csi.aws.com/cluster-name).
        """
        cluster_keys = (
            CLUSTER_TAG,
            EKS_TAG,
            CNI_TAG,
            "elbv2.k8s.aws/cluster",
            "ebs.csi.aws.com/cluster-name",
        )
        return (
            (names.OWNER_TAG, self.name),
            (f"{IN_TREE_TAG}{self.cluster}", "owned"),
            *((key, self.cluster) for key in cluster_keys),
        )

    def has_own_tag(self, tags: Mapping[str, str]) -> bool:
        """Whether a resource's tags make it this environment's."""
        return any(tags.get(key) == value for key, value in self.list_own_tags())

    def has_foreign_tag(self, tags: Mapping[str, str]) -> bool:
        """Whether a resource's tags make it another environment's, or another cluster's."""
        return any(tags.get(key, value) != value for key, value in self.list_own_tags())

    def owns(self, tags: Mapping[str, str], *texts: str) -> bool:
        """Whether a resource is this environment's, by its tags, else by its name."""
        return self.has_own_tag(tags) or (
            not self.has_foreign_tag(tags)
            and any(self.has_own_name(text) or self.find_stack_kind(text) for text in texts)
        )

    def has_own_name(self, name: str) -> bool:
        """Whether a name holds `tandem-ENVIRONMENT`, ended properly, and is no neighbour's.

        EKS's own interfaces and the group that EKS makes with a cluster have the names in its user
        guide.
        """
        has_name = (
            re.search(rf"(?:^|[/:])tandem-{re.escape(self.name)}(?:$|[-/])", name) is not None
        )
        is_neighbour = any(
            re.search(rf"(?:^|[/:-]){re.escape(neighbour)}(?:$|[-/])", name)
            for neighbour in self.neighbours
        )
        cluster = re.escape(self.cluster)
        is_of_eks = (
            re.fullmatch(rf"Amazon EKS {cluster}|eks-cluster-sg-{cluster}-[0-9]+", name) is not None
        )
        return is_of_eks or (has_name and not is_neighbour)

    def find_stack_kind(self, name: str) -> str:
        """Return the kind of stack whose name CloudFormation generated; "" for another name."""
        match = re.search(
            rf"(?:^|[/:]){re.escape(self.name)}-({STACK_KIND_PATTERN})(?:$|[-/])", name
        )
        return match[1] if match else ""

    def mentions_environment(self, texts: Iterable[str]) -> bool:
        """Whether a field of a resource names this environment's namespace, cluster or topic."""
        namespaces = {
            f"Tandem/{self.name}",
            f"Tandem/Guard/{self.name}",
            f"Tandem/Simulated/{self.name}",
        }
        return any(self.has_own_name(text) or text in namespaces for text in texts)
