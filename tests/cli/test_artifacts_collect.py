"""`tandem artifacts gc`: what the declared files use is safe, whoever declares it; the rest goes
when told to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from bucket_specs import (
    ENV,
    config_map,
    copy_environment,
    folders,
    needed,
    referring,
    store_needs,
    write_environment,
)
from stored_sets import keys, put_lease, put_set

from tandem.artifacts.store import ObjectStore
from tandem.cli.program import main
from tandem.declarations.artifact_key import ArtifactKey

pytestmark = pytest.mark.endpoint
Run = Callable[..., tuple[int, str, str]]
STALE = "artifacts/tiny-000000000000"


@pytest.fixture
def mine(specs, bucket, aws, monkeypatch):
    """The specs in the working folder, with the test's bucket; everything stored is forty days
    old."""
    assert aws
    write_environment(specs, bucket)
    now = ObjectStore.now
    monkeypatch.setattr(ObjectStore, "now", lambda store: now(store) + timedelta(days=40))
    monkeypatch.chdir(specs)
    return specs


@pytest.fixture
def run(mine, capsys):
    def act(*more: str) -> tuple[int, str, str]:
        code = main(["artifacts", "gc", "--env", ENV, *folders(mine), *more])
        output = capsys.readouterr()
        return code, output.out, output.err

    return act


def old_key(mine: Path) -> ArtifactKey:
    """A key of `post` that nobody declares any more."""
    key = ArtifactKey.from_fields(
        next(need.fields for need in needed(mine) if need.fields.get("mode") == "fused")
    )
    return replace(key, num_speculative_tokens=9)


def write_manifest(mine: Path, fields: dict[str, Any], environment: str = ENV) -> Path:
    """Write a rendered server that carries a key, and the ConfigMap with that key."""
    bodies = {"storage": config_map("key", fields), "serve": referring("v", "key")}
    for stage, body in bodies.items():
        path = mine / "manifests" / environment / "post" / stage / f"{stage}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(yaml.safe_dump(body))
    return path


def test_without_delete_nothing_goes(run, store):
    put_set(store, STALE, "run")
    before = keys(store)

    code, out, _ = run()

    assert (
        code,
        keys(store),
        "would delete" in out,
        "nothing was deleted; --delete does it" in out,
    ) == (
        0,
        before,
        True,
        True,
    )


def test_what_would_be_freed_has_its_price(run, store):
    put_set(store, STALE, "run", files={"big": bytes(1 << 20)})

    assert "would free 1.0 MiB, 0.00 USD a month at 0.025 a GB (your figure of" in run()[1]


def test_delete_removes_what_is_unused_alone(run, mine, store):
    store_needs(store, needed(mine))
    before = keys(store)
    put_set(store, STALE, "run")

    code, out, _ = run("--delete")

    assert (code, keys(store), f"deleted: {STALE}" in out) == (0, before, True)


@pytest.mark.parametrize(("days", "goes"), [("39", True), ("41", False)])
def test_what_is_younger_than_the_days_stays(run, store, days, goes):
    put_set(store, STALE, "run")
    run("--delete", "--days", days)
    assert (keys(store) == set()) is goes


def test_json_is_one_document_with_every_set(run, store):
    put_set(store, STALE, "run")
    put_lease(store, "artifacts/held-000000000000", is_held=True)

    document = json.loads(run("--json")[1])

    assert (document["dry_run"], [row["prefix"] for row in document["removals"]]) == (True, [STALE])
    assert [row["prefix"] for row in document["kept"]] == ["artifacts/held-000000000000"]


def test_what_another_environment_uses_of_the_bucket_stays(run, mine, store):
    copy_environment(mine, "other", "post-drafts-windows")
    store_needs(store, needed(mine))
    before = keys(store)

    _, out, _ = run("--delete")

    assert (keys(store), "post-us-east-2 and other do not use" in out) == (before, True)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda mine: (mine / "environments" / "broken.yaml").write_text("region: 1\n"),
        lambda mine: copy_environment(mine, "other", "post-drafts-windows").rename(
            mine / "environments" / "other.yml"
        ),
        lambda mine: copy_environment(mine, "other", "no-such-experiment"),
        lambda mine: (
            copy_environment(mine, "other", "dev"),
            (mine / "experiments" / "dev.yaml").write_text("runtime: 1\n"),
        ),
        lambda mine: (
            copy_environment(mine, "other", "post-drafts-windows"),
            (mine / "experiments" / "post-drafts-windows.yaml").write_text(
                (mine / "experiments" / "post-drafts-windows.yaml")
                .read_text()
                .replace("Qwen/Qwen3-32B", "made-up/model")
            ),
        ),
    ],
    ids=[
        "malformed environment",
        "other ending",
        "missing experiment",
        "malformed experiment",
        "refused experiment",
    ],
)
def test_nothing_goes_while_a_neighbour_cannot_be_read(run, mine, store, spoil):
    put_set(store, STALE, "run")
    before = keys(store)
    spoil(mine)

    code, _, err = run("--delete")

    assert (code, keys(store), "error: " in err) == (2, before, True)


def test_what_a_rendered_server_loads_stays_though_nobody_declares_it(run, mine, store):
    key = old_key(mine)
    put_set(store, key.prefix, "run", key.as_fields())
    put_set(store, "models/" + str(key.draft).replace("@", "/"), "", {"id": "a", "revision": "b"})
    before = keys(store)
    write_manifest(mine, key.as_fields())

    run("--delete")

    assert keys(store) == before


def test_what_a_server_rendered_by_another_release_loads_stays(run, mine, store):
    fields = {**old_key(mine).as_fields(), "a_newer_field": 1}
    put_set(store, STALE, "run", fields)
    before = keys(store)
    write_manifest(mine, fields)

    run("--delete")

    assert keys(store) == before


def test_nothing_goes_while_a_rendered_server_cannot_be_read(run, mine, store):
    put_set(store, STALE, "run")
    write_manifest(mine, {}).write_text("kind: Deployment\n")
    code, _, err = run("--delete")
    assert (code, "render again" in err, keys(store) != set()) == (2, True, True)


def test_rendered_servers_of_other_buckets_do_not_matter(run, mine, store):
    key = old_key(mine)
    put_set(store, key.prefix, "run", key.as_fields())
    write_manifest(mine, key.as_fields(), "elsewhere")

    run("--delete")

    assert keys(store) == set()


def test_what_is_named_to_be_kept_stays(run, store):
    put_set(store, STALE, "run")
    before = keys(store)
    run("--delete", "--keep", "tiny-000000000000")
    assert keys(store) == before


def test_an_unknown_name_to_keep_deletes_nothing(run, store):
    put_set(store, STALE, "run")
    before = keys(store)
    code, _, err = run("--delete", "--keep", "tiny-00000000000")
    assert (code, keys(store), "tiny-000000000000" in err) == (2, before, True)


def test_what_is_rendered_beside_the_files_stays(run, mine, store, tmp_path, monkeypatch):
    key = old_key(mine)
    put_set(store, key.prefix, "run", key.as_fields())
    write_manifest(mine, key.as_fields())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    before = keys(store)

    assert (run("--delete")[0], keys(store)) == (0, before)
