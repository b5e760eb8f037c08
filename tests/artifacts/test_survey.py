"""A row for every need and for every stored set, with what it is and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled import KEY
from stored_sets import MODEL, held_by, made_up, manifest_of

from tandem.artifacts.inventory import StoredSet
from tandem.artifacts.lease import LeaseState
from tandem.artifacts.manifest import NewerSchemaError
from tandem.artifacts.needs import BucketNeed
from tandem.artifacts.survey import SurveyRow, survey_bucket
from tandem.errors import ExternalError, InputError

ARTIFACT = BucketNeed(
    kind="artifact", name=KEY.name, prefix=KEY.prefix, fields=KEY.as_fields(), used_by=("e/v",), command="compile it"
)
SNAPSHOT = BucketNeed(
    kind="model", name="org/name@main", prefix=MODEL, fields={"id": "org/name", "revision": "main"},
    used_by=("e/v", "e/w"), command="stage it",
)  # fmt: skip


def artifact(prefix: str = KEY.prefix, *, key: object = KEY, **more: object) -> StoredSet:
    found = made_up(prefix, "run/a", folder="run")
    fields = key.as_fields() if hasattr(key, "as_fields") else {}
    return replace(found, manifest=manifest_of(prefix, "run", fields, {"a": b"1234567"}), **more)  # type: ignore[arg-type]


def model(fields: dict[str, str | None], prefix: str = MODEL) -> StoredSet:
    return replace(made_up(prefix, "a"), manifest=manifest_of(prefix, "", fields, {"a": b"1234567"}))


def row(*stored: StoredSet, need: BucketNeed = ARTIFACT) -> SurveyRow:
    (only,) = survey_bucket([need], stored)
    return only


def test_what_is_stored_and_whole_is_present() -> None:
    assert (row(artifact()).state, row(artifact()).command) == ("present", "")


def test_what_is_not_stored_is_missing_and_says_what_makes_it() -> None:
    assert (row().state, row().command, row().is_unavailable) == ("missing", "compile it", True)


def test_a_set_without_a_manifest_is_partial_and_says_who_holds_it() -> None:
    found = row(replace(artifact(), manifest=None, lease=held_by("compile-1")))

    assert (found.state, found.why, found.is_in_progress) == (
        "partial", ("held by compile-1 until 2026-11-21 12:00:00 UTC",), True,
    )  # fmt: skip


def test_a_set_that_an_upload_refused_says_how_it_is_taken_in_all_the_same() -> None:
    found = row(made_up(KEY.prefix, "run-1/a", "run-1/tandem-refused.json", whole=False))

    assert (found.state, found.why[-1]) == (
        "partial", "an upload refused and kept it: tandem artifacts import --refused run-1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lease", "why"),
    [
        (None, "nobody writes it"),
        (LeaseState(holder="j", ends_at=None, is_active=False), "nobody writes it, j was the last"),
    ],
)
def test_a_set_that_nobody_writes_says_so(lease: LeaseState | None, why: str) -> None:
    found = row(replace(artifact(), manifest=None, lease=lease))

    assert (found.why, found.is_in_progress, found.command) == ((why,), False, "compile it")


def test_a_set_that_lacks_a_file_is_damaged() -> None:
    found = artifact()
    lacking = replace(found, objects=tuple(each for each in found.objects if not each.key.endswith("/a")))

    assert (row(lacking).state, row(lacking).why, row(lacking).is_unavailable) == ("damaged", ("a missing",), True)


def test_a_set_whose_manifest_says_other_fields_is_damaged_and_names_them() -> None:
    other = replace(KEY, max_num_seqs=9)

    assert row(artifact(key=other)).why == ("its manifest says other fields than its name", "max_num_seqs 9 -> 1")


def test_a_manifest_of_a_newer_release_is_no_damage_to_repair() -> None:
    found = row(replace(artifact(), manifest=None, fault=NewerSchemaError("schema 2", change="use that release")))

    assert (found.state, found.command, found.is_unavailable) == ("newer", "", True)


def test_a_manifest_that_s3_does_not_give_is_no_damage_to_repair() -> None:
    found = row(replace(artifact(), manifest=None, fault=ExternalError("S3 denies GetObject", change="allow it")))

    assert (found.state, found.why, found.command, found.is_unavailable) == (
        "unread", ("S3 denies GetObject", "allow it"), "", True,
    )  # fmt: skip


def test_a_manifest_that_cannot_be_read_is_damage() -> None:
    found = row(replace(artifact(), manifest=None, fault=InputError("cut off", change="x")))

    assert (found.state, found.why) == ("damaged", ("cut off",))


def test_a_model_may_say_more_than_is_needed() -> None:
    stored = model({"id": "org/name", "revision": "main", "commit": "abc"})

    assert row(stored, need=SNAPSHOT).state == "present"


def test_a_model_that_is_another_one_is_damaged() -> None:
    assert row(model({"id": "org/other", "revision": "main"}), need=SNAPSHOT).state == "damaged"


def test_a_row_has_everybody_who_uses_it() -> None:
    assert row(need=SNAPSHOT).used_by == ("e/v", "e/w")


def test_what_nobody_needs_is_stale_and_names_the_nearest_key_with_the_difference() -> None:
    other = replace(KEY, num_speculative_tokens=5, max_num_seqs=2)

    _, stale = survey_bucket([ARTIFACT], [artifact(other.prefix, key=other)])

    assert (stale.state, stale.used_by, stale.is_unavailable) == ("stale", (), False)
    assert stale.why == (f"nearest needed {KEY.name}:", "max_num_seqs 2 -> 1", "num_speculative_tokens 5 -> 0")


def test_a_stale_snapshot_names_the_revision_that_is_needed() -> None:
    old = model({"id": "org/name", "revision": "old"}, "models/org/name/old")

    _, stale = survey_bucket([SNAPSHOT], [old])

    assert (stale.state, stale.why) == ("stale", ("revision old -> main",))


def test_a_snapshot_of_a_model_that_nobody_uses_says_so() -> None:
    (stale,) = survey_bucket([], [model({"id": "org/name", "revision": "main"})])

    assert (stale.state, stale.why) == ("stale", ("no experiment uses this model",))


def test_what_tandem_did_not_write_is_said_to_be_not_ours() -> None:
    found = made_up(MODEL, "a", whole=False)
    bare = replace(found, objects=found.objects[:1], lease=None)

    assert [each.state for each in survey_bucket([], [bare])] == ["not ours"]


def test_needs_come_first_and_what_nobody_needs_after_them() -> None:
    stale = replace(KEY, max_num_seqs=2)
    stored = [artifact(stale.prefix, key=stale), model({"id": "org/name", "revision": "main"})]

    assert [each.name for each in survey_bucket([SNAPSHOT, ARTIFACT], stored)] == [
        "org/name@main",
        KEY.name,
        stale.name,
    ]
