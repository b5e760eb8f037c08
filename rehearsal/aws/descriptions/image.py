"""The images' repositories, builds, and the images, as ECR and CodeBuild describe them."""

from __future__ import annotations

from rehearsal.aws.descriptions.conversion import (
    ClientFactory,
    DescribeFunction,
    Properties,
    require_single,
    to_pascal_case,
)


def _describe_repository(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    ecr = client("ecr")
    repository = require_single(
        ecr.describe_repositories(repositoryNames=[physical_id])["repositories"], physical_id
    )
    policy = ecr.get_lifecycle_policy(repositoryName=physical_id)["lifecyclePolicyText"]
    description: Properties = to_pascal_case(repository)
    return {
        **description,
        "Arn": repository["repositoryArn"],
        "LifecyclePolicy": {"LifecyclePolicyText": policy},
        "Tags": ecr.list_tags_for_resource(resourceArn=repository["repositoryArn"])["tags"],
    }


def _describe_project(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    project = require_single(
        client("codebuild").batch_get_projects(names=[physical_id])["projects"], physical_id
    )
    description: Properties = to_pascal_case(project)
    return {
        **description,
        "Source": {**description["Source"], "BuildSpec": project["source"].get("buildspec")},
    }


def _describe_image(client: ClientFactory, _physical_id: str, properties: Properties) -> Properties:
    """Describe the image as the repository has it, with the project and the function behind it."""
    query = {
        "repositoryName": properties["Repository"],
        "imageIds": [{"imageTag": properties["Tag"]}],
    }
    image = require_single(
        client("ecr").describe_images(**query)["imageDetails"], properties["Tag"]
    )
    function = client("lambda").get_function_configuration(FunctionName=properties["ServiceToken"])
    return {
        "Repository": image["repositoryName"],
        "Tag": require_single(
            [tag for tag in image["imageTags"] if tag == properties["Tag"]], properties["Tag"]
        ),
        "Project": _describe_project(client, properties["Project"], {})["Name"],
        "ServiceToken": function["FunctionArn"],
    }


DESCRIBE: dict[str, DescribeFunction] = {
    "AWS::ECR::Repository": _describe_repository,
    "AWS::CodeBuild::Project": _describe_project,
    "Custom::TandemImage": _describe_image,
}
