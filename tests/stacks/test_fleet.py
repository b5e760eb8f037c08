"""Fleet: scarce nodes in one place, zero of them until somebody raises them."""

from __future__ import annotations

from email import message_from_string
from typing import Any

import pytest
from assemblies import RESERVATION, Template, Templates, inputs, one, resources

from tandem.guard.observe import CAPACITY_KIND_TAG

pytestmark = pytest.mark.cdk

KINDS = ["capacity-block", "reservation", "spot", "on-demand"]


def group(stacks: Templates, variant: str = "capacity-block") -> dict[str, Any]:
    return one(stacks[f"{variant}-Fleet"], "AWS::EKS::Nodegroup")


def launch(stacks: Templates, variant: str = "capacity-block") -> dict[str, Any]:
    data: dict[str, Any] = one(stacks[f"{variant}-Fleet"], "AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    return data


@pytest.mark.parametrize("variant", KINDS)
def test_no_deploy_starts_a_node(stacks: Templates, variant: str) -> None:
    assert group(stacks, variant)["ScalingConfig"] == {"MinSize": 0, "DesiredSize": 0, "MaxSize": 1}


@pytest.mark.parametrize(
    ("variant", "capacity_type"),
    [("capacity-block", "CAPACITY_BLOCK"), ("reservation", "ON_DEMAND"), ("spot", "SPOT"), ("on-demand", "ON_DEMAND")],
)
def test_the_capacity_type_follows_the_kind(stacks: Templates, variant: str, capacity_type: str) -> None:
    assert group(stacks, variant)["CapacityType"] == capacity_type


@pytest.mark.parametrize("variant", KINDS)
def test_the_node_group_carries_its_kind_of_capacity_for_the_guard(stacks: Templates, variant: str) -> None:
    """Fleet may be deployed with another kind than Guard."""
    assert group(stacks, variant)["Tags"][CAPACITY_KIND_TAG] == variant


@pytest.mark.parametrize(
    ("variant", "market"), [("capacity-block", {"MarketType": "capacity-block"}), *((kind, None) for kind in KINDS[1:])]
)
def test_only_a_capacity_block_is_a_market_of_its_own(stacks: Templates, variant: str, market: object) -> None:
    assert launch(stacks, variant).get("InstanceMarketOptions") == market


@pytest.mark.parametrize("variant", ["capacity-block", "reservation"])
def test_a_reservation_is_targeted(stacks: Templates, variant: str) -> None:
    target = launch(stacks, variant)["CapacityReservationSpecification"]["CapacityReservationTarget"]

    assert target == {"CapacityReservationId": RESERVATION}


@pytest.mark.parametrize("variant", ["spot", "on-demand"])
def test_bought_capacity_targets_no_reservation(stacks: Templates, variant: str) -> None:
    assert "CapacityReservationSpecification" not in launch(stacks, variant)


@pytest.mark.parametrize("variant", ["post-us-east-2", "native-us-east-2", "no-reservation"])
def test_without_a_reservation_there_is_no_fleet(stacks: Templates, variant: str) -> None:
    assert f"{variant}-Fleet" not in stacks


def test_spot_needs_no_reservation(stacks: Templates) -> None:
    assert "dev-trn2-3xlarge-Fleet" in stacks


def test_the_nodes_stand_in_the_one_zone(stacks: Templates) -> None:
    (subnet,) = group(stacks)["Subnets"]

    assert subnet == {"Fn::ImportValue": "capacity-block-Network-Subnet-use2-az3"}


def test_in_an_existing_network_too(stacks: Templates) -> None:
    assert group(stacks, "customer-keys")["Subnets"] == ["subnet-0000000000000000b"]


def test_the_instance_type_stands_in_the_template_only(stacks: Templates) -> None:
    assert launch(stacks)["InstanceType"] == "trn2.48xlarge"
    assert "InstanceTypes" not in group(stacks)


def test_the_images_release_is_pinned(stacks: Templates) -> None:
    assert group(stacks)["ReleaseVersion"] == inputs().catalogue.kubernetes.minors["1.36"].ami_release.value


@pytest.mark.parametrize("stack", ["capacity-block-Fleet", "capacity-block-Cluster"])
def test_no_node_accepts_the_old_metadata_service(stacks: Templates, stack: str) -> None:
    data = one(stacks[stack], "AWS::EC2::LaunchTemplate")["LaunchTemplateData"]

    assert data["MetadataOptions"]["HttpTokens"] == "required"


@pytest.mark.parametrize(("stack", "hops"), [("capacity-block-Fleet", 2), ("capacity-block-Cluster", 1)])
def test_only_accelerator_pods_reach_the_metadata_service(stacks: Templates, stack: str, hops: int) -> None:
    data = one(stacks[stack], "AWS::EC2::LaunchTemplate")["LaunchTemplateData"]

    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == hops


@pytest.mark.parametrize("stack", ["capacity-block-Fleet", "capacity-block-Cluster"])
def test_every_nodes_root_is_encrypted(stacks: Templates, stack: str) -> None:
    (mapping,) = one(stacks[stack], "AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["BlockDeviceMappings"]

    assert (mapping["Ebs"]["Encrypted"], mapping["Ebs"]["VolumeType"]) == (True, "gp3")


def user_data(stacks: Templates) -> str:
    text: str = launch(stacks)["UserData"]["Fn::Base64"]
    return text


def test_user_data_is_one_part_that_nodeadm_reads(stacks: Templates) -> None:
    message = message_from_string(user_data(stacks))

    assert [part.get_content_type() for part in message.walk()][1:] == ["application/node.eks.aws"]


def test_nobody_logs_in(stacks: Templates) -> None:
    assert "KeyName" not in launch(stacks)
    assert "RemoteAccess" not in group(stacks)


def test_without_efa_the_node_group_brings_its_own_interface(stacks: Templates) -> None:
    assert "NetworkInterfaces" not in launch(stacks)


def efa(stacks: Templates) -> Template:
    return stacks["efa-Fleet"]


def test_efa_uses_every_card(stacks: Templates) -> None:
    cards = [card["NetworkCardIndex"] for card in launch(stacks, "efa")["NetworkInterfaces"]]

    assert cards == list(range(16))


def test_only_the_first_efa_card_carries_ip(stacks: Templates) -> None:
    kinds = [(card["DeviceIndex"], card["InterfaceType"]) for card in launch(stacks, "efa")["NetworkInterfaces"]]

    assert kinds == [(0, "efa"), *[(1, "efa-only")] * 15]


def test_efa_interfaces_keep_the_clusters_group(stacks: Templates) -> None:
    cluster = {"Fn::ImportValue": "efa-Cluster-SecurityGroupId"}

    assert all(cluster in card["Groups"] for card in launch(stacks, "efa")["NetworkInterfaces"])


@pytest.mark.parametrize(
    ("type_", "other"),
    [
        ("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ],
)
def test_the_efa_group_knows_itself_only(stacks: Templates, type_: str, other: str) -> None:
    rule = one(efa(stacks), type_)

    assert rule["GroupId"] == rule[other]
    assert "CidrIp" not in rule


def test_bought_efa_nodes_stand_close_together(stacks: Templates) -> None:
    assert one(stacks["efa-on-demand-Fleet"], "AWS::EC2::PlacementGroup")["Strategy"] == "cluster"
    assert "Placement" in launch(stacks, "efa-on-demand")


def test_a_reservation_fixes_its_own_placement(stacks: Templates) -> None:
    assert resources(efa(stacks), "AWS::EC2::PlacementGroup") == []


def test_no_template_installs_a_device_plugin(stacks: Templates) -> None:
    holders = [name for name, template in stacks.items() if "k8s-neuron-device-plugin" in str(template)]

    assert holders == []
