"""Tags that the stage's own do not reach, or that differ by resource.

Invariant: a Name is given with the resource; an aspect for each would be a walk over the tree for one word.
"""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import CfnTag
from aws_cdk import aws_ec2 as ec2

_Template = ec2.CfnLaunchTemplate


def name_tags(name: str) -> list[CfnTag]:
    """Return the tag that the console shows as a resource's name."""
    return [CfnTag(key="Name", value=name)]


def template_tags(tags: Mapping[str, str], name: str) -> list[_Template.LaunchTemplateTagSpecificationProperty]:
    """Return the tags of a launch template itself, which the CDK's own tagging does not reach."""
    return [
        _Template.LaunchTemplateTagSpecificationProperty(resource_type="launch-template", tags=_list_tags(tags, name))
    ]


def instance_tags(tags: Mapping[str, str], name: str) -> list[_Template.TagSpecificationProperty]:
    """Return the tags of what a launch template starts."""
    return [
        _Template.TagSpecificationProperty(resource_type=kind, tags=_list_tags(tags, name))
        for kind in ("instance", "volume", "network-interface")
    ]


def _list_tags(tags: Mapping[str, str], name: str) -> list[CfnTag]:
    return [CfnTag(key=key, value=value) for key, value in sorted({"Name": name, **tags}.items())]
