"""What the committed experiments need of their bucket, each once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committed import experiment

from tandem.artifacts.needs import list_needs, merge_needs
from tandem.declarations.catalogue import load_catalogue


@pytest.fixture(scope="module")
def both():
    return merge_needs(
        list_needs(
            "prod", [experiment("post"), experiment("post-drafts-windows")], load_catalogue()
        )
    )


def test_a_snapshot_that_many_variants_load_is_one_need(both):
    assert [need.name.partition("@")[0] for need in both if need.kind == "model"] == [
        "Qwen/Qwen3-0.6B",
        "Qwen/Qwen3-1.7B",
        "Qwen/Qwen3-32B",
    ]


def test_artifact_of_two_experiments_is_one_need(both):
    shared = [need.used_by for need in both if need.kind == "artifact" and len(need.used_by) > 1]
    assert ("post/qwen-vllm", "post-drafts-windows/qwen-vllm") in shared


def test_need_says_which_run_makes_it_for_its_first_user(both):
    commands = {need.kind: need.command for need in both if "post/qwen-sd-vllm" in need.used_by}
    assert commands == {
        "model": "tandem run post --env prod --until stage",
        "artifact": "tandem run post --env prod --until compile --hours H",
    }


def test_the_users_of_another_environment_stand_behind_its_name():
    needs = list_needs("other", [experiment("post")], load_catalogue(), is_foreign=True)
    assert {need.used_by for need in needs} == {
        ("other:post/qwen-vllm",),
        ("other:post/qwen-sd-vllm",),
    }


def test_merged_needs_name_all_users_each_once(both):
    first = both[0]
    second = replace(both[1], used_by=("x/v",))
    merged_needs = merge_needs([first, replace(first, used_by=("x/v",)), second])
    assert [need.used_by for need in merged_needs] == [(*first.used_by, "x/v"), ("x/v",)]
