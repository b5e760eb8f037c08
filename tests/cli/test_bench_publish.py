"""`tandem bench publish` and `tandem bench run --publish` as their user meets them, against the
local endpoint."""

from __future__ import annotations

import fcntl
import json
import os
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from bench_cli import MODEL, Pair, Schedule
from bucket_specs import ENV, folders, write_environment
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule
from measured import arm, record, write_run
from planned import suite_file
from published_run import make_results_bucket, read_statistic

from tandem.bench.records import manifest
from tandem.cli import publish as publish_command
from tandem.cli.program import main

pytestmark = [pytest.mark.endpoint, pytest.mark.usefixtures("no_page", "busy")]
ARMS = ("qwen-vllm", "qwen-sd-vllm")
APART = f"Tandem/Simulated/{ENV}"


@pytest.fixture
def bucket(endpoint, clients):
    """A bucket at an endpoint without values."""
    return make_results_bucket(endpoint, clients)


@pytest.fixture
def world(specs, bucket, aws, endpoint, proxy, monkeypatch):  # noqa: ARG001 - the variables of aws are set
    """Specs whose environment has the test's bucket, and boto3 led through the fault proxy."""
    write_environment(specs, bucket)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, proxy.url)
    return specs


@pytest.fixture(scope="module")
def simulators():
    servers = Pair(Schedule(ttft_ms=5, step_ms=1, tokens=4, simulated="1"))
    yield servers
    servers.end()


def measured(folder, class_="chat", **changes):
    """A folder of one round in which each arm answered twice, ten minutes ago."""
    records = [
        record(request_id=f"{name}-{number}", arm=name, class_=class_, start_s=1000.0 + number)
        for name in ARMS
        for number in range(2)
    ]
    began = datetime.fromtimestamp(time.time() - 600, tz=UTC).isoformat()
    clock = manifest.ClockReading(
        source="monotonic", resolution_s=1e-9, monotonic_s=1000.0, utc=began
    )
    arms = (arm(ARMS[0], role="baseline"), arm(ARMS[1]))
    return write_run(
        folder, records, **{"arms": arms, "clock": clock, "created_utc": began, **changes}
    )


def publish(world, folder, *flags):
    return main(["bench", "publish", str(folder), "--env", ENV, *folders(world), *flags])


