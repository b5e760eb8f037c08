"""What `collect` may delete, decided without a bucket."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from stored_sets import MODEL, NOW, held_by, made_up

from tandem.artifacts.gc import plan_removals
from tandem.artifacts.inventory import set_prefix
from tandem.artifacts.manifest import NewerSchemaError
from tandem.errors import ExternalError, InputError

KEY = "artifacts/tiny-000000000000"
CUTOFF = NOW - timedelta(days=30)


def decided(*stored, used=()):
    return plan_removals(stored, used, CUTOFF)


def removal(*stored, used=()):
    (only,) = decided(*stored, used=used).removals
    return only


def test_what_nobody_uses_and_is_old_goes_as_a_whole():
    found = made_up(KEY, "run/a", "run/b", folder="run")

    only = removal(found)

    assert only.keys == {listed.key for listed in found.objects}
    assert (only.description, only.size) == ("artifact", 28)


@pytest.mark.parametrize(("days", "goes"), [(29, False), (30, False), (31, True)])
def test_what_is_younger_than_the_days_stays(days, goes):
    assert bool(decided(made_up(KEY, "run/a", folder="run", days=days)).removals) is goes


def test_a_renewed_lease_alone_makes_nothing_young():
    found = made_up(KEY, "run/a", folder="run")
    renewed = tuple(
        replace(listed, modified_at=NOW) if listed.key == found.lease_key else listed for listed in found.objects
    )

    assert decided(replace(found, objects=renewed)).removals != ()


def test_what_is_being_written_stays_and_is_told():
    told = decided(made_up(KEY, "run/a", whole=False, lease=held_by("compile-1"))).retentions

    assert [each.explanation for each in told] == ["being written: compile-1 holds it until 2026-11-21 12:00:00 UTC"]


def test_what_an_interrupted_collect_still_holds_goes():
    assert decided(made_up(KEY, "run/a", whole=False, lease=held_by("collect-x-1"))).removals != ()


def test_a_lease_left_by_a_collect_goes_however_young():
    assert removal(made_up(KEY, whole=False, days=0, lease=held_by("collect-x-1"))).is_full


def test_a_set_without_manifest_and_lease_is_not_ours():
    found = made_up(KEY, "a", whole=False)
    bare = replace(found, objects=tuple(each for each in found.objects if each.key != found.lease_key), lease=None)

    assert [each.explanation for each in decided(bare).retentions] == [
        "nobody took its lease and it has no manifest: not written by Tandem"
    ]


@pytest.mark.parametrize(
    ("fault", "goes"),
    [
        (InputError("cut off", change="x"), True),
        (NewerSchemaError("schema 2", change="x"), False),
        (ExternalError("denied", change="x"), False),
    ],
)
def test_a_manifest_that_cannot_be_read_goes_only_when_nobody_could_read_it(fault, goes):
    found = replace(made_up(KEY, "run/a", folder="run"), manifest=None, fault=fault)

    assert bool(decided(found).removals) is goes


def test_what_s3_did_not_give_is_told_with_the_fault():
    denied = ExternalError("denied", change="x")
    found = replace(made_up(KEY, "run/a", folder="run"), manifest=None, fault=denied)

    assert [each.fault for each in decided(found, made_up(MODEL, "a", days=1)).retentions] == [denied, None]


def test_a_lease_that_cannot_be_read_keeps_the_set():
    found = made_up(KEY, "run/a", folder="run", lease_fault=InputError("no lease", change="x"))

    assert decided(found).removals == ()


def test_runs_beside_the_one_that_won_go_though_the_artifact_is_used():
    found = made_up(KEY, "won/a", "lost/a", "lost/b", folder="won")

    only = removal(found, used=(found.name,))

    assert (only.keys, only.description) == ({f"{KEY}/lost/a", f"{KEY}/lost/b"}, "left by lost")
    assert not only.is_full


def test_a_run_with_one_young_file_stays():
    found = made_up(KEY, "won/a", "lost/a", "lost/b", folder="won")
    young = tuple(replace(each, modified_at=NOW) if each.key.endswith("lost/b") else each for each in found.objects)

    assert decided(replace(found, objects=young), used=(found.name,)).removals == ()


def test_a_run_with_a_young_upload_stays():
    found = made_up(KEY, "won/a", "lost/a", folder="won", begun=("lost/big",))
    young = (replace(found.open_uploads[0], initiated_at=NOW),)

    assert decided(replace(found, open_uploads=young), used=(found.name,)).removals == ()


def test_runs_beside_a_damaged_artifact_stay():
    found = made_up(KEY, "won/a", "other/a", folder="won")
    without = replace(found, objects=tuple(each for each in found.objects if each.key != f"{KEY}/won/a"))

    assert decided(without, used=(found.name,)).removals == ()


def test_a_file_in_no_runs_folder_stays_while_the_artifact_is_used():
    found = made_up(KEY, "won/a", "note.txt", folder="won")

    assert decided(found, used=(found.name,)).removals == ()


def test_broken_uploads_of_what_is_used_go():
    found = made_up(MODEL, "a", begun=("big",))

    only = removal(found, used=(found.name,))

    assert (only.uploads, only.keys, only.description) == (found.open_uploads, frozenset(), "1 broken upload")


def test_nothing_used_young_written_or_foreign_ever_goes():
    rng = random.Random(20261121)  # noqa: S311 - no secret
    for _ in range(2000):
        found = a_set(rng)
        used = (found.name,) if rng.random() < 0.5 else ()

        for goes in decided(found, used=used).removals:
            assert found.is_ours
            assert not (found.lease and found.lease.is_active and not found.lease.holder.startswith("collect-"))
            assert all(set_prefix(key) == found.prefix for key in goes.keys)
            if used:
                winner = f"{found.prefix}/{found.manifest.folder}/" if found.manifest else "none"
                assert not any(key.startswith(winner) for key in goes.keys)
                assert not goes.is_full
            young = {listed.key for listed in found.files if listed.modified_at >= CUTOFF}
            assert not young & goes.keys


def a_set(rng):
    prefix = rng.choice((MODEL, KEY))
    runs = ("won", "lost", "dead")
    paths = [f"{rng.choice(runs)}/{index}" if prefix == KEY else f"{index}" for index in range(rng.randrange(5))]
    paths = sorted({"won/0" if prefix == KEY else "0", *paths})
    lease = rng.choice((None, held_by("compile-1"), held_by("collect-1")))
    found = made_up(
        prefix, *paths, folder="won" if prefix == KEY else "", whole=rng.random() < 0.6, lease=lease,
        begun=tuple(path + ".big" for path in paths if rng.random() < 0.2),
    )  # fmt: skip
    aged = tuple(
        replace(each, modified_at=NOW - timedelta(days=rng.choice((1, 29, 31, 400)))) for each in found.objects
    )
    return replace(found, objects=aged if rng.random() < 0.9 else aged[: len(paths)])
