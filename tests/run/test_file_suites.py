"""A run whose experiment names a file of prompts: the runner compares it, the Job asks it."""

from __future__ import annotations

import hashlib
import json

import pytest
from bench_jobs import aws, clients, front, job, pair, proxy, put_object
from virtual_world import EXPERIMENT, FULL_BUCKET, VirtualWorld, at_step

from tandem.declarations.names import suite_key
from tandem.declarations.suite_file import SuiteFile
from tandem.errors import InputError
from tandem.run.bucket_suites import forget_bucket_suites, read_bucket_suite

__all__ = ["aws", "clients", "front", "job", "pair", "proxy"]
pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("bench-jobs")]


def write_rows(count: int, text: str) -> bytes:
    rows = [{"prompt": f"{text} {number}", "team": "refund"} for number in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def declare(content: bytes) -> SuiteFile:
    sha256 = hashlib.sha256(content).hexdigest()
    return SuiteFile(file="prompts/support.jsonl", sha256=sha256, class_field="team")


CONTENT = write_rows(6, "Ticket")
SUPPORT = declare(CONTENT)
KEY = suite_key(SUPPORT.name, SUPPORT.sha256)


def build_world(declared: SuiteFile, content: bytes | None) -> VirtualWorld:
    """Return the world of a run that asks a file alone; its bucket has this content of it."""
    experiment = EXPERIMENT.model_copy(update={"suites": (declared,)})
    world_type = type("OwnWorld", (VirtualWorld,), {"experiment": experiment})
    world = world_type(stored=FULL_BUCKET)
    if content is not None:
        world.account.put(suite_key(declared.name, declared.sha256), content)
    return world


def refuse(declared: SuiteFile, content: bytes | None) -> str:
    """Return why the runner refuses a run before it raises a node."""
    world = build_world(declared, content)
    answer = world.hear()
    assert answer["is_accepted"] is False
    assert not world.account.machines
    return answer["reason"]


def test_run_with_its_file_is_judged():
    world = build_world(SUPPORT, CONTENT)
    world.ask()
    assert world.live()["state"] == "judged"


def test_absent_file_is_refused():
    absent = declare(write_rows(6, "Absent"))
    assert "the bucket has no file of this digest" in refuse(absent, None)


def test_other_bytes_are_refused():
    stored = write_rows(6, "Stored")
    declared = declare(write_rows(6, "Declared"))
    assert f"and the experiment states {declared.sha256}" in refuse(declared, stored)


def test_invalid_line_is_named_without_its_text():
    lines = write_rows(40, "Private").splitlines(keepends=True)
    lines[36] = b'{"prompt": 5, "team": "Private"}\n'
    content = b"".join(lines)
    reason = refuse(declare(content), content)
    assert "line 37" in reason
    assert "Private" not in reason


def test_class_without_a_prompt_is_refused():
    content = write_rows(6, "Classes")
    declared = declare(content).model_copy(update={"classes": {"refund": 6, "order": 2}})
    assert "class order has 0 prompts, and the experiment states 2" in refuse(declared, content)


def test_bytes_that_changed_since_the_last_run_are_refused():
    world = build_world(SUPPORT, CONTENT)
    read_bucket_suite(world.runner.world.store, SUPPORT)  # by an earlier run of this process
    assert "and the experiment states" in refuse(SUPPORT, CONTENT + b"\n")


def test_file_that_is_gone_after_the_answer_ends_the_run_before_a_node():
    world = build_world(SUPPORT, CONTENT)
    world.cluster_down = True  # so preflight comes no further
    assert world.hear()["is_accepted"]
    del world.account.objects[KEY]
    forget_bucket_suites()  # as a new process begins
    world.runner = world.start_runner()
    world.cluster_down = False
    assert world.live()["state"] == "failed"
    assert not world.account.machines


def test_next_runner_ends_the_fleet_of_a_run_whose_file_is_gone():
    world = build_world(SUPPORT, CONTENT)
    world.ask()
    world.live(until=at_step("round-00001"))
    del world.account.objects[KEY]
    world.leaves_records = False  # the Jobs find no file either
    forget_bucket_suites()  # as a new process begins
    world.runner = world.start_runner()
    assert world.live()["state"] == "failed"
    assert world.is_empty


def test_job_asks_the_prompts_of_the_file(job):
    put_object(job.store, KEY, CONTENT)
    job.fields["suites"] = (SUPPORT.model_dump(exclude_defaults=True),)
    assert job.measure(0) == 0
    assert {record.suite for record in job.records()} == {SUPPORT.name}


def test_job_refuses_other_bytes_before_it_asks(job):
    other = declare(write_rows(6, "Another"))
    put_object(job.store, suite_key(other.name, other.sha256), CONTENT)
    job.fields["suites"] = (other.model_dump(exclude_defaults=True),)
    with pytest.raises(InputError, match="and the experiment states"):
        job.measure(0)
    assert job.list() == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("support.csv", b"Private question,Private team\nanother,one\n"),
        (
            "support.jsonl",
            b'{"prompt": "Private question", "team": "Private team, and what it does all day long"}\n',
        ),
        ("support.json", b'{"Private question": 1}'),
    ],
    ids=["columns", "class", "keys"],
)
def test_unreadable_file_is_refused_without_its_text(name, content):
    sha256 = hashlib.sha256(content).hexdigest()
    options = {"class_field": "team"}
    if name.endswith("csv"):
        options["prompt_column"] = "question"
    reason = refuse(SuiteFile(file=f"prompts/{name}", sha256=sha256, **options), content)
    assert f"prompts/{name}" in reason
    assert "Private" not in reason
