"""What the runner takes and refuses: who asks is the folder, and nothing but a request of an hour
ago is done."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from virtual_world import FULL_BUCKET, RUN, WHO, VirtualWorld

from rehearsal.cluster.pods import PodScript
from tandem.run.journal import LostRunError
from tandem.run.run_keys import request_key, run_record_key


@pytest.fixture
def world():
    return VirtualWorld(stored=FULL_BUCKET)


def refuse(world, key):
    """Return the reason of a refusal; nothing was begun."""
    world.look()
    answer = world.read_answer(key)
    assert answer["is_accepted"] is False
    assert world.runner.engine is None
    assert not world.account.machines
    return answer["reason"]


def put(world, body, *, who=WHO, stem=RUN):
    key = request_key(who, stem)
    world.account.put(key, body if isinstance(body, bytes) else json.dumps(body).encode())
    return key


def age_request(world, key, hours):
    """Let a request have been written some hours ago."""
    body, etag, _ = world.account.objects[key]
    world.account.objects[key] = (body, etag, world.account.now - timedelta(hours=hours))


def test_not_json(world):
    assert "not a request" in refuse(world, put(world, b"\x00no"))


def test_five_megabytes_are_not_even_read(world):
    assert "bytes, and a request has at most 65536" in refuse(world, put(world, b" " * 5_000_000))


def test_forged_who_is_an_unknown_field(world):
    key = world.ask()
    body = world.account.read(key)
    assert "`who`" in refuse(world, put(world, {**body, "who": "AROAADMIN:root"}))


def test_who_is_the_folder(world):
    world.ask(who="AROAOTHER:berta")
    world.look()
    assert world.read_run()["who"] == "AROAOTHER:berta"


def test_yesterdays_request(world):
    key = world.ask()
    age_request(world, key, hours=25)
    assert "more than an hour old when it was first seen" in refuse(world, key)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"environment": "other"}, "it is for environment other"),
        ({"experiment": "none"}, "knows no experiment 'none'"),
        ({"spec_digest": "0" * 16}, "the specs of post differ"),
        ({"run": "llmperf"}, "folder of Tandem's own"),
        ({"run": "../lease", "stem": "x"}, "names no run"),
        ({"stem": "post-2"}, "is not that of a run of run"),
        ({"starts": 9}, "starts of each server"),
        ({"kind": "cancel"}, "there is no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_request_that_cannot_be_done_is_refused(world, fields, reason):
    assert reason in refuse(world, world.ask(**fields))


def test_run_that_exists(world):
    world.ask()
    world.live()
    assert world.hear(who="AROAOTHER:berta")["reason"] == f"run {RUN} exists already"


def test_resume_of_a_run_that_does_not_wait(world):
    world.ask()
    world.live()
    assert "only a waiting run can be resumed" in world.hear("resume")["reason"]


def test_two_runners_the_first_loses(world):
    world.look()
    first = world.runner
    world.runner = world.start_runner()
    world.look()
    first._beaten_at = None
    with pytest.raises(LostRunError):
        first.look()


def test_waiting_run_may_be_cancelled():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.scripts["tandem-measure"] = PodScript(run_s=1500)
    world.ask(hours=2)
    assert world.live()["state"] == "waiting"
    world.ask("cancel")
    world.look()
    assert world.read_run()["state"] == "cancelled"


def test_results_of_another_run_of_this_name_are_refused(world):
    world.account.put(f"results/post/{RUN}/rounds/00000/1/round.json", b"{}")
    assert "holds the results of another run of this name" in refuse(world, world.ask())


def test_cancel_is_never_too_late(world):
    world.ask()
    world.look()
    key = world.ask("cancel")
    age_request(world, key, hours=2)
    assert world.live()["state"] == "cancelled"


def test_resume_in_which_no_round_fits(world):
    world.scripts["tandem-measure"] = PodScript(run_s=3600)
    world.ask(hours=3)
    assert world.live()["state"] == "waiting"
    answer = world.hear("resume", hours=1.25)
    assert "1.25 times the longest round so far" in answer["reason"]


def lose_answers(world):
    """Let the first answer that is written arrive, and its own answer not."""
    put = world.account._put

    def lose(**request):
        result = put(**request)
        if request["Key"].endswith(".answer.json"):
            world.account._put = put
            raise EndpointConnectionError(endpoint_url="https://s3.us-east-2.amazonaws.com")
        return result

    world.account._put = lose
    world.runner = world.start_runner()


def test_run_whose_answer_was_lost_goes_on(world):
    lose_answers(world)
    world.ask()
    world.look()
    assert world.live()["state"] == "judged"


def put_junk(world, count):
    return [put(world, b"no", stem=f"junk-{number:03}") for number in range(count)]


def put_engineers_cancels(world):
    keys = [f"stage-requests/AROAENGINEER:eva/junk-{number}.cancel.json" for number in range(20)]
    for key in keys:
        world.account.put(key, b"no")
    return keys


def test_one_request_is_taken_at_a_look(world):
    first_key, *other_keys = put_junk(world, 3)
    world.look()
    assert world.read_answer(first_key)["is_accepted"] is False
    assert [world.read_answer(key) for key in other_keys] == [None, None]


@pytest.mark.parametrize(
    "put_others",
    [lambda world: put_junk(world, 300), put_engineers_cancels],
    ids=["requests", "cancels of engineers"],
)
def test_an_operators_cancel_goes_before_older_requests(world, put_others):
    world.ask()
    world.look()
    other_keys = put_others(world)
    world.pass_time(60)
    world.ask("cancel")
    world.look()
    assert world.read_run()["cancelled_by"] == WHO
    assert not any(map(world.read_answer, other_keys))


def deny_reads(world, key):
    """Refuse every read of an object to a new runner, as the key of its encryption may."""
    get = world.account._get

    def deny(**request):
        if request["Key"] == key:
            raise ClientError(
                {"Error": {"Code": "AccessDenied", "Message": "of its key"}}, "GetObject"
            )
        return get(**request)

    world.account._get = deny
    world.runner = world.start_runner()


def test_request_that_cannot_be_read_lets_later_ones_go_first(world):
    unread_key, *junk_keys = put_junk(world, 3)
    deny_reads(world, unread_key)
    for _ in range(3):
        world.look()
    assert all(map(world.read_answer, junk_keys))


def test_cancel_of_an_unreadable_run_is_refused(world):
    world.account.put(run_record_key(RUN), b'{"schema": 9}')
    assert "it has schema 9" in world.hear("cancel")["reason"]
