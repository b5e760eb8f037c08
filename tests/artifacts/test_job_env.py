"""What a pod's manifest hands to its program: refused before anything is read or written."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from tandem.artifacts.job_env import (
    HOLDER_VARIABLE,
    STAGE_VARIABLE,
    add_bucket_argument,
    parse_model_references,
    read_artifact_key,
    read_holder,
    read_json_variable,
)
from tandem.declarations.artifact_key import KEY_VARIABLE
from tandem.errors import InputError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_model_is_pinned_at_a_commit_alone():
    (reference,) = parse_model_references([f"Qwen/Qwen3-1.7B@{COMMIT}"])

    assert reference.is_pinned
    assert reference.prefix == f"models/Qwen/Qwen3-1.7B/{COMMIT}"
    assert not replace(reference, revision="main").is_pinned


def test_a_model_names_the_command_of_the_manifest_that_stages_it(monkeypatch):
    monkeypatch.setenv(STAGE_VARIABLE, "kubectl apply -f stage.yaml")

    (reference,) = parse_model_references([f"Qwen/Qwen3-1.7B@{COMMIT}"])

    assert reference.command == "kubectl apply -f stage.yaml"


def test_a_bucket_must_be_named_where_the_pod_has_none(monkeypatch):
    monkeypatch.delenv("TANDEM_BUCKET", raising=False)
    parser = argparse.ArgumentParser()
    add_bucket_argument(parser)

    with pytest.raises(SystemExit):
        parser.parse_args([])


def test_the_bucket_of_the_pod_needs_no_option(monkeypatch):
    monkeypatch.setenv("TANDEM_BUCKET", "pods-bucket")
    parser = argparse.ArgumentParser()
    add_bucket_argument(parser)

    assert parser.parse_args([]).bucket == "pods-bucket"


@pytest.mark.parametrize("name", ["Qwen3-1.7B@main", "Qwen/Qwen3-1.7B", "Qwen/..@main", "a/b@c/d"])
def test_a_name_that_is_no_prefix_is_refused(name):
    with pytest.raises(InputError, match="not a model at a revision"):
        parse_model_references([name])


@pytest.mark.parametrize("holder", ["", "job/uid"])
def test_a_holder_without_a_name_of_its_own_is_refused(monkeypatch, holder):
    monkeypatch.setenv(HOLDER_VARIABLE, holder)

    with pytest.raises(InputError, match=HOLDER_VARIABLE):
        read_holder()


@pytest.mark.parametrize(("text", "word"), [("", "is not set"), ("[]", "no JSON mapping")])
def test_a_key_that_is_no_mapping_is_refused(monkeypatch, text, word):
    monkeypatch.setenv(KEY_VARIABLE, text)

    with pytest.raises(InputError, match=word):
        read_artifact_key()


def test_an_unset_variable_has_its_default(monkeypatch):
    monkeypatch.delenv("TANDEM_LIST", raising=False)

    assert read_json_variable("TANDEM_LIST", list, default="[1]") == [1]
