"""The tools image's repository, its build, and the image itself, as ECR and CodeBuild describe them."""

from __future__ import annotations

from tandem.twin.aws.describe.form import Client, Describe, Properties, one, pascal


def _repository(client: Client, physical_id: str, _properties: Properties) -> Properties:
    ecr = client("ecr")
    found = one(ecr.describe_repositories(repositoryNames=[physical_id])["repositories"], physical_id)
    policy = ecr.get_lifecycle_policy(repositoryName=physical_id)["lifecyclePolicyText"]
    described: Properties = pascal(found)
    return {
        **described,
        "Arn": found["repositoryArn"],
        "LifecyclePolicy": {"LifecyclePolicyText": policy},
        "Tags": ecr.list_tags_for_resource(resourceArn=found["repositoryArn"])["tags"],
    }


def _project(client: Client, physical_id: str, _properties: Properties) -> Properties:
    found = one(client("codebuild").batch_get_projects(names=[physical_id])["projects"], physical_id)
    described: Properties = pascal(found)
    return {**described, "Source": {**described["Source"], "BuildSpec": found["source"].get("buildspec")}}


def _image(client: Client, _physical_id: str, properties: Properties) -> Properties:
    """The image as the repository has it, and the two that stand behind it."""
    wanted = {"repositoryName": properties["Repository"], "imageIds": [{"imageTag": properties["Tag"]}]}
    found = one(client("ecr").describe_images(**wanted)["imageDetails"], properties["Tag"])
    function = client("lambda").get_function_configuration(FunctionName=properties["ServiceToken"])
    return {
        "Repository": found["repositoryName"],
        "Tag": one([tag for tag in found["imageTags"] if tag == properties["Tag"]], properties["Tag"]),
        "Project": _project(client, properties["Project"], {})["Name"],
        "ServiceToken": function["FunctionArn"],
    }


DESCRIBE: dict[str, Describe] = {
    "AWS::ECR::Repository": _repository,
    "AWS::CodeBuild::Project": _project,
    "Custom::TandemToolsImage": _image,
}
