"""`tandem bench publish` and `tandem bench run --publish` as their user meets them, against the local endpoint."""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from datetime import UTC, datetime

import pytest
from bench_cli import MODEL, Pair, Schedule
from bucket_specs import ENV, folders, write_environment
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, AnswerLossFault, FaultRule
from measured import arm, record, write_run
from planned import suite_file

from tandem.bench import manifest
from tandem.cli.program import main

pytestmark = [pytest.mark.endpoint, pytest.mark.usefixtures("no_page", "busy")]
ARMS = ("qwen-vllm", "qwen-sd-vllm")
APART = f"Tandem/Simulated/{ENV}"


@pytest.fixture
def bucket(endpoint, clients):
    """A bucket at an endpoint without values: those of another run in the same minute would be of the same series."""
    endpoint.reset()
    name, where = f"results-{uuid.uuid4().hex[:10]}", {"LocationConstraint": endpoint.region}
    clients[endpoint.url].create_bucket(Bucket=name, CreateBucketConfiguration=where)
    return name


@pytest.fixture
def world(specs, bucket, aws, endpoint, proxy, monkeypatch):  # noqa: ARG001 - the variables of aws are set
    """Specs whose environment has the test's bucket, and boto3 led through the fault proxy."""
    write_environment(specs, bucket)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, proxy.url)
    return specs


@pytest.fixture(scope="module")
def pair():
    made = Pair(Schedule(ttft_ms=5, step_ms=1, tokens=4))
    yield made
    made.end()


@pytest.fixture(scope="module")
def simulators():
    made = Pair(Schedule(ttft_ms=5, step_ms=1, tokens=4, simulated="1"))
    yield made
    made.end()


def measured(folder, class_="chat", **changes):
    """A folder of one round in which each arm answered twice, ten minutes ago."""
    records = [
        record(request_id=f"{name}-{number}", arm=name, class_=class_, start_s=1000.0 + number)
        for name in ARMS
        for number in range(2)
    ]
    began = datetime.fromtimestamp(time.time() - 600, tz=UTC).isoformat()
    clock = manifest.ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=1000.0, utc=began)
    arms = (arm(ARMS[0], role="baseline"), arm(ARMS[1]))
    return write_run(folder, records, **{"arms": arms, "clock": clock, "created_utc": began, **changes})


def publish(world, folder, *more, env=ENV):
    return main(["bench", "publish", str(folder), "--env", env, *folders(world), *more])


def values(endpoint, metric, class_, concurrency="4", hours=1, namespace=f"Tandem/{ENV}"):
    """How many values of each arm CloudWatch holds."""
    now = time.time()
    dimensions = {"Experiment": "post", "PromptClass": class_, "Concurrency": concurrency}
    return [
        sum(
            point["SampleCount"]
            for point in endpoint.client("cloudwatch").get_metric_statistics(
                Namespace=namespace, MetricName=metric, Period=60, Statistics=["SampleCount"],
                StartTime=now - hours * 3600, EndTime=now + 3600,
                Dimensions=[{"Name": key, "Value": value} for key, value in {**dimensions, "Variant": name}.items()],
            )["Datapoints"]
        )
        for name in ARMS
    ]  # fmt: skip


def objects(endpoint, bucket):
    found = endpoint.client("s3").list_objects_v2(Bucket=bucket, Prefix="results/post/")
    return sorted(row["Key"].split("/", 3)[3] for row in found.get("Contents", ()))


def test_a_folder_is_published_with_its_figures_and_its_files(world, tmp_path, endpoint, bucket, capsys):
    code = publish(world, measured(tmp_path / "out", "first"))

    assert (code, values(endpoint, "ttft_ms", "first"), values(endpoint, "requests", "first")) == (0, [2, 2], [1, 1])
    assert objects(endpoint, bucket) == ["manifest.json", "published/round-00000.jsonl", "records/round-00000.jsonl"]
    assert capsys.readouterr().out.startswith(f"1 round in 2 requests to Tandem/{ENV}, 2 objects to s3://{bucket}/")


def test_the_stored_records_are_those_of_the_folder(world, tmp_path, endpoint, bucket):
    folder = measured(tmp_path / "out", "stored")

    publish(world, folder)

    run = manifest.run_id(manifest.read_manifest(folder))
    key = f"results/post/{run}/records/round-00000.jsonl"
    stored = endpoint.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    assert stored == (folder / "records.jsonl").read_bytes()


def test_a_second_publish_sends_nothing_and_gives_0(world, tmp_path, endpoint, proxy):
    folder = measured(tmp_path / "out", "again")
    publish(world, folder)
    proxy.forget()

    assert publish(world, folder) == 0
    assert (proxy.requests("PutMetricData"), values(endpoint, "ttft_ms", "again")) == ((), [2, 2])


