"""Values that look right and would be misread later: by a registry, by git, by IAM."""

from __future__ import annotations

import pytest
from complete import ENVIRONMENT

from tandem.spec.document import YamlDocument
from tandem.spec.environment import Environment
from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.record import parse_record

GITOPS = {
    "kind": "gitops", "repo_url": "https://git.acme.dev/x.git", "revision": "main", "path": "manifests/home",
    "tool": "flux", "namespace": "flux-system",
}  # fmt: skip


def faults(**changes: object) -> tuple[SpecFault, ...]:
    document = YamlDocument(file="home.yaml", data={**ENVIRONMENT, **changes}, lines={})
    try:
        parse_record(Environment, document, name="home")
    except SpecError as error:
        return error.faults
    return ()


@pytest.mark.parametrize(
    "account", ["".join(chr(0xFF10 + n % 10) for n in range(12)), "12345678901", "1234567890123", "12345678901a"]
)
def test_an_account_is_twelve_ascii_digits(account: str) -> None:
    assert [fault.path for fault in faults(account=account)] == ["account"]


@pytest.mark.parametrize("name", ["*", "A B", "team/*", "", "team/", "a//b"])
def test_a_principal_is_one_role_or_user(name: str) -> None:
    access = {"admin": [f"arn:aws:iam::210987654321:role/{name}"]}

    found = faults(cluster={**ENVIRONMENT["cluster"], "access": access})

    assert [fault.path for fault in found] == ["cluster.access.admin[0]"]


@pytest.mark.parametrize("name", ["Admin", "team/Admin", "aws-reserved/sso.amazonaws.com/us-east-2/AWSReservedSSO_x"])
def test_a_principal_may_have_a_path(name: str) -> None:
    access = {"admin": [f"arn:aws:iam::210987654321:role/{name}"]}

    assert faults(cluster={**ENVIRONMENT["cluster"], "access": access}) == ()


@pytest.mark.parametrize(
    "mirror", ["x.acme.dev/", "x.acme.dev/a/", "x.acme.dev//a", "x.acme.dev:/a", "https://x.acme.dev"]
)
def test_a_mirror_is_the_start_of_an_image_name(mirror: str) -> None:
    assert [fault.path for fault in faults(registry_mirrors={"public.ecr.aws": mirror})] == [
        "registry_mirrors.public.ecr.aws"
    ]


@pytest.mark.parametrize(
    "mirror", ["x.acme.dev", "x.acme.dev:5000/a", "1.dkr.ecr.us-east-2.amazonaws.com/ecr_public/a-b"]
)
def test_a_mirror_may_have_port_and_path(mirror: str) -> None:
    assert faults(registry_mirrors={"public.ecr.aws": mirror}) == ()


@pytest.mark.parametrize("path", ["..", "../x", "a/../b", "a/./b", "/a", "a/", "a//b", "a b", "."])
def test_a_path_stays_inside_its_repository(path: str) -> None:
    assert [fault.path for fault in faults(delivery={**GITOPS, "path": path})] == ["delivery.path"]


@pytest.mark.parametrize("path", ["m", "manifests/home", ".deploy/home", "a/b.c/d_e"])
def test_a_path_is_a_relative_folder(path: str) -> None:
    assert faults(delivery={**GITOPS, "path": path}) == ()


@pytest.mark.parametrize("revision", ["", " ", "main branch", "-x", "main\n"])
def test_a_revision_is_one_word(revision: str) -> None:
    assert [fault.path for fault in faults(delivery={**GITOPS, "revision": revision})] == ["delivery.revision"]


def test_a_name_that_the_file_gives_is_not_offered_as_a_key() -> None:
    (fault,) = faults(gaurd={})

    assert "name" not in fault.allowed.split(", ")


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://hub.acme.dev", "https://hub.acme.dev/", "https://me:secret@hub.acme.dev", "https://hub.acme.dev?x=1",
        "https://HUB.acme.dev", "hub.acme.dev", "https://hub.acme.dev/a/../b c",
    ],
)  # fmt: skip
def test_a_hub_is_an_https_address_without_credentials(endpoint: str) -> None:
    assert [fault.path for fault in faults(hub={"endpoint": endpoint})] == ["hub.endpoint"]


@pytest.mark.parametrize(
    "endpoint", ["https://hub.acme.dev", "https://hub.acme.dev:8443/api/models-v1", "https://10.0.0.7"]
)
def test_a_hub_may_have_port_and_path(endpoint: str) -> None:
    assert faults(hub={"endpoint": endpoint}) == ()


@pytest.mark.parametrize("name", ["", "tandem hub", "tandem/*", "tandem/hub-??????", "a" * 513, "t\u00f6ken"])
def test_a_secrets_name_admits_no_other_secret(name: str) -> None:
    """It stands in an ARN of an IAM policy, where * and ? would match."""
    assert [fault.path for fault in faults(hub={"token_secret": name})] == ["hub.token_secret"]


@pytest.mark.parametrize(
    "ends",
    [
        "2026-12-08T11:30:00", "2026-12-08T12:30:00+01:00", "2026-12-08", "tomorrow", 1796729400, 1796729400.5, None,
        "2026-12-32T11:30:00Z",
    ],
)  # fmt: skip
def test_a_moment_has_day_time_and_the_offset_of_utc(ends: object) -> None:
    block = {**ENVIRONMENT["capacity"]["block"], "ends": ends}

    (fault,) = faults(capacity={**ENVIRONMENT["capacity"], "block": block})

    assert fault.path == "capacity.block.ends"
    assert fault.allowed == "a moment in UTC such as 2026-12-01T11:30:00Z"


@pytest.mark.parametrize("ends", ["2026-12-08T11:30:00Z", "2026-12-08T11:30:00+00:00", "2026-12-08T11:30Z"])
def test_a_moment_may_be_spelt_as_yaml_and_as_iso_8601_spell_it(ends: str) -> None:
    block = {**ENVIRONMENT["capacity"]["block"], "ends": ends}

    assert faults(capacity={**ENVIRONMENT["capacity"], "block": block}) == ()


@pytest.mark.parametrize("value", ["Json", "two words", "-x", "", "c" * 33])
def test_a_reference_names_a_class_as_suites_spell_them(value: str) -> None:
    reference = ENVIRONMENT["observability"]["reference"]
    values = [{**reference["values"][0], "prompt_class": value}]

    (fault,) = faults(observability={"reference": {**reference, "values": values}})

    assert fault.path == "observability.reference.values[0].prompt_class"
