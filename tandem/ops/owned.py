"""Whose a resource is: told by its tags, and by its name where it has none.

Invariant: a tag beats a name. A name counts only up to its last dash-separated part, and never where it is that of
another environment: `tandem-post` is no part of `tandem-post-us-east-2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tandem.ops.destroy.account import Account, tags_of
from tandem.ops.destroy.stacks import DESCRIBED, ORDER, STAYS
from tandem.spec import names
from tandem.stop import CLUSTER_TAG

KINDS = "|".join((*ORDER, STAYS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What tells an environment's resources.

    Args:
        name: of the environment.
        cluster: its name.
        others: names of other environments that begin like this one.
    """

    name: str
    cluster: str
    others: tuple[str, ...]

    @classmethod
    def of(cls, account: Account, declared: Sequence[str] = ()) -> Self:
        """Return what tells an environment's resources from those of its neighbours in the same account.

        Args:
            account: of the environment.
            declared: names of other environments; those that are deployed are found.

        Raises:
            OpsError: CloudFormation does not list its stacks.
        """
        rows = account.pages("cloudformation", "DescribeStacks", "Stacks", "all stacks")
        deployed = [
            tags_of(row.get("Tags")).get(names.OWNER_TAG) or str(row["StackName"]).rpartition("-")[0]
            for row in rows
            if names.OWNER_TAG in tags_of(row.get("Tags")) or str(row.get("Description", "")).startswith(DESCRIBED)
        ]
        longer = {one for one in (*deployed, *declared) if one.startswith(f"{account.name}-")}
        return cls(name=account.name, cluster=account.cluster, others=tuple(sorted(longer)))

    def marks(self) -> tuple[tuple[str, str], ...]:
        """Return the tags of which any one makes a resource this environment's.

        Sources: names.OWNER_TAG; the EKS user guide (eks:cluster-name on instances, aws:eks:cluster-name on its
        security group); amazon-vpc-cni-k8s (cluster.k8s.amazonaws.com/name on interfaces);
        aws-load-balancer-controller (elbv2.k8s.aws/cluster); aws-ebs-csi-driver docs/tagging.md
        (kubernetes.io/cluster/NAME on volumes and snapshots), AWS's managed policy
        AmazonEBSCSIDriverEKSClusterScopedPolicy (ebs.csi.aws.com/cluster-name).
        """
        return (
            (names.OWNER_TAG, self.name), (CLUSTER_TAG, self.cluster), ("aws:eks:cluster-name", self.cluster),
            ("cluster.k8s.amazonaws.com/name", self.cluster), (f"kubernetes.io/cluster/{self.cluster}", "owned"),
            ("elbv2.k8s.aws/cluster", self.cluster), ("ebs.csi.aws.com/cluster-name", self.cluster),
        )  # fmt: skip

    def tagged(self, tags: Mapping[str, str]) -> bool:
        """Whether a resource's tags make it this environment's."""
        return any(tags.get(key) == value for key, value in self.marks())

    def strange(self, tags: Mapping[str, str]) -> bool:
        """Whether a resource's tags make it another environment's, or another cluster's."""
        return any(tags.get(key, value) != value for key, value in self.marks())

    def named(self, name: str) -> bool:
        """Whether a name holds `tandem-ENVIRONMENT`, alone or before a dash or a slash."""
        found = re.search(rf"(?:^|[/:])tandem-{re.escape(self.name)}(?:$|[-/])", name) is not None
        return found and not self._anothers(name)

    def generated(self, name: str) -> str:
        """Return the kind of stack for which CloudFormation generated a name; "" where it is no such name."""
        found = re.search(rf"(?:^|/){re.escape(self.name)}-({KINDS})(?:$|[-/])", name)
        return found[1] if found else ""

    def _anothers(self, name: str) -> bool:
        return any(re.search(rf"(?:^|[/:-]){re.escape(one)}(?:$|[-/])", name) for one in self.others)

    def speaks(self, texts: Iterable[str]) -> bool:
        """Whether one of a resource's own fields names this environment's namespace, cluster or topic."""
        spaces = {f"Tandem/{self.name}", f"Tandem/Guard/{self.name}", f"Tandem/Simulated/{self.name}"}
        return any(self.named(text) or text in spaces for text in texts)
