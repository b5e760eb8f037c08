"""A row for every need and for every stored set, with what it is and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled import KEY
from stored_sets import MODEL, held_by, made_up, manifest_of

from tandem.artifacts.needs import BucketNeed
from tandem.artifacts.survey import survey_bucket
from tandem.errors import ExternalError, InputError, SchemaError

OTHER = replace(KEY, num_speculative_tokens=5, max_num_seqs=2)
ARTIFACT = BucketNeed(
    kind="artifact",
    name=KEY.name,
    prefix=KEY.prefix,
    fields=KEY.as_fields(),
    used_by=("e/v",),
    command="compile it",
)
SNAPSHOT = BucketNeed(
    kind="model",
    name="org/name@main",
    prefix=MODEL,
    fields={"id": "org/name", "revision": "main"},
    used_by=("e/v", "e/w"),
    command="stage it",
)


def artifact(prefix=KEY.prefix, *, key=KEY, **more):
    survey_row = made_up(prefix, "run/a", folder="run")
    fields = key.as_fields() if hasattr(key, "as_fields") else {}
    return replace(
        survey_row, manifest=manifest_of(prefix, "run", fields, {"a": b"1234567"}), **more
    )  # type: ignore[arg-type]


def model(fields, prefix=MODEL):
    return replace(
        made_up(prefix, "a"), manifest=manifest_of(prefix, "", fields, {"a": b"1234567"})
    )


def row(*stored_set, need=ARTIFACT):
    (only,) = survey_bucket("b", [need], stored_set)
    return only


REFUSAL = made_up(KEY.prefix, "run-1/a", "run-1/tandem-refused.json", has_manifest=False)
ADVICE = "an upload refused and kept it: tandem artifacts import --refused run-1"


COMPILE = ("compile it",)
MEND = (f"aws s3 rm s3://b/{KEY.prefix}/tandem-manifest.json", "compile it")


def faulty(fault):
    return replace(artifact(), manifest=None, fault=fault)


@pytest.mark.parametrize(
    ("stored_set", "state", "why", "command"),
    [
        (artifact(), "present", (), ()),
        (None, "missing", (), COMPILE),
        (
            replace(artifact(), manifest=None, lease=held_by("compile-1")),
            "partial",
            ("held by compile-1 until 2026-11-21 12:00:00 UTC",),
            (),
        ),
        (REFUSAL, "partial", ("nobody writes it, job was the last", ADVICE), COMPILE),
        (
            artifact(key=replace(KEY, max_num_seqs=9)),
            "damaged",
            ("its manifest has other fields than its name", "max_num_seqs 9 -> 1"),
            MEND,
        ),
        (
            faulty(SchemaError("it", 2, 1, where="")),
            "unknown",
            (
                "it has schema 2; this version of Tandem reads schema 1",
                "use the version that wrote it",
            ),
            (),
        ),
        (
            faulty(ExternalError("S3 denies", change="allow it")),
            "unread",
            ("S3 denies", "allow it"),
            (),
        ),
        (faulty(InputError("cut off", change="x")), "damaged", ("cut off",), MEND),
    ],
)
def test_need_has_its_state_reason_and_command(stored_set, state, why, command):
    survey_row = row(*([stored_set] if stored_set else []))
    assert (survey_row.state, survey_row.why, survey_row.commands) == (state, why, command)


def test_a_model_may_say_more_than_is_needed():
    stored_set = model({"id": "org/name", "revision": "main", "commit": "abc"})
    assert row(stored_set, need=SNAPSHOT).state == "present"


@pytest.mark.parametrize(
    ("needs", "stored_set", "why"),
    [
        ([], model({"id": "org/name", "revision": "main"}), ("no experiment uses this model",)),
        (
            [SNAPSHOT],
            model({"id": "org/name", "revision": "old"}, "models/org/name/old"),
            ("revision old -> main",),
        ),
        (
            [ARTIFACT],
            artifact(OTHER.prefix, key=OTHER),
            (f"nearest needed {KEY.name}", "max_num_seqs 2 -> 1", "num_speculative_tokens 5 -> 0"),
        ),
    ],
)
def test_unneeded_set_is_stale_beside_its_nearest_need(needs, stored_set, why):
    stale = survey_bucket("b", needs, [stored_set])[-1]
    assert (stale.state, stale.why, stale.used_by) == ("stale", why, ())


def test_set_without_manifest_and_lease_is_not_ours():
    survey_row = made_up(MODEL, "a", has_manifest=False)
    bare = replace(survey_row, objects=survey_row.objects[:1], lease=None)
    assert [survey_row.state for survey_row in survey_bucket("b", [], [bare])] == ["not ours"]


def test_needs_come_first_and_what_nobody_needs_after_them():
    stale = replace(KEY, max_num_seqs=2)
    stored_set = [artifact(stale.prefix, key=stale), model({"id": "org/name", "revision": "main"})]

    assert [
        survey_row.name for survey_row in survey_bucket("b", [SNAPSHOT, ARTIFACT], stored_set)
    ] == [
        "org/name@main",
        KEY.name,
        stale.name,
    ]