def test_json_says_what_was_sent(world, tmp_path, capsys):
    publish(world, measured(tmp_path / "out", "json"), "--json")

    said = json.loads(capsys.readouterr().out)
    assert (said["namespace"], said["rounds"], said["lost"], said["left"], said["exit_code"]) == (
        f"Tandem/{ENV}", [0], [], [], 0,
    )  # fmt: skip


def test_a_class_that_cloudwatch_refuses_gives_3_once(world, tmp_path, capsys):
    folder = measured(tmp_path / "out", "größe")

    codes = [publish(world, folder), publish(world, folder)]

    assert codes == [3, 0]
    assert "error: class 'größe' of round 0 is not in CloudWatch" in capsys.readouterr().err


def test_a_denied_call_gives_3_and_a_later_publish_completes(world, tmp_path, endpoint, proxy, capsys):
    folder = measured(tmp_path / "out", "denied")
    proxy.use(FaultRule(fault=ACCESS_DENIED_FAULT, operation="PutMetricData"))

    assert publish(world, folder) == 3
    assert "cloudwatch:PutMetricData" in capsys.readouterr().err
    proxy.use()
    assert publish(world, folder) == 0
    assert values(endpoint, "ttft_ms", "denied") == [2, 2]


@pytest.mark.parametrize(
    ("changes", "more", "said"),
    [
        ({"environment": "native-us-east-2", "experiment": "qwen3-native"}, (), "publish it there: --env native-us-e"),
        ({"environment": ENV, "experiment": "post"}, ("--experiment", "dev"), f"{ENV}/post were measured"),
        ({}, ("--experiment", "dev"), "hosts no experiment dev"),
        ({"arms": (arm("qwen-vllm", role="baseline"), arm("other"))}, (), "qwen-vllm, other"),
    ],
)
def test_a_run_that_is_not_the_environments_is_refused_and_nothing_is_asked(
    world, tmp_path, proxy, capsys, changes, more, said
):
    assert publish(world, measured(tmp_path / "out", **changes), *more) == 2

    assert said in capsys.readouterr().err
    assert proxy.log == ()


def test_simulated_figures_go_to_a_namespace_of_their_own(world, tmp_path, endpoint, bucket, capsys):
    folder = measured(tmp_path / "out", "apart", simulated=True)

    assert publish(world, folder, "--simulated") == 0
    assert values(endpoint, "ttft_ms", "apart", namespace=APART) == [2, 2]
    assert values(endpoint, "ttft_ms", "apart") == [0, 0]
    assert capsys.readouterr().out.startswith(f"1 round in 2 requests to {APART}, 2 objects to s3://{bucket}/")


@pytest.mark.parametrize(
    ("simulated", "flags", "said"),
    [
        (True, (), f"--simulated: an arm of this run is a simulated server; add it: figures go to {APART}"),
        (False, ("--simulated",), "--simulated: no arm of this run is a simulated server; drop it"),
        (None, ("--simulated",), "--simulated: this run does not say that an arm is a simulated server; drop it"),
    ],
)
def test_servers_of_another_kind_are_refused_and_nothing_is_asked(
    world, tmp_path, proxy, capsys, simulated, flags, said
):
    assert publish(world, measured(tmp_path / "out", simulated=simulated), *flags) == 2

    assert said in " ".join(capsys.readouterr().err.split())
    assert proxy.log == ()


def test_a_run_of_before_is_published_as_real_and_noted(world, tmp_path, endpoint, bucket, capsys):  # noqa: ARG001
    assert publish(world, measured(tmp_path / "out", "before", simulated=None)) == 0

    assert "note: nobody asked these servers whether they are simulated" in capsys.readouterr().err
    assert values(endpoint, "ttft_ms", "before") == [2, 2]


def test_an_environment_that_is_not_declared_is_refused(world, tmp_path):
    assert publish(world, measured(tmp_path / "out"), env="nowhere") == 2


def test_a_folder_without_a_manifest_is_refused(world, tmp_path, capsys):
    assert publish(world, tmp_path) == 2

    assert "the manifest cannot be read" in capsys.readouterr().err


def test_a_folder_that_a_run_writes_to_gives_3(world, tmp_path, capsys):
    folder = measured(tmp_path / "out")
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)

    code = publish(world, folder)
    os.close(held)

    assert code == 3
    assert "a run is writing to it" in capsys.readouterr().err


def run(world, pair, folder, class_, *more):
    """Measure the pair under the names of the experiment's variants."""
    one, other = (f"http://127.0.0.1:{server.port}" for server in pair.servers)
    folder.mkdir(exist_ok=True)
    suite = suite_file(folder, {class_: ["say one", "say two"]})
    return main([
        "bench", "run", "--baseline", f"{ARMS[0]}={one}", "--variant", f"{ARMS[1]}={other}", "--model", MODEL,
        "--suite", str(suite), "--concurrency", "2", "--warm-up", "0", "--rounds", "2", "--out", str(folder / "out"),
        *folders(world), *more,
    ])  # fmt: skip


