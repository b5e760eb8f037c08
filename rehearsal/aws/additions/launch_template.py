# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Launch templates with every API field: Fleet needs Capacity Blocks and EFA interfaces."""

from __future__ import annotations

from functools import partial

from ministack.services import ec2

from . import service_model
from .handlers import wrap_changes

_REQUEST_SHAPE = partial(
    service_model.request_shape, "ec2", "CreateLaunchTemplate", "LaunchTemplateData"
)
_ANSWER_SHAPE = partial(
    service_model.answer_shape,
    "ec2",
    "DescribeLaunchTemplateVersions",
    "LaunchTemplateVersions",
    "LaunchTemplateData",
)


def install(handlers: dict) -> None:
    """Parse and print launch template data by the service's own model."""
    ec2._parse_lt_data = lambda parameters, prefix="LaunchTemplateData": (
        service_model.parse_ec2_parameters(_REQUEST_SHAPE(), parameters, prefix) or {}
    )
    ec2._lt_data_xml = lambda data: service_model.format_ec2_xml(_ANSWER_SHAPE(), data)
    wrap_changes(handlers["AWS::EC2::LaunchTemplate"], before=_convert_types)


def _convert_types(properties):
    data = service_model.convert_value(
        _REQUEST_SHAPE(), properties.get("LaunchTemplateData", {}), "LaunchTemplateData"
    )
    return {**properties, "LaunchTemplateData": data}