def read_arms(
    endpoint, metric, class_, concurrency="4", namespace=f"Tandem/{ENV}", statistic="SampleCount"
):
    """A statistic of each arm in these hours, as CloudWatch shows it: by default how many values it
    holds."""
    dimensions = [
        (
            ("Experiment", "post"),
            ("Variant", name),
            ("PromptClass", class_),
            ("Concurrency", concurrency),
        )
        for name in ARMS
    ]
    keys = [(metric, dimension, int(time.time()) // 3600 * 3600 - 3600) for dimension in dimensions]
    return list(read_statistic(endpoint, namespace, keys, statistic, 3 * 3600).values())


def list_objects(endpoint, bucket):
    rows = endpoint.client("s3").list_objects_v2(Bucket=bucket, Prefix="results/post/")
    return sorted(row["Key"].split("/", 3)[3] for row in rows.get("Contents", ()))


def test_a_folder_is_published_once(world, tmp_path, endpoint, bucket, proxy, capsys):
    folder = measured(tmp_path / "out", "first")

    assert publish(world, folder) == 0
    assert capsys.readouterr().out.startswith(
        f"1 round in 2 requests to Tandem/{ENV}, 2 objects to s3://{bucket}/"
    )
    assert list_objects(endpoint, bucket) == [
        "manifest.json",
        f"published/{ENV}/round-00000.json",
        "records/round-00000.jsonl",
    ]
    key = (
        f"results/post/{manifest.run_id(manifest.read_manifest(folder))}/records/round-00000.jsonl"
    )
    records = endpoint.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    assert records == (folder / "records.jsonl").read_bytes()

    proxy.forget()
    assert publish(world, folder) == 0
    assert proxy.requests("PutMetricData") == ()
    assert [read_arms(endpoint, metric, "first") for metric in ("ttft_ms", "requests")] == [
        [2, 2],
        [1, 1],
    ]


@pytest.mark.parametrize(
    ("changes", "flags", "problem"),
    [
        (
            {"environment": "native-us-east-2", "experiment": "qwen3-native"},
            (),
            "publish it there: --env native-us-e",
        ),
        (
            {"environment": ENV, "experiment": "post"},
            ("--experiment", "dev"),
            f"{ENV}/post were measured",
        ),
        (
            {"arms": (arm("qwen-vllm", role="baseline"), arm("other"))},
            (),
            "other, qwen-vllm are variants of 0",
        ),
        ({"simulated": True}, (), f"add it: figures go to {APART}"),
        ({"simulated": False}, ("--simulated",), "no arm of this run is a simulated server"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_asked(
    world, tmp_path, proxy, capsys, changes, flags, problem
):
    assert publish(world, measured(tmp_path / "out", **changes), *flags) == 2
    assert problem in " ".join(capsys.readouterr().err.split())
    assert proxy.log == ()


def test_simulated_figures_go_to_a_namespace_of_their_own(world, tmp_path, endpoint, capsys):
    assert (
        publish(world, measured(tmp_path / "out", "apart", simulated=True), "--simulated", "--json")
        == 0
    )

    report = json.loads(capsys.readouterr().out)
    assert {
        key: report[key]
        for key in ("namespace", "rounds", "batches", "objects", "lost", "left", "exit_code")
    } == {
        "namespace": APART,
        "rounds": [0],
        "batches": 2,
        "objects": 2,
        "lost": [],
        "left": [],
        "exit_code": 0,
    }
    assert [
        read_arms(endpoint, "ttft_ms", "apart", namespace=space)
        for space in (APART, f"Tandem/{ENV}")
    ] == [
        [2, 2],
        [0, 0],
    ]


def test_a_folder_that_another_process_holds_gives_3(world, tmp_path, capsys):
    folder = measured(tmp_path / "out")
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    codes = [publish(world, folder)]
    os.close(descriptor)
    codes.append(publish(world, folder))

    assert codes == [3, 0]
    assert "a run is writing to it, or another process publishes it" in capsys.readouterr().err


def run(world, servers, folder, class_, *flags):
    """Measure the servers under the names of the experiment's variants."""
    urls = [f"http://127.0.0.1:{server.port}" for server in servers.servers]
    folder.mkdir(exist_ok=True)
    suite = suite_file(folder, {class_: ["say one", "say two"]})
    return main(
        [
            "bench",
            "run",
            "--baseline",
            f"{ARMS[0]}={urls[0]}",
            "--variant",
            f"{ARMS[1]}={urls[1]}",
            "--model",
            MODEL,
            "--suite",
            str(suite),
            "--concurrency",
            "2",
            "--warm-up",
            "0",
            "--rounds",
            "2",
            "--out",
            str(folder / "out"),
            *folders(world),
            *flags,
        ]
    )


PUBLISH = ("--publish", ENV, "--experiment", "post")


def test_a_run_publishes_its_rounds_and_files(world, servers, tmp_path, endpoint, bucket):
    assert run(world, servers, tmp_path / "a", "running", *PUBLISH) == 0

    assert read_arms(endpoint, "requests", "running", "2") == [2, 2]
    assert read_arms(endpoint, "ttft_ms", "running", "2") == read_arms(
        endpoint, "e2e_ms", "running", "2"
    )
    names = list_objects(endpoint, bucket)
    assert {
        "manifest.json",
        "summary.json",
        "records/round-00000.jsonl",
        "records/round-00001.jsonl",
    } <= set(names)
    assert min(read_arms(endpoint, "unpublished_rounds", "all", "all")) > 0
    assert read_arms(endpoint, "unpublished_rounds", "all", "all", statistic="Maximum") == [0, 0]


def test_an_unpublished_run_is_whole_and_gives_3(world, servers, tmp_path, endpoint, proxy, capsys):
    proxy.use(FaultRule(fault=ACCESS_DENIED_FAULT, operation="PutMetricData"))
    folder = tmp_path / "a" / "out"

    assert run(world, servers, folder.parent, "failing", *PUBLISH) == 3

    assert manifest.read_manifest(folder).ended.reason == "done"
    assert "not all of the run is published" in capsys.readouterr().err
    proxy.use()
    assert publish(world, folder, "--experiment", "post") == 0
    assert read_arms(endpoint, "requests", "failing", "2") == [2, 2]


def test_an_unfinished_publish_gives_3_and_earlier_losses(tmp_path, monkeypatch, capsys):
    target = (SimpleNamespace(region="us-east-2"), None)
    codes = []
    publisher = publish_command.RoundPublisher(
        target=target, folder=measured(tmp_path / "out"), is_simulation=False
    )
    publisher._losses.append("class lost")
    monkeypatch.setattr(
        publish_command, "connect", lambda *_, **__: codes.append(publisher.finish())
    )

    with pytest.raises(AttributeError):
        publisher(0, 0.0)

    assert codes == [3]
    assert (
        "class lost\nerror: not all of the run is published: the last call was left alone"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("pair", "flags", "problem"),
    [
        ("servers", ("--publish",), "no environment is named"),
        ("simulators", PUBLISH, "an arm of this run is a simulated server"),
        ("simulators", ("--simulated",), "--simulated without --publish"),
    ],
)
def test_an_unpublishable_run_is_refused_before_it_is_measured(
    world, request, tmp_path, capsys, pair, flags, problem
):
    assert run(world, request.getfixturevalue(pair), tmp_path / "a", "chat", *flags) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "a" / "out").exists()


def test_another_environment_than_that_of_the_servers_is_refused(world, tmp_path, capsys):
    flags = [
        "--env",
        ENV,
        "--experiment",
        "post",
        "--publish",
        "dev",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(["bench", "run", *flags, *folders(world)]) == 2
    assert "dev is another environment than that of --env" in capsys.readouterr().err
