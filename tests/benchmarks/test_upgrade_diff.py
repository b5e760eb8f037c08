"""The tables of an upgrade say what differs, and nothing else."""

from __future__ import annotations

import upgrade_diff

POD = {
    "image": "registry/vllm:1",
    "env": [{"name": "KEY", "value": "key-0123456789ab"}],
    "replicas": 1,
}


def test_another_image_is_told_by_what_differs():
    changes = list(upgrade_diff.list_changes(POD, POD | {"image": "registry/vllm:2"}))
    assert changes == ["`.image`: `1` to `2`"]


def test_another_digest_is_told_as_such():
    second_pod = POD | {"env": [{"name": "KEY", "value": "key-ba9876543210"}]}
    assert list(upgrade_diff.list_changes(POD, second_pod)) == ["`env.value`: another digest"]


def test_a_key_of_one_side_is_told_without_its_value():
    assert list(upgrade_diff.list_changes({"old": "text"}, {"new": "text"}, "data")) == [
        "`data.old`: gone",
        "`data.new`: new",
    ]


def test_equal_states_are_told_as_the_same():
    assert list(
        upgrade_diff.describe_objects({("Pod", "a"): POD}, {("Pod", "a"): POD}, "manifests")
    ) == ["| nothing: the manifests are the same | 0 | 0 | 0 | |"]
