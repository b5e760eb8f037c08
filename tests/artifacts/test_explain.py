"""Which key a word means, and in which fields two keys differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from committed import experiment

from tandem.artifacts.explain import (
    KeySide,
    compute_key_name,
    read_key_side,
    resolve_key,
)
from tandem.artifacts.manifest import Manifest, ManifestFile
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.variant_key import compute_artifact_key
from tandem.errors import InputError


@pytest.fixture(scope="module")
def key():
    post = experiment("post")
    return compute_artifact_key(post, post.variants[1], load_catalogue())


def side(key, *words):
    return KeySide(name=key.name, fields=key.as_fields(), where="declared", aliases=words)


def manifest(key):
    file = ManifestFile(path="neuron_config.json", size=1, sha256="0" * 64)
    return Manifest(
        schema_version=1,
        kind="artifact",
        name=key.name,
        folder="run",
        fields=key.as_fields(),
        files=(file,),
        made={},
    ).to_bytes()


@pytest.mark.parametrize(
    "of", [lambda key: key.name, lambda key: key.digest, lambda key: key.name[:-6]]
)
def test_key_is_meant_by_name_digest_or_start(key, of):
    assert resolve_key(of(key), [side(key)]).name == key.name


def test_variant_is_meant_even_where_a_folder_has_its_name(key, tmp_path, monkeypatch):
    (tmp_path / "post" / "qwen-sd-vllm").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_key("post/qwen-sd-vllm", [side(key, "post/qwen-sd-vllm")]).name == key.name


def test_a_start_of_several_keys_is_refused_with_their_names(key):
    other_key = replace(key, async_mode=not key.async_mode)
    with pytest.raises(InputError, match="means 2 keys") as refusal:
        resolve_key(key.name[:20], [side(key), side(other_key)])
    assert key.name in refusal.value.change
    assert other_key.name in refusal.value.change


def test_one_key_of_two_variants_is_not_several(key):
    assert resolve_key(key.name[:20], [side(key, "a/b"), side(key, "c/d")]).name == key.name


def test_an_unknown_word_is_refused_with_the_nearest(key):
    with pytest.raises(InputError, match="name one of: post/qwen-sd-vllm"):
        resolve_key("post/qwen-vlm-sd", [side(key, "post/qwen-sd-vllm")])


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b"\xff\xfe"])
def test_a_file_that_is_neither_is_refused_by_name(tmp_path, body):
    (tmp_path / "odd.json").write_bytes(body)
    with pytest.raises(InputError, match=r"odd\.json"):
        read_key_side(tmp_path / "odd.json")


def test_fields_of_another_release_have_no_name(key):
    fields = key.as_fields()
    del fields["sdk"]
    assert (compute_key_name(key.as_fields()), compute_key_name(fields), compute_key_name({})) == (
        key.name,
        None,
        None,
    )
