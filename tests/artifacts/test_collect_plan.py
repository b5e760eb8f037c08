"""What `collect` may delete, decided without a bucket."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from stored_sets import MODEL, NOW, held_by, made_up

from tandem.artifacts.gc import plan_removals
from tandem.artifacts.inventory import find_read_fault
from tandem.errors import ExternalError, InputError, SchemaError

KEY = "artifacts/tiny-000000000000"
CUTOFF = NOW - timedelta(days=30)
DENIAL = ExternalError("denied", change="x")


def decided(*stored_set, used=()):
    return plan_removals(stored_set, used, CUTOFF)


def one_run(**changes):
    return replace(made_up(KEY, "run/a", folder="run"), **changes)


def renewed(stored_set, ending):
    """The same with one object written a moment ago."""
    rows = [
        replace(row, modified_at=NOW) if row.key.endswith(ending) else row
        for row in stored_set.objects
    ]
    return replace(stored_set, objects=tuple(rows))


def without(stored_set, ending):
    return replace(
        stored_set, objects=tuple(row for row in stored_set.objects if not row.key.endswith(ending))
    )


def test_what_nobody_uses_and_is_old_goes_as_a_whole():
    candidate = made_up(KEY, "run/a", "run/b", folder="run")
    (only,) = decided(candidate).removals
    assert only.objects == candidate.objects
    assert (only.description, only.size) == ("whole artifact", 28)
    assert only.is_full


@pytest.mark.parametrize(
    ("stored_set", "goes"),
    [
        (made_up(KEY, "run/a", folder="run", days=29), False),
        (made_up(KEY, "run/a", folder="run", days=30), False),
        (made_up(KEY, "run/a", folder="run", days=31), True),
        # a renewed lease alone makes nothing young
        (renewed(one_run(), "tandem-lease.json"), True),
        # an interrupted collect's
        (made_up(KEY, "run/a", has_manifest=False, lease=held_by("collect-x-1")), True),
        # what one left, however young
        (made_up(KEY, has_manifest=False, days=0, lease=held_by("collect-x-1")), True),
        (one_run(manifest=None, fault=InputError("cut off", change="x")), True),
        (one_run(manifest=None, fault=SchemaError("it", 2, 1, where="")), False),
        (one_run(manifest=None, fault=DENIAL), False),
        (one_run(lease_fault=InputError("no lease", change="x")), False),
    ],
)
def test_unused_set_goes_once_old_and_free(stored_set, goes):
    assert [removal.is_full for removal in decided(stored_set).removals] == [True] * goes


def test_what_stays_is_told_with_its_reason():
    busy = made_up(KEY, "run/a", has_manifest=False, lease=held_by("compile-1"))
    foreign = replace(
        without(made_up(KEY, "a", has_manifest=False), "tandem-lease.json"), lease=None
    )
    unreadable = one_run(manifest=None, fault=DENIAL)
    retentions = decided(busy, foreign, unreadable, made_up(MODEL, "a", days=1)).retentions

    assert [reason for _, reason in retentions] == [
        "being written: compile-1 holds it until 2026-11-21 12:00:00 UTC",
        "it has neither lease nor manifest: not written by Tandem",
        "its manifest cannot be read: denied",
        "written 2026-11-20, which is too recent",
    ]
    assert find_read_fault(stored_set for stored_set, _ in retentions) is DENIAL


LOSER = made_up(KEY, "won/a", "lost/a", "lost/b", folder="won")
UNFINISHED = made_up(KEY, "won/a", "lost/a", folder="won", open_paths=("lost/big",))


@pytest.mark.parametrize(
    ("stored_set", "keys", "description"),
    [
        (LOSER, {f"{KEY}/lost/a", f"{KEY}/lost/b"}, "left by lost"),
        (made_up(MODEL, "a", open_paths=("big",)), set(), "1 broken upload"),
        (renewed(LOSER, "lost/b"), None, ""),
        (
            replace(
                UNFINISHED, open_uploads=(replace(UNFINISHED.open_uploads[0], initiated_at=NOW),)
            ),
            None,
            "",
        ),
        (without(LOSER, "won/a"), None, ""),  # damaged: nobody knows yet what is worth keeping
        (made_up(KEY, "won/a", "note.txt", folder="won"), None, ""),
    ],
)
def test_of_what_is_used_only_old_leftovers_go(stored_set, keys, description):
    removals = decided(stored_set, used=(stored_set.name,)).removals
    assert [
        ({row.key for row in entry.objects}, entry.description, entry.is_full) for entry in removals
    ] == [(keys, description, False) for keys in ([] if keys is None else [keys])]
