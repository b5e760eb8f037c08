# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Launch templates with every field of the API: capacity blocks and EFA interfaces are what Fleet is about."""

from __future__ import annotations

from functools import partial

from ministack.services import ec2

from . import wire

NEEDS = {ec2: ("_lt_data_xml", "_parse_lt_data")}

_REQUEST = partial(wire.request_shape, "ec2", "CreateLaunchTemplate", "LaunchTemplateData")
_ANSWER = partial(
    wire.answer_shape, "ec2", "DescribeLaunchTemplateVersions", "LaunchTemplateVersions", "LaunchTemplateData"
)


def install(handlers: dict) -> None:
    """Parse and print launch template data by the service's own model."""
    ec2._parse_lt_data = lambda parameters, prefix="LaunchTemplateData": (
        wire.ec2_parsed(_REQUEST(), parameters, prefix) or {}
    )
    ec2._lt_data_xml = lambda data: wire.ec2_xml(_ANSWER(), data)
    kept = handlers["AWS::EC2::LaunchTemplate"]
    create, update = kept["create"], kept["update"]
    kept["create"] = lambda logical_id, properties, stack: create(logical_id, _typed(properties), stack)
    kept["update"] = lambda physical_id, old, new, stack, logical_id=None: update(
        physical_id, old, _typed(new), stack, logical_id
    )


def _typed(properties):
    data = wire.shaped(_REQUEST(), properties.get("LaunchTemplateData", {}), "LaunchTemplateData")
    return {**properties, "LaunchTemplateData": data}