def test_a_run_publishes_its_rounds_and_its_files(world, pair, tmp_path, endpoint, bucket):
    code = run(world, pair, tmp_path / "a", "running", "--publish", ENV, "--experiment", "post")

    assert (code, values(endpoint, "requests", "running", "2")) == (0, [2, 2])
    assert values(endpoint, "ttft_ms", "running", "2") == values(endpoint, "e2e_ms", "running", "2")
    names = objects(endpoint, bucket)
    assert {"manifest.json", "summary.json", "records/round-00000.jsonl", "records/round-00001.jsonl"} <= set(names)


def test_a_run_whose_publishing_fails_is_whole_and_gives_3_and_is_published_later(
    world, pair, tmp_path, endpoint, proxy, capsys
):
    proxy.use(FaultRule(fault=ACCESS_DENIED_FAULT, operation="PutMetricData"))

    code = run(world, pair, tmp_path / "a", "failing", "--publish", ENV, "--experiment", "post")

    folder = tmp_path / "a" / "out"
    assert (code, manifest.read_manifest(folder).ended.reason) == (3, "done")
    assert "not all of the run is published" in capsys.readouterr().err
    proxy.use()
    assert publish(world, folder, "--experiment", "post") == 0
    assert values(endpoint, "requests", "failing", "2") == [2, 2]


def test_a_run_settles_at_its_end_what_was_not_answered_between_its_rounds(world, pair, tmp_path, endpoint, proxy):
    proxy.use(FaultRule(fault=AnswerLossFault(), operation="PutMetricData", times=1))

    code = run(world, pair, tmp_path / "a", "settling", "--publish", ENV, "--experiment", "post")

    assert (code, proxy.fault_counts, values(endpoint, "requests", "settling", "2")) == (0, (1,), [2, 2])
    assert values(endpoint, "requests", "all", "2") == [2, 2]


def test_a_run_leaves_no_figure_of_rounds_that_wait(world, pair, tmp_path, endpoint):
    run(world, pair, tmp_path / "a", "waiting", "--publish", ENV, "--experiment", "post")

    now = time.time()
    waiting = endpoint.client("cloudwatch").get_metric_statistics(
        Namespace=f"Tandem/{ENV}", MetricName="unpublished_rounds", Period=60, Statistics=["Maximum"],
        StartTime=now - 300, EndTime=now + 300,
        Dimensions=[{"Name": "Experiment", "Value": "post"}, {"Name": "Variant", "Value": ARMS[0]},
                    {"Name": "PromptClass", "Value": "all"}, {"Name": "Concurrency", "Value": "all"}],
    )["Datapoints"]  # fmt: skip
    assert {point["Maximum"] for point in waiting} == {0.0}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--publish",), "no environment is named"),
        (("--publish", ENV, "--experiment", "dev"), "hosts no experiment dev"),
    ],
)
def test_a_run_that_cannot_be_published_is_refused_before_it_is_measured(world, pair, tmp_path, capsys, flags, said):
    pair.forget()

    assert run(world, pair, tmp_path / "a", "chat", *flags) == 2

    assert said in capsys.readouterr().err
    assert (pair.asked(), (tmp_path / "a" / "out").exists()) == ([], False)


def test_a_run_of_simulators_publishes_apart(world, simulators, tmp_path, endpoint):
    flags = ("--publish", ENV, "--experiment", "post", "--simulated")

    assert run(world, simulators, tmp_path / "a", "simulators", *flags) == 0
    assert values(endpoint, "requests", "simulators", "2", namespace=APART) == [2, 2]
    assert values(endpoint, "requests", "simulators", "2") == [0, 0]


@pytest.mark.parametrize(
    ("servers", "flags", "said"),
    [
        ("simulators", ("--publish", ENV, "--experiment", "post"), "an arm of this run is a simulated server"),
        ("pair", ("--publish", ENV, "--experiment", "post", "--simulated"), "no arm of this run is a simulated server"),
        ("simulators", ("--simulated",), "--simulated without --publish"),
    ],
)
def test_a_run_of_the_other_kind_is_refused_before_it_is_measured(
    world, request, tmp_path, capsys, servers, flags, said
):
    assert run(world, request.getfixturevalue(servers), tmp_path / "a", "chat", *flags) == 2

    assert said in capsys.readouterr().err
    assert not (tmp_path / "a" / "out").exists()


def test_another_environment_than_that_of_the_servers_is_refused(world, tmp_path, capsys):
    flags = ["--env", ENV, "--experiment", "post", "--publish", "dev", "--out", str(tmp_path / "out")]

    assert main(["bench", "run", *flags, *folders(world)]) == 2

    assert "dev is another environment than that of --env" in capsys.readouterr().err
