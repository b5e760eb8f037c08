"""Values that look right and would be misread later: by a registry, by git, by IAM."""

from __future__ import annotations

import pytest
from complete import ENVIRONMENT, replaced

from tandem.declarations.document import YamlDocument
from tandem.declarations.environment import Environment
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.record import parse_record

ARN = "arn:aws:iam::210987654321:role/"
MIRROR = "registry_mirrors.public.ecr.aws"


def faults(path: str, new: object) -> tuple[SpecFault, ...]:
    """Return what is wrong with the whole file after one change."""
    mirror_data = {**ENVIRONMENT, "registry_mirrors": {"public.ecr.aws": new}}
    data = mirror_data if path == MIRROR else replaced(ENVIRONMENT, path, new)
    try:
        parse_record(Environment, YamlDocument(file="home.yaml", data=data, lines={}), name="home")
    except SpecError as error:
        return error.faults
    return ()


WIDE_DIGITS = "".join(chr(0xFF10 + n % 10) for n in range(12))
REFUSALS = {
    "account": [WIDE_DIGITS, "12345678901", "12345678901a"],
    "cluster.access.admin[0]": [f"{ARN}{name}" for name in ("team/*", "A B", "", "a//b")],
    MIRROR: [
        "x.acme.dev/a/",
        "x.acme.dev//a",
        "x.acme.dev:/a",
        "https://x.acme.dev",
    ],
    "cluster.ami_release": ["1.36.2-20261314", "1.36.2-20260732"],
    "delivery.path": ["..", "a/../b", "a/./b", "/a", "a/", "a//b", "a b"],
    "delivery.revision": ["", "main branch", "-x", "main\n"],
    "hub.endpoint": [
        *[
            "http://hub.acme.dev",
            "https://hub.acme.dev/",
            "https://me:secret@hub.acme.dev",
            "https://hub.acme.dev?x=1",
        ],
        *("https://HUB.acme.dev", "hub.acme.dev", "https://hub.acme.dev/a/../b c"),
    ],
    # it stands in an ARN of an IAM policy, where * and ? would match
    "hub.token_secret": [
        "",
        "tandem hub",
        "tandem/hub-??????",
        "a" * 513,
        "t\u00f6ken",
    ],
    "observability.reference.values[0].prompt_class": ["Json", "two words", "", "c" * 33],
    "capacity.block.ends": [
        *("2026-12-08T11:30:00", "2026-12-32T11:30:00Z"),
        *(1796729400, None),
    ],
}
LEGAL_VALUES = {
    "cluster.access.admin[0]": [
        f"{ARN}Admin",
        f"{ARN}team/Admin",
        f"{ARN}aws-reserved/sso.amazonaws.com/x/SSO_x",
    ],
    MIRROR: ["x.acme.dev", "x.acme.dev:5000/a", "1.dkr.ecr.us-east-2.amazonaws.com/ecr_public/a-b"],
    "delivery.path": ["m", "manifests/home", ".deploy/home", "a/b.c/d_e"],
    "hub.endpoint": [
        "https://hub.acme.dev",
        "https://hub.acme.dev:8443/api/models-v1",
        "https://10.0.0.7",
    ],
    "capacity.block.ends": [
        "2026-12-08T11:30:00Z",
        "2026-12-08T11:30:00+00:00",
        "2026-12-08T12:30+01:00",
    ],
}


@pytest.mark.parametrize(
    ("path", "new"), [(path, new) for path, values in REFUSALS.items() for new in values]
)
def test_rejects_what_would_be_misread(path, new):
    assert [fault.path for fault in faults(path, new)] == [path]


@pytest.mark.parametrize(
    ("path", "new"), [(path, new) for path, values in LEGAL_VALUES.items() for new in values]
)
def test_takes_what_is_as_narrow_as_it_must_be(path, new):
    assert faults(path, new) == ()


def test_a_moment_that_is_none_is_told_with_an_example():
    (fault,) = faults("capacity.block.ends", "tomorrow")
    assert "2026-12-01T11:30:00Z" in fault.allowed


def test_name_of_the_file_is_offered_as_no_key():
    (fault,) = faults("gaurd", {})
    assert "name" not in fault.allowed.split(", ")
