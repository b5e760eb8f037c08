"""`tandem artifacts explain`: two keys by whatever they are called, and the fields in which they
differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bucket_specs import ENV, folders, needed, write_environment
from stored_sets import put_set

from tandem.cli.program import main
from tandem.declarations.artifact_key import ArtifactKey

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(specs, capsys):
    def act(*words: str) -> tuple[int, str, str]:
        code = main(["artifacts", "explain", "--env", ENV, *folders(specs), *words])
        output = capsys.readouterr()
        return code, output.out, output.err

    return act


def fused(specs: Path) -> ArtifactKey:
    return ArtifactKey.from_fields(
        next(
            need.fields
            for need in needed(specs)
            if "post/qwen-sd-vllm" in need.used_by and need.kind == "artifact"
        )
    )


def test_two_variants_differ_in_their_speculation_fields_only(run):
    differences = json.loads(run("post/qwen-vllm", "post/qwen-sd-vllm", "--json")[1])["differences"]

    assert set(differences) == {
        "mode",
        "draft",
        "num_speculative_tokens",
        "draft_tensor_parallel_size",
        "neuron_config.enable_fused_speculation",
    }


def test_a_difference_is_told_with_both_values(run):
    out = run("post-drafts-windows/qwen-sd-qwen3-1-7b-k5", "post/qwen-sd-vllm")[1]
    assert out.splitlines()[4:] == ["num_speculative_tokens 5 -> 7"]


@pytest.mark.endpoint
def test_a_stored_artifact_is_named_by_its_digest(specs, run, store):
    write_environment(specs, store.bucket)
    old = replace(fused(specs), num_speculative_tokens=9)
    put_set(store, old.prefix, "run", old.as_fields())

    out = run(old.digest, "post/qwen-sd-vllm")[1]

    assert (
        f"s3://{store.bucket}/{old.prefix}/tandem-manifest.json" in out,
        "9" in out.splitlines()[-1],
    ) == (
        True,
        True,
    )
