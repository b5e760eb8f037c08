"""What `collect` may delete, decided without a bucket."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from stored_sets import MODEL, NOW, held_by, made_up

from tandem.artifacts.gc import plan_removals
from tandem.artifacts.inventory import find_read_fault, set_prefix
from tandem.errors import ExternalError, InputError, SchemaError

KEY = "artifacts/tiny-000000000000"
CUTOFF = NOW - timedelta(days=30)
DENIED = ExternalError("denied", change="x")


def decided(*stored, used=()):
    return plan_removals(stored, used, CUTOFF)


def one_run(**changes):
    return replace(made_up(KEY, "run/a", folder="run"), **changes)


def renewed(stored, ending):
    """The same with one object written a moment ago."""
    rows = [
        replace(row, modified_at=NOW) if row.key.endswith(ending) else row for row in stored.objects
    ]
    return replace(stored, objects=tuple(rows))


def without(stored, ending):
    return replace(
        stored, objects=tuple(row for row in stored.objects if not row.key.endswith(ending))
    )


def test_what_nobody_uses_and_is_old_goes_as_a_whole():
    found = made_up(KEY, "run/a", "run/b", folder="run")
    (only,) = decided(found).removals
    assert only.objects == found.objects
    assert (only.description, only.size, only.is_full) == ("whole artifact", 28, True)


@pytest.mark.parametrize(
    ("stored", "goes"),
    [
        (made_up(KEY, "run/a", folder="run", days=29), False),
        (made_up(KEY, "run/a", folder="run", days=30), False),
        (made_up(KEY, "run/a", folder="run", days=31), True),
        # a renewed lease alone makes nothing young
        (renewed(one_run(), "tandem-lease.json"), True),
        # an interrupted collect's
        (made_up(KEY, "run/a", whole=False, lease=held_by("collect-x-1")), True),
        # what one left, however young
        (made_up(KEY, whole=False, days=0, lease=held_by("collect-x-1")), True),
        (one_run(manifest=None, fault=InputError("cut off", change="x")), True),
        (one_run(manifest=None, fault=SchemaError("it", 2, 1, where="")), False),
        (one_run(manifest=None, fault=DENIED), False),
        (one_run(lease_fault=InputError("no lease", change="x")), False),
    ],
)
def test_what_nobody_uses_goes_when_it_is_old_free_and_ours_to_judge(stored, goes):
    assert [removal.is_full for removal in decided(stored).removals] == [True] * goes


def test_what_stays_is_told_with_its_reason():
    written = made_up(KEY, "run/a", whole=False, lease=held_by("compile-1"))
    foreign = replace(without(made_up(KEY, "a", whole=False), "tandem-lease.json"), lease=None)
    denied = one_run(manifest=None, fault=DENIED)
    retentions = decided(written, foreign, denied, made_up(MODEL, "a", days=1)).retentions

    assert [reason for _, reason in retentions] == [
        "being written: compile-1 holds it until 2026-11-21 12:00:00 UTC",
        "nobody took its lease and it has no manifest: not written by Tandem",
        "its manifest cannot be read: denied",
        "written 2026-11-20, which is not long enough ago",
    ]
    assert find_read_fault(stored for stored, _ in retentions) is DENIED


LOST = made_up(KEY, "won/a", "lost/a", "lost/b", folder="won")
BEGUN = made_up(KEY, "won/a", "lost/a", folder="won", begun=("lost/big",))


@pytest.mark.parametrize(
    ("stored", "keys", "description"),
    [
        (LOST, {f"{KEY}/lost/a", f"{KEY}/lost/b"}, "left by lost"),
        (made_up(MODEL, "a", begun=("big",)), set(), "1 broken upload"),
        (renewed(LOST, "lost/b"), None, ""),
        (
            replace(BEGUN, open_uploads=(replace(BEGUN.open_uploads[0], initiated_at=NOW),)),
            None,
            "",
        ),
        (without(LOST, "won/a"), None, ""),  # damaged: nobody knows yet what is worth keeping
        (made_up(KEY, "won/a", "note.txt", folder="won"), None, ""),
    ],
)
def test_of_what_is_used_only_old_leftovers_go(stored, keys, description):
    removals = decided(stored, used=(stored.name,)).removals
    assert [
        ({row.key for row in entry.objects}, entry.description, entry.is_full) for entry in removals
    ] == [(keys, description, False) for keys in ([] if keys is None else [keys])]


def test_nothing_used_young_written_or_foreign_ever_goes():
    rng = random.Random(20261121)  # noqa: S311 - no secret
    for _ in range(2000):
        found = a_set(rng)
        used = (found.name,) if rng.random() < 0.5 else ()

        for goes in decided(found, used=used).removals:
            gone = {row.key for row in goes.objects}
            assert found.is_ours
            assert not (
                found.lease
                and found.lease.is_active
                and not found.lease.holder.startswith("collect-")
            )
            assert all(set_prefix(key) == found.prefix for key in gone)
            if used:
                winner = f"{found.prefix}/{found.manifest.folder}/" if found.manifest else "none"
                assert not any(key.startswith(winner) for key in gone)
                assert not goes.is_full
            young = {listed.key for listed in found.files if listed.modified_at >= CUTOFF}
            assert not young & gone


def a_set(rng):
    prefix = rng.choice((MODEL, KEY))
    runs = ("won", "lost", "dead")
    paths = [
        f"{rng.choice(runs)}/{index}" if prefix == KEY else f"{index}"
        for index in range(rng.randrange(5))
    ]
    paths = sorted({"won/0" if prefix == KEY else "0", *paths})
    lease = rng.choice((None, held_by("compile-1"), held_by("collect-1")))
    found = made_up(
        prefix,
        *paths,
        folder="won" if prefix == KEY else "",
        whole=rng.random() < 0.6,
        lease=lease,
        begun=tuple(path + ".big" for path in paths if rng.random() < 0.2),
    )
    aged = tuple(
        replace(each, modified_at=NOW - timedelta(days=rng.choice((1, 29, 31, 400))))
        for each in found.objects
    )
    return replace(found, objects=aged if rng.random() < 0.9 else aged[: len(paths)])
