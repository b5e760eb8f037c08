# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""ECR's answer to a query for a missing image: an error, where MiniStack gives an empty list."""

from __future__ import annotations

from ministack.core.responses import error_response_json
from ministack.services import ecr

from .handlers import add_stack_tags


def install(_handlers: dict) -> None:
    """Wrap DescribeImages."""
    describe = ecr._describe_images

    def describe_images(data):
        name = data.get("repositoryName", "")
        absent_images = [
            image_id
            for image_id in data.get("imageIds") or []
            if ecr._find_image(name, image_id) is None
        ]
        if name in ecr._repositories and absent_images:
            message = (
                f"The image with imageId {absent_images[0]} does not exist within the repository"
                f" with name '{name}'"
            )
            return error_response_json("ImageNotFoundException", message, 400)
        return describe(data)

    ecr._describe_images = describe_images
    add_stack_tags("AWS::ECR::Repository")
