# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""ECR's answer to who asks for an image that is not there: an error, where MiniStack gives an empty list."""

from __future__ import annotations

from ministack.core.responses import error_response_json
from ministack.services import ecr

from .handlers import taggable

NEEDS = {ecr: ("_describe_images", "_find_image", "_repositories")}


def install(_handlers: dict) -> None:
    """Wrap DescribeImages."""
    describe = ecr._describe_images

    def described(data):
        name = data.get("repositoryName", "")
        missing = [found for found in data.get("imageIds") or [] if ecr._find_image(name, found) is None]
        if name in ecr._repositories and missing:
            said = f"The image with imageId {missing[0]} does not exist within the repository with name '{name}'"
            return error_response_json("ImageNotFoundException", said, 400)
        return describe(data)

    ecr._describe_images = described
    taggable("AWS::ECR::Repository")
