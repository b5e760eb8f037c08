"""Fleet: scarce nodes in one place, zero of them until somebody raises them."""

from __future__ import annotations

from email import message_from_string
from typing import Any

import pytest
from assemblies import RESERVATION, Template, Templates, one, resources

pytestmark = pytest.mark.cdk

KINDS = ["capacity-block", "reservation", "spot", "on-demand"]


def group(stacks: Templates, variant: str = "capacity-block") -> dict[str, Any]:
    return one(stacks[f"{variant}-Fleet"], "AWS::EKS::Nodegroup")


def launch(stacks: Templates, variant: str = "capacity-block") -> dict[str, Any]:
    data: dict[str, Any] = one(stacks[f"{variant}-Fleet"], "AWS::EC2::LaunchTemplate")[
        "LaunchTemplateData"
    ]
    return data


@pytest.mark.parametrize("variant", KINDS)
def test_no_deploy_starts_a_node(stacks: Templates, variant: str) -> None:
    assert group(stacks, variant)["ScalingConfig"] == {"MinSize": 0, "DesiredSize": 0, "MaxSize": 1}


@pytest.mark.parametrize(
    ("variant", "capacity_type"),
    [
        ("capacity-block", "CAPACITY_BLOCK"),
        ("reservation", "ON_DEMAND"),
        ("spot", "SPOT"),
        ("on-demand", "ON_DEMAND"),
    ],
)
def test_the_capacity_type_follows_the_kind(
    stacks: Templates, variant: str, capacity_type: str
) -> None:
    assert group(stacks, variant)["CapacityType"] == capacity_type


def test_only_a_capacity_block_is_a_market_of_its_own(stacks: Templates) -> None:
    markets = [launch(stacks, kind).get("InstanceMarketOptions") for kind in KINDS]
    assert markets == [{"MarketType": "capacity-block"}, None, None, None]


@pytest.mark.parametrize("variant", ["capacity-block", "reservation"])
def test_a_reservation_is_targeted(stacks: Templates, variant: str) -> None:
    target = launch(stacks, variant)["CapacityReservationSpecification"][
        "CapacityReservationTarget"
    ]
    assert target == {"CapacityReservationId": RESERVATION}


@pytest.mark.parametrize(
    ("variant", "id_"),
    [
        ("capacity-block", RESERVATION),
        ("reservation", RESERVATION),
        ("spot", None),
        ("on-demand", None),
    ],
)
def test_the_node_group_names_the_reservation_that_is_deployed(
    stacks: Templates, variant: str, id_: str | None
) -> None:
    assert group(stacks, variant)["Tags"].get("tandem:reservation") == id_


@pytest.mark.parametrize("variant", ["post-us-east-2", "native-us-east-2", "no-reservation"])
def test_without_a_reservation_there_is_no_fleet(stacks: Templates, variant: str) -> None:
    assert f"{variant}-Fleet" not in stacks


def test_the_nodes_stand_in_the_one_zone(stacks: Templates) -> None:
    (subnet,) = group(stacks)["Subnets"]
    assert subnet == {"Fn::ImportValue": "capacity-block-Network-Subnet-use2-az3"}


def test_the_instance_type_stands_in_the_template_only(stacks: Templates) -> None:
    assert launch(stacks)["InstanceType"] == "trn2.48xlarge"
    assert "InstanceTypes" not in group(stacks)


@pytest.mark.parametrize(
    ("stack", "hops"), [("capacity-block-Fleet", 2), ("capacity-block-Cluster", 1)]
)
def test_nodes_are_closed_and_only_accelerator_pods_reach_the_metadata_service(
    stacks: Templates, stack: str, hops: int
) -> None:
    data = one(stacks[stack], "AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    (mapping,) = data["BlockDeviceMappings"]

    options = data["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", hops)
    assert (mapping["Ebs"]["Encrypted"], "KeyName" in data) == (True, False)


def user_data(stacks: Templates) -> str:
    text: str = launch(stacks)["UserData"]["Fn::Base64"]
    return text


def test_user_data_is_one_part_that_nodeadm_reads(stacks: Templates) -> None:
    message = message_from_string(user_data(stacks))
    assert [part.get_content_type() for part in message.walk()][1:] == ["application/node.eks.aws"]


def test_a_node_group_holds_no_taint_that_a_driver_removes(stacks: Templates) -> None:
    taint = {"Key": "aws.amazon.com/neuron", "Value": "present", "Effect": "NO_SCHEDULE"}
    assert group(stacks)["Taints"] == [taint]


def test_the_nodes_get_the_image_that_the_environment_names(stacks: Templates) -> None:
    assert group(stacks)["ReleaseVersion"] == "1.36.2-20260625"


def efa(stacks: Templates) -> Template:
    return stacks["efa-Fleet"]


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
    holders = [
        name for name, template in stacks.items() if "k8s-neuron-device-plugin" in str(template)
    ]
    assert holders == []
