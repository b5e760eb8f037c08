"""A CDK app without the CDK: writes the cloud assembly of a small environment by hand.

The real CLI takes it for any other app, and starts in a tenth of a second instead of five. `leaky`
puts the reservation into the Network stack too; `unprotected` forgets the termination protection.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml


def templates(name: str, document: dict[str, Any], faults: list[str]) -> dict[str, dict[str, Any]]:
    """The stacks' resources; of the real ones just what the steps of a rehearsal look at."""
    reservation = document["capacity"]["reservation_id"]
    target = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
    role = {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}}
    bucket = {
        "BucketName": f"tandem-{name}-{document['account']}",
        "VersioningConfiguration": {"Status": "Enabled"},
    }
    subnet = {
        "VpcId": {"Ref": "Vpc"},
        "CidrBlock": "10.42.0.0/20",
        "AvailabilityZoneId": "use2-az1",
    }
    cluster = {
        "Name": f"tandem-{name}",
        "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
        "ResourcesVpcConfig": {"SubnetIds": [{"Fn::ImportValue": f"{name}-Subnet"}]},
        "DeletionProtection": document["cluster"].get("deletion_protection", True),
    }
    tags = [{"Key": "leak", "Value": reservation}] if "leaky" in faults else []
    return {
        "Network": {
            "Vpc": {
                "Type": "AWS::EC2::VPC",
                "Properties": {"CidrBlock": "10.42.0.0/16", "Tags": tags},
            },
            "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": subnet},
        },
        "Artifacts": {
            "Bucket": {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Retain", "Properties": bucket}
        },
        "Cluster": {
            "Role": {"Type": "AWS::IAM::Role", "Properties": role},
            "Cluster": {"Type": "AWS::EKS::Cluster", "Properties": cluster},
        },
        "Fleet": {
            "Template": {
                "Type": "AWS::EC2::LaunchTemplate",
                "Properties": {"LaunchTemplateData": {"CapacityReservationSpecification": target}},
            }
        },
    }


def outputs(name: str, stack: str) -> dict[str, Any]:
    if stack != "Network":
        return {}
    return {"Subnet": {"Value": {"Ref": "Subnet"}, "Export": {"Name": f"{name}-Subnet"}}}


def artifact(name: str, document: dict[str, Any], stack: str, faults: list[str]) -> dict[str, Any]:
    after = {"Cluster": ["Network"], "Fleet": ["Cluster"]}.get(stack, [])
    is_protected = document.get("termination_protection", True) and "unprotected" not in faults
    return {
        "type": "aws:cloudformation:stack",
        "environment": f"aws://{document['account']}/{document['region']}",
        "properties": {
            "templateFile": f"{stack}.template.json",
            "terminationProtection": is_protected,
            "stackName": f"{name}-{stack}",
            "validateOnSynth": False,
        },
        "dependencies": after,
        "displayName": f"{name}/{stack}",
    }


def main(faults: list[str]) -> None:
    context = json.loads(os.environ["CDK_CONTEXT_JSON"])
    name = context["env"]
    out = Path(os.environ["CDK_OUTDIR"])
    environment = yaml.safe_load((Path(context["environments"]) / f"{name}.yaml").read_text())
    inner = out / f"assembly-{name}"
    inner.mkdir(parents=True, exist_ok=True)
    stacks = templates(name, environment, faults)
    for stack, resources in stacks.items():
        template = {"Resources": resources, "Outputs": outputs(name, stack)}
        (inner / f"{stack}.template.json").write_text(json.dumps(template))
    artifacts = {stack: artifact(name, environment, stack, faults) for stack in stacks}
    (inner / "manifest.json").write_text(json.dumps({"version": "55.0.0", "artifacts": artifacts}))
    properties = {"directoryName": inner.name, "displayName": name}
    assemblies = {inner.name: {"type": "cdk:cloud-assembly", "properties": properties}}
    (out / "manifest.json").write_text(json.dumps({"version": "55.0.0", "artifacts": assemblies}))


if __name__ == "__main__":
    main(sys.argv[1:])
