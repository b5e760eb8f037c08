"""A start that sleeps touches nothing of whoever has the fleet when it wakes."""

from __future__ import annotations

import pytest
from guard_world import GUARDED, refused

from tandem.errors import ExternalError, InputError
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, lease_key, read_lease, read_pointer
from tandem.guard.ownership import MAX_READING_AGE_S, LeaseOwner
from tandem.guard.schedules import delete_unreferenced_schedule


@pytest.fixture
def usurp(halt, lift, start, passes):
    """Run b takes the fleet from run a: a stop, a release and a start between two calls."""

    def act():
        halt()
        passes(10)
        lift()
        start("b", hours=1, nodes=1, node_labels={"raise.tandem/slow": "second"})

    return act


SLEEPS = ["scheduler.create_schedule", "scheduler.get_schedule", "eks.update_nodegroup_config"]


@pytest.mark.parametrize("operation", SLEEPS)
def test_a_start_that_wakes_leaves_no_stop_of_its_own(world, start, usurp, operation):
    """It would end the present run."""
    world.interrupt(usurp, operation)
    with pytest.raises((InputError, ExternalError)):
        start("a", hours=8, nodes=2)
    assert set(world.schedules) == {"stop-b"}


@pytest.mark.parametrize("operation", SLEEPS[:2])
def test_a_start_that_wakes_before_it_reads_raises_nothing(world, start, usurp, operation):
    world.interrupt(usurp, operation)
    with pytest.raises(
        (InputError, ExternalError),
        match=r"run b has the fleet now|arming the one-shot stop failed",
    ):
        start("a", hours=8, nodes=2)
    assert (world.desired_size, world.group["labels"]["raise.tandem/slow"]) == (1, "second")


def test_the_reaper_ends_a_raise_in_the_gap_within_two_passes_and_the_grace(
    world, start, usurp, passes
):
    world.interrupt(usurp, "eks.update_nodegroup_config")
    with pytest.raises(InputError, match="another start has the fleet now"):
        start("a", hours=8, nodes=2)
    passes(20)

    assert (world.desired_size, world.alive) == (0, [])


def test_a_clock_that_moved_since_the_reading_makes_it_read_again(world, start):
    start("r1")
    pointer = read_pointer(world.clients, GUARDED)
    lease, _ = read_lease(world.clients, GUARDED, pointer)
    owner = LeaseOwner(world.clients, GUARDED, pointer, lease)
    world.interrupt(lambda: world.advance((MAX_READING_AGE_S + 1) / 60), "s3.get_object", skip=2)
    before = world.calls["s3.get_object"]
    owner.call_as_owner(lambda: None, RuntimeError)

    assert world.calls["s3.get_object"] - before == 6


def test_a_clock_that_always_moves_acts_on_nothing(world, start):
    start("r1")
    pointer = read_pointer(world.clients, GUARDED)
    lease, _ = read_lease(world.clients, GUARDED, pointer)
    world.between = lambda _: world.advance(1)

    with pytest.raises(ExternalError, match="to read whose fleet it is took more than 30 s"):
        LeaseOwner(world.clients, GUARDED, pointer, lease).call_as_owner(pytest.fail, RuntimeError)


def test_two_starts_of_one_run_leave_the_fleet_to_the_later(world, start):
    world.interrupt(lambda: start("r1"), "scheduler.create_schedule")
    with pytest.raises(InputError, match="another start of run r1 took over"):
        start("r1")
    assert (world.desired_size, set(world.schedules)) == (1, {"stop-r1"})


def test_the_schedule_of_the_run_that_the_pointer_names_stays(world, start):
    start("r1")
    assert not delete_unreferenced_schedule(world.clients, GUARDED, "r1")
    assert set(world.schedules) == {"stop-r1"}


def test_a_schedule_is_kept_where_the_pointer_changed_while_it_was_read(world, start):
    start("r1", hours=8)
    world.put(POINTER_KEY, {"schema": 1, "run": None})
    clients = world.clients
    get_object = clients.s3.get_object

    def get_and_sleep(**request):
        answer = get_object(**request)
        world.put(POINTER_KEY, {"schema": 1, "run": "r1"})
        world.advance(1)
        return answer

    clients.s3.get_object = get_and_sleep
    assert not delete_unreferenced_schedule(clients, GUARDED, "r1")
    assert set(world.schedules) == {"stop-r1"}


def test_a_release_ends_the_pointer_that_it_saw_alone(world, start, halt, lift, passes):
    """A release that slept would take the lease of the run that came meanwhile."""
    start("a")
    halt()
    passes(10)

    world.interrupt(lambda: (lift(), start("b")), "s3.put_object")
    with pytest.raises(ExternalError, match="so it is not lifted"):
        lift()
    assert world.read(POINTER_KEY)["run"] == "b"


def test_a_release_deletes_the_stop_of_the_lease_that_it_ends(world, start, halt, lift, passes):
    start("a", hours=8)
    halt()
    passes(10)
    lift()

    assert world.schedules == {}


