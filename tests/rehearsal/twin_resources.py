"""Resource definitions that several tests of the endpoint deploy."""

from __future__ import annotations

NETWORK = {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}}}
TRUST = {"Version": "2012-10-17", "Statement": []}
ROLE = {"Role": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": TRUST}}}


def subnet(**more):
    return {
        "Type": "AWS::EC2::Subnet",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.0.0/20", **more},
    }


def cluster(name, **more):
    return {
        **NETWORK,
        **ROLE,
        "Subnet": subnet(AvailabilityZoneId="use2-az1"),
        "Cluster": {
            "Type": "AWS::EKS::Cluster",
            "Properties": {
                "Name": name,
                "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                "ResourcesVpcConfig": {"SubnetIds": [{"Ref": "Subnet"}]},
                **more,
            },
        },
    }


def nodegroup(name, **more):
    return {
        **cluster(name),
        "Nodes": {
            "Type": "AWS::EKS::Nodegroup",
            "Properties": {
                "ClusterName": {"Ref": "Cluster"},
                "NodegroupName": "fleet",
                "NodeRole": {"Fn::GetAtt": ["Role", "Arn"]},
                "Subnets": [{"Ref": "Subnet"}],
                "ScalingConfig": {"MinSize": 0, "DesiredSize": 0, "MaxSize": 2},
                **more,
            },
        },
    }


def launch_template(reservation):
    data = {
        "InstanceType": "trn2.48xlarge",
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": {
            "CapacityReservationTarget": {"CapacityReservationId": reservation}
        },
    }
    return {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}}
