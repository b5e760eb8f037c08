"""An experiment's servers as arms: what the manifest learns from the declared files."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_cli import run_flags

from tandem.bench.records.manifest import ManifestArm
from tandem.cli.bench_flags import RunFlags
from tandem.cli.bench_settings import assign_placements, select_arms
from tandem.cli.selection import Selection
from tandem.errors import InputError

CHOSEN = Selection(environments=Path("environments"), experiments=Path("experiments"))


@pytest.fixture(autouse=True)
def _at_the_root(root, monkeypatch):
    monkeypatch.chdir(root)


@pytest.fixture
def post():
    return select_arms(CHOSEN, RunFlags(env="post-us-east-2", experiment="post"))


def test_the_arms_are_the_variants_at_their_services(post):
    assert [(arm.name, arm.role, arm.url) for arm in post.arms] == [
        ("qwen-vllm", "baseline", "http://qwen-vllm.tandem-post.svc:8000"),
        ("qwen-sd-vllm", "variant", "http://qwen-sd-vllm.tandem-post.svc:8000"),
    ]


def test_address_artifact_and_image_are_those_of_the_rendered_servers(post, root):
    manifest = (root / "manifests" / "post-us-east-2" / "post" / "serve" / "serve.yaml").read_text()

    assert "port: 8000" in manifest
    for arm in post.arms:
        words = (
            f"name: {arm.name}\n  namespace: tandem-post",
            arm.artifact_key.rpartition("-")[2],
            f"image: {arm.image}",
        )
        assert [word for word in words if word not in manifest] == []


def test_the_first_chosen_variant_is_the_baseline():
    run_arms = select_arms(
        CHOSEN,
        RunFlags(env="post-us-east-2", experiment="post", variants=("qwen-sd-vllm", "qwen-vllm")),
    )
    assert [(arm.name, arm.role) for arm in run_arms.arms] == [
        ("qwen-sd-vllm", "baseline"),
        ("qwen-vllm", "variant"),
    ]


ARMS = tuple(
    ManifestArm(name=name, role="variant", url="http://h:1", model="m") for name in ("base", "spec")
)


def test_a_placement_of_no_arm_is_refused():
    with pytest.raises(InputError, match="names no arm 'other'; allowed: base, spec"):
        assign_placements(ARMS, [("other", "x")])


@pytest.mark.parametrize(
    ("words", "models"),
    [
        (["m"], ["m", "m", "m"]),
        (["m", "b=other/name"], ["m", "other/name", "m"]),
        (["b=y"], ["", "y", ""]),
    ],
)
def test_a_model_is_for_all_arms_or_for_one(words, models):
    arms = ["--baseline", "a=http://h:1", "--variant", "b=http://h:2", "c=http://h:3"]
    flags = run_flags(*arms, "--model", *words, "--out", "x")
    assert [arm.model for arm in select_arms(CHOSEN, flags).arms] == models


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["m", "d=x"], "--model m d=x; allowed: one for all arms, and NAME=MODEL for each of a, b"),
        (["a=m", "n", "o"], "--model a=m n o"),
    ],
)
def test_a_model_of_no_arm_or_too_few_is_refused(words, said):
    arms = ["--baseline", "a=http://h:1", "--variant", "b=http://h:2"]
    flags = run_flags(*arms, "--model", *words, "--out", "x")
    with pytest.raises(InputError, match=said):
        select_arms(CHOSEN, flags)
