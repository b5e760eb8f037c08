"""A node group at an endpoint, and what AWS says of it."""

from __future__ import annotations

from twin_looking import client, until


class TwinFleet:
    """A node group of a cluster."""

    def __init__(self, endpoint, cluster, group="fleet"):
        self.endpoint, self.name = endpoint, cluster
        self.eks, self.ec2, self.scaling = (
            client(endpoint, service) for service in ("eks", "ec2", "autoscaling")
        )
        self.identity = {"clusterName": cluster, "nodegroupName": group}

    def make(self, size=0, **fields):
        """Make role, cluster and node group."""
        role = client(self.endpoint, "iam").create_role(
            RoleName=f"{self.name}-eks", AssumeRolePolicyDocument="{}"
        )["Role"]["Arn"]
        self.eks.create_cluster(name=self.name, roleArn=role, resourcesVpcConfig={})
        return self.add_group(role, size, **fields)

    def add_group(self, role, size=0, **fields):
        """Make the node group of a cluster that is there."""
        self.eks.create_nodegroup(
            **self.identity,
            subnets=["subnet-1"],
            nodeRole=role,
            scalingConfig={"minSize": 0, "desiredSize": size, "maxSize": 2},
            **fields,
        )
        return self

    def scale(self, size):
        sizes = {"desiredSize": size}
        return self.eks.update_nodegroup_config(**self.identity, scalingConfig=sizes)["update"]

    def raise_to(self, size):
        self.scale(size)
        assert until(self.states, ["running"] * size) == ["running"] * size

    def instances(self):
        own = [
            {"Name": "tag:eks:cluster-name", "Values": [self.name]},
            {"Name": "tag:eks:nodegroup-name", "Values": [self.identity["nodegroupName"]]},
        ]
        reservations = self.ec2.describe_instances(Filters=own)["Reservations"]
        return [instance for row in reservations for instance in row["Instances"]]

    def states(self):
        """Return the states of the instances, those that are terminated left out."""
        states = [instance["State"]["Name"] for instance in self.instances()]
        return sorted(state for state in states if state != "terminated")

    def describe(self):
        return self.eks.describe_nodegroup(**self.identity)["nodegroup"]

    def size(self):
        return self.describe()["scalingConfig"]["desiredSize"]

    def group_name(self):
        return self.describe()["resources"]["autoScalingGroups"][0]["name"]