def test_a_release_that_died_behind_its_first_write_is_finished_by_the_next(
    world, start, halt, lift, passes
):
    start("a", hours=8)
    halt()
    passes(10)
    world.put(POINTER_KEY, {"schema": 1, "run": None})
    lift()

    assert (world.schedules, world.read(FENCE_KEY)["state"]) == ({}, "lifted")
    assert world.read(lease_key("a"))["ending"] is not None


@pytest.mark.parametrize(
    ("name", "word"), [("every-hour", "every-hour"), ("x; curl evil", "'x; curl evil'")]
)
def test_a_start_beside_a_schedule_that_no_lease_owns_is_refused(world, start, name, word):
    world.schedules[name] = {
        "GroupName": GUARDED.schedule_group,
        "Name": name,
        "ScheduleExpression": "at(2030-01-01T00:00:00)",
        "Target": {"Arn": "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig"},
    }

    with pytest.raises(InputError, match="no lease owns it") as refusal:
        start("r1")
    assert refusal.value.change.endswith(
        f"aws scheduler delete-schedule --group-name tandem-home --name {word} --region us-east-2"
    )
    assert lease_key("r1") not in world.objects


def test_a_start_without_an_armed_path_says_so_in_lease_and_topic(world, start):
    start("r1", unarmed_paths=("reaper", "budget"))
    assert world.read(lease_key("r1"))["unarmed"] == ["reaper", "budget"]
    assert world.messages[0]["subject"] == "Tandem home: a start accepted unarmed paths"
    assert "these paths would not stop its fleet: reaper, budget" in world.messages[0]["text"]


def test_a_start_that_cannot_tell_of_unarmed_paths_raises_nothing(world, start):
    world.down = {"sns"}
    with pytest.raises(ExternalError, match="telling people that paths are not armed failed"):
        start("r1", unarmed_paths=("reaper",))
    assert (world.desired_size, world.schedules, world.read(POINTER_KEY)["run"]) == (0, {}, None)


def test_a_lost_answer_of_the_schedule_is_asked_for_again(world, start):
    create = world._create

    def create_and_lose(**request):
        world._create = create
        create(**request)
        raise OSError("the answer is lost")

    world._create = create_and_lose
    start("r1")

    assert set(world.schedules) == {"stop-r1"}


def test_a_schedule_of_which_the_answer_is_lost_goes_with_its_lease(world, start):
    create = world._create

    def create_and_refuse(**request):
        create(**request)
        raise refused("AccessDeniedException", "CreateSchedule")

    world._create = create_and_refuse
    with pytest.raises(ExternalError, match="arming the one-shot stop failed"):
        start("r1")

    assert world.schedules == {}


def test_a_raise_that_is_repeated_reads_first_whose_fleet_it_is(world, start, usurp):
    """The machine slept while the call was under way, and woke to a socket that had timed out."""
    update = world._update

    def sleep_and_time_out(**_request):
        world._update = update
        usurp()
        raise OSError("timed out")

    world._update = sleep_and_time_out
    with pytest.raises(InputError, match="run b has the fleet now"):
        start("a", hours=8, nodes=2)

    assert world.desired_size == 1
    assert "stop-b" in world.schedules


def test_no_command_deletes_the_stop_of_the_present_run(world, start):
    """A start with an old look at the lease names whoever has the fleet, not his stop."""
    world.interrupt(lambda: start("b"), "autoscaling.describe_auto_scaling_groups")
    with pytest.raises(InputError, match="run b has the fleet now") as refusal:
        start("a")
    assert "delete-schedule" not in str(refusal.value)


def test_a_lease_that_names_another_runs_stop_is_none(world, start):
    start("r1")
    world.change(lease_key("r1"), schedule="stop-b")
    assert read_lease(world.clients, GUARDED, read_pointer(world.clients, GUARDED))[0] is None


def test_labels_that_a_sleeping_start_set_are_taken_off(world, start):
    stray = {"compile.tandem/experiment": "stray"}
    world.interrupt(lambda: world.group["labels"].update(stray), "eks.update_nodegroup_config")
    start("r1")
    assert "compile.tandem/experiment" not in world.group["labels"]


def test_a_stop_that_slept_until_its_fence_was_released_leaves_the_next_run(
    world, start, halt, lift, passes
):
    start("a")

    put = world._put

    def put_and_sleep(**request):
        answer = put(**request)
        if request["Key"] == FENCE_KEY:
            world._put = put
            world.want(0)
            passes(15)
            lift()
            start("b")
        return answer

    world._put = put_and_sleep
    report = halt()

    assert world.desired_size == 1
    assert report.actions[-1] == "the fence was released meanwhile, so nothing more is stopped"


def test_an_accepted_path_enters_the_lease_of_a_repeated_start(world, start):
    start("r1")
    start("r1", unarmed_paths=("budget",))
    assert world.read(lease_key("r1"))["unarmed"] == ["budget"]
