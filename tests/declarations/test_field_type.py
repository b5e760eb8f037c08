"""Types of fields that no whole file of the neighbouring tests spoils."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from tandem.declarations.field_type import IndexUrl, KmsKeyArn, PrincipalArn, UtcMoment


def test_a_moment_with_an_offset_is_kept_in_utc():
    moment = TypeAdapter(UtcMoment).validate_python("2026-12-01T12:30:00+01:00")

    assert moment.isoformat() == "2026-12-01T11:30:00+00:00"


def test_a_session_names_its_role_in_the_same_partition():
    session_arn = "arn:aws-us-gov:sts::210987654321:assumed-role/Admin/maria"

    with pytest.raises(ValidationError, match="arn:aws-us-gov:iam::210987654321:role/Admin,"):
        TypeAdapter(PrincipalArn).validate_python(session_arn)


def test_a_key_by_its_alias_is_refused():
    with pytest.raises(ValidationError):
        TypeAdapter(KmsKeyArn).validate_python("arn:aws:kms:us-east-2:210987654321:alias/models")


def test_an_index_with_a_password_is_refused():
    with pytest.raises(ValidationError):
        TypeAdapter(IndexUrl).validate_python("https://me:secret@index.acme.dev/simple")
