"""A whole life of a run in virtual time: the guard's account in memory, a rehearsed cluster, and
Jobs that leave files.

It simulates: models and artifacts are names in two sets, a measure Job leaves a `round.json`, a
judge Job a `judgment.json`, and a server is ready some minutes after it has devices. What it does
not simulate: what a bench measures, HTTP, processes. Those are in tests/rehearsal. Invariant:
nothing but `pass_time` moves the clock; every call of AWS and of Kubernetes may be the last one of
a runner.
"""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
from botocore.exceptions import ClientError, EndpointConnectionError
from chart_cases import EXPERIMENTS, render_charts, stages
from committed import workspace
from guard_world import GUARDED, Crash, World

from rehearsal.cluster.cluster import RehearsalCluster
from rehearsal.cluster.controllers import is_ready
from rehearsal.cluster.pods import PodScript, VirtualPods
from rehearsal.cluster.store import ApiError
from tandem.artifacts.store import ObjectStore
from tandem.artifacts.survey import SurveyRow
from tandem.bench.load.circuit_breaker import MAX_WAIT_S
from tandem.declarations import names
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.experiment import Experiment
from tandem.declarations.spec_digest import compute_spec_digest
from tandem.declarations.variant_key import compute_artifact_key
from tandem.errors import ExternalError
from tandem.guard.apply import run_reaper_pass
from tandem.guard.pass_metrics import PASS_MINUTES
from tandem.ops.stop_paths import StopPath
from tandem.run.run_keys import (
    JUDGMENT_FILE,
    ROUND_FILE,
    answer_key,
    request_key,
    results_prefix,
    round_prefix,
    run_record_key,
)
from tandem.run.run_values import (
    SILENT_EXIT_CODE,
    TASK_VARIABLE,
    BenchTask,
    JudgmentResult,
    RoundResult,
    RunRequest,
)
from tandem.run.run_world import RunWorld
from tandem.run.runner import Runner
from tandem.run.task_settings import build_task_settings

CATALOGUE = load_catalogue()
_RECORD = workspace().environments["post-us-east-2"].record
ENVIRONMENT = _RECORD.model_copy(  # the committed one waits for the id of a block
    update={
        "capacity": _RECORD.capacity.model_copy(update={"reservation_id": "cr-0123456789abcdef0"})
    }
)
EXPERIMENT = workspace().experiments["post"].record
NAMESPACE = names.experiment_namespace(EXPERIMENT)
BASELINE = "qwen-vllm"
VARIANT = "qwen-sd-vllm"
WHO = "AROAEXAMPLE:anna"
RUN = "post-1"
LOOK_S = 30
REAPER_SPAN = timedelta(minutes=PASS_MINUTES)
PROBE_S = 10  # in which a measure Job probes its servers; then it waits for one that goes down
GUARD = replace(GUARDED, nodes=1)


def list_artifacts(experiment):
    """Return CronJob -> prefix of the artifact that it compiles, for every variant."""
    keys = [
        compute_artifact_key(experiment, variant, CATALOGUE)
        for variant in experiment.all_variants()
    ]
    return {names.compile_job_name(key): key.prefix for key in keys}


def list_models(experiment):
    """Return CronJob -> prefix of the model that it stages."""
    models = [CATALOGUE.models[name] for name in experiment.all_models()]
    return {names.stage_job_name(model): model.prefix() for model in models}


MODELS = list_models(EXPERIMENT)
ARTIFACTS = list_artifacts(EXPERIMENT)
FULL_BUCKET = frozenset({*MODELS.values(), *ARTIFACTS.values()})

NEURON_TAINT = {"key": names.NEURON_TAINT, "value": "present", "effect": "NoSchedule"}
STARTUP_TAINT = {"key": names.STARTUP_TAINT, "effect": "NoExecute"}
# of devices 0-7 and 8-15 of a trn2.48xlarge: facts of the driver
GROUP_IDS = ("3593812b8066a078", "614e16dab9ba2f1f")


class VirtualAccount(World):
    """The guard's account, with lists and plain writes of S3."""

    @property
    def clients(self):
        def paginate(*, Bucket, Prefix, PaginationConfig):  # noqa: ARG001, N803 - as boto3 has them
            return [self._list_keys(Bucket=Bucket, Prefix=Prefix)]

        s3 = SimpleNamespace(
            get_object=self._get_dated,
            head_object=self._head,
            put_object=self._put_any,
            list_objects_v2=self._list_keys,
            get_paginator=lambda _: SimpleNamespace(paginate=paginate),
        )
        return replace(super().clients, s3=s3)

    def _get_dated(self, **request: Any) -> Any:
        return self._get(**request) | {
            "ResponseMetadata": {"HTTPHeaders": {"date": format_datetime(self.now)}}
        }

    def _head(self, **request: Any) -> Any:
        return {"ContentLength": len(self._get(**request)["Body"].read()), "Metadata": {}}

    def _put_any(self, **request: Any) -> Any:
        if "IfMatch" in request or "IfNoneMatch" in request:
            return self._put(**request)
        return self._call(
            "s3.put_object", lambda: {"ETag": self.put(request["Key"], request["Body"])}
        )

    def _list_keys(self, *, Bucket, Prefix, Delimiter="", ContinuationToken=""):  # noqa: N803 - as boto3 has them
        def effect():
            assert (Bucket, ContinuationToken) == (GUARDED.bucket, "")
            keys = sorted(key for key in self.objects if key.startswith(Prefix))
            if Delimiter:
                folders = {
                    Prefix + key.removeprefix(Prefix).partition("/")[0] + "/" for key in keys
                }
                return {"CommonPrefixes": [{"Prefix": folder} for folder in sorted(folders)]}
            return {
                "Contents": [
                    {
                        "Key": key,
                        "Size": len(self.objects[key][0]),
                        "LastModified": self.objects[key][2],
                    }
                    for key in keys
                ]
            }

        return self._call("s3.list_objects_v2", effect)


class StoreCluster:
    """The cluster as the runner asks it, without HTTP; each call may be the runner's last."""

    def __init__(self, world):
        self.world, self.calls = world, set()

    def _call(self, verb, kind, effect):
        self.calls.add((verb, kind))
        if self.world.cluster_down:
            raise ExternalError("Kubernetes did not answer", change="wait")
        try:
            return self.world.account._call(
                f"kubernetes.{verb}", functools.partial(self._convert, effect)
            )
        except (ClientError, EndpointConnectionError) as error:  # as the account's faults have it
            raise ExternalError(
                f"Kubernetes refused to {verb} {kind}: {error}", change="wait"
            ) from error

    def _convert(self, effect):
        try:
            return effect()
        except ApiError as error:
            if error.status in {404, 409}:
                return None
            raise

    def get_object(self, kind, namespace, name):
        return self._call("get", kind, lambda: self.world.store.get_object(kind, namespace, name))

    def list_objects(self, kind, namespace="", labels=None):
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        place = namespace or None
        return self._call(
            "list",
            kind,
            lambda: self.world.store.list_objects(kind, place, label_selector=selector),
        )

    def create_job(self, namespace, body):
        self._call(
            "create", "jobs", lambda: self.world.store.create_object("jobs", namespace, body)
        )

    def delete_job(self, namespace, name):
        self._call(
            "delete", "jobs", lambda: self.world.store.delete_object("jobs", namespace, name)
        )

    def scale_deployment(self, namespace, name, replicas):
        patch = {"spec": {"replicas": replicas}}
        store = self.world.store
        self._call(
            "patch",
            "deployments/scale",
            lambda: store.patch_object("deployments", namespace, name, patch),
        )

    def read_log(self, namespace, pod, container):
        return self._call("get", "pods/log", lambda: f"{container} of {namespace}/{pod}\n")


class VirtualWorld:
    """One environment, its cluster and one runner; the runner may be replaced at any moment.

    Attributes:
        scripts: name of a CronJob or of a server -> what its pods do, in place of what DEFAULTS
            say.
        stored: prefixes of models and artifacts that the bucket has.
        cluster_down: whether the Kubernetes API answers nothing.
        node_devices: how many devices a node shows.
        gives_nodes, gives_labels: whether instances join, and whether a relabel reaches the node.
        startup_taint_s: how long a node has the startup taint, from its join.
        leaves_answers: whether a quality Job that fails has stored its answers before.
        look_s: time from one look of the runner to the next.
        has_reaper: whether the guard's reaper passes every five minutes; `passes` counts them.
        spoiled: uid of a pod -> what it does in place of its script.
    """

    experiment: ClassVar[Experiment] = EXPERIMENT
    DEFAULTS: ClassVar[dict[str, PodScript]] = {
        "stage": PodScript(run_s=60),
        "compile": PodScript(run_s=120),
        "tandem-measure": PodScript(run_s=90),
        "tandem-judge": PodScript(run_s=30),
        "qwen-llmperf": PodScript(run_s=90),
        "tandem-quality": PodScript(run_s=90),
        BASELINE: PodScript(ready_after_s=60, stop_s=5),
        VARIANT: PodScript(ready_after_s=60, stop_s=5),
    }

    def __init__(self, **settings):
        self.account = VirtualAccount(start_s=120, stop_s=60)
        self.account.group["scalingConfig"]["maxSize"] = 1
        self.scripts: dict[str, PodScript] = {}
        self.stored: set[str] = set()
        self.startup_taint_s = 30
        self.cluster_down = False
        self.gives_nodes = True
        self.gives_labels = True
        self.node_devices = 16
        self.is_void = False
        self.leaves_records = True
        self.leaves_answers = False
        self.look_s = LOOK_S
        self.has_reaper = True
        self.reaped_at = None
        self.passes = 0
        self.spoiled: dict[str, PodScript] = {}
        self.paths: list[StopPath] = [
            StopPath("reaper", "armed", "looks"),
            StopPath("budget", "armed", "is there"),
        ]
        self.log: list[str] = []
        self.runner_number, self.seen_pods = 0, set[str]()
        self.measure_images: list[str] = []
        for name, value in settings.items():
            setattr(self, name, value)
        self.stored = set(self.stored)
        clock = SimpleNamespace(now=lambda: self.account.now)
        self.cluster = RehearsalCluster(clock, lambda now: VirtualPods(now, self.find_script))
        self.store = self.cluster.store
        self.api = StoreCluster(self)
        self._load_manifests()
        self.settle()
        self.runner = self.start_runner()

    # cluster

    def _load_manifests(self):
        kinds = {"Deployment": "deployments", "CronJob": "cronjobs", "Service": "services"}
        kinds["ResourceClaimTemplate"] = "resourceclaimtemplates"
        self.rendered = _render(self.experiment)
        for body in self.rendered:
            if body["kind"] in kinds:
                self.store.create_object(
                    kinds[body["kind"]], names.experiment_namespace(self.experiment), body
                )
        size = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi"}
        status = {"allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
        body = {
            "metadata": {"name": "system-1", "labels": {"workload": "system"}},
            "status": status,
        }
        self.store.create_object("nodes", "", body)

    def find_script(self, pod):
        if pod["metadata"]["uid"] in self.spoiled:
            return self.spoiled[pod["metadata"]["uid"]]
        labels = pod["metadata"]["labels"]
        name = labels["app.kubernetes.io/name"]
        kind = labels["app.kubernetes.io/component"]
        return (
            self.scripts.get(name)
            or self.scripts.get(kind)
            or self.DEFAULTS.get(name)
            or self.DEFAULTS[kind]
        )

    def _mirror_nodes(self):
        """Let each running instance be a node with its devices; one that ends drains first, as
        EKS's node groups do."""
        states = {machine.id: machine.state for machine in self.account.machines}
        nodes = self.list_fleet_nodes()
        for name in nodes:
            if states[name] == "shutting-down":
                self._drain_once(name)
            elif states[name] == "terminated":
                self.cluster.lose_node(name)
        joining = [
            name for name, state in states.items() if state == "running" and name not in nodes
        ]
        for name in joining if self.gives_nodes else ():
            self._add_node(name)
        for name in nodes:
            node = self.store.view_object("nodes", "", name)
            if self.store.measure_age(node) >= self.startup_taint_s:
                self.set_taints(name, NEURON_TAINT)
        labels = self.account.group["labels"] if self.account.group else {}
        for name in nodes if self.gives_labels else ():
            node = self.store.get_object("nodes", "", name)
            labels_of_node = {
                key: value
                for key, value in node["metadata"]["labels"].items()
                if ".tandem/" not in key
            }
            if node["metadata"]["labels"] != labels_of_node | labels:
                node["metadata"]["labels"] = labels_of_node | labels
                self.store.replace_object("nodes", "", name, node)

    def set_taints(self, name, *taints):
        """Give a node these taints and no other of its own; a cordon's stays."""
        node = self.store.get_object("nodes", "", name)
        own_keys = {NEURON_TAINT["key"], STARTUP_TAINT["key"]}
        others = [taint for taint in node["spec"]["taints"] if taint["key"] not in own_keys]
        if node["spec"]["taints"] != [*taints, *others]:
            self.store.patch_object("nodes", "", name, {"spec": {"taints": [*taints, *others]}})

    def _drain_once(self, name):
        if not self.store.view_object("nodes", "", name)["spec"].get("unschedulable"):
            self.cluster.drain_node(name)

    def _add_node(self, name):
        labels = {
            "eks.amazonaws.com/nodegroup": GUARDED.node_group,
            "node.kubernetes.io/instance-type": ENVIRONMENT.capacity.instance_type,
            **self.account.group["labels"],
        }
        status = {
            "allocatable": {"cpu": "192", "memory": "2000Gi", "ephemeral-storage": "7000Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        taints = [NEURON_TAINT, STARTUP_TAINT]
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints},
            "status": status,
        }
        node = self.store.create_object("nodes", "", body)
        driver = CATALOGUE.dra_chart.driver.value
        devices = [
            {
                "name": f"neuron-device-{number}",
                "attributes": {
                    "deviceId": {"int": number},
                    "resourceType": {"string": "neuron_device"},
                    "instanceType": {"string": ENVIRONMENT.capacity.instance_type},
                    "resource.aws.com/devicegroup8_id": {"string": GROUP_IDS[number // 8]},
                },
            }
            for number in range(self.node_devices)
        ]
        spec = {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1},
            "devices": devices,
        }
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": name,
            "uid": node["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"name": name, "ownerReferences": [owner]}
        self.store.create_object("resourceslices", "", {"metadata": metadata, "spec": spec})

    def list_fleet_nodes(self):
        """Return the names of the accelerator nodes that the cluster lists."""
        return sorted(
            {node["metadata"]["name"] for node in self.store.view_objects("nodes")} - {"system-1"}
        )

    def list_servers(self, name=""):
        """Return the servers' pods, of one server or of all, those that leave too."""
        selector = "app.kubernetes.io/component=server" + (
            f",app.kubernetes.io/name={name}" if name else ""
        )
        return self.store.list_objects("pods", label_selector=selector)

    def drain(self):
        """Drain the fleet's nodes as `kubectl drain` does; they take no pod until `uncordon`."""
        for name in self.list_fleet_nodes():
            self.cluster.drain_node(name)

    def uncordon(self):
        """Let the fleet's nodes take pods again."""
        for name in self.list_fleet_nodes():
            self.store.patch_object("nodes", "", name, {"spec": {"unschedulable": None}})

    def delete_server(self, name):
        """Delete a server's pod as `kubectl delete pod` does, if it has one."""
        for pod in self.list_servers(name):
            self.store.delete_object("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])

    def find_running(self):
        """Return the instance that runs; None if there is none."""
        return next(
            (machine for machine in self.account.machines if machine.state == "running"), None
        )

    def lose_node(self):
        """Let the running instance fail: EC2 has it no longer, and the node group starts
        another."""
        machine = self.find_running()
        machine.fail(self.account.now)
        self.cluster.lose_node(machine.id)

    def hang_node(self):
        """Let the kubelet of the running instance fall silent; EC2 still has the instance. Return
        what replaces it."""
        machine = self.find_running()
        self.cluster.lose_node(machine.id, is_terminated=False)

        def replace_node():
            machine.fail(self.account.now)
            # as EKS's controller does once EC2 has it no longer
            self.store.delete_object("nodes", "", machine.id)

        return replace_node

    def settle(self):
        self._mirror_nodes()
        self.cluster.settle()
        self._spoil_measurements()
        for pod in self.store.view_objects("pods"):
            ends = {"Succeeded", *(["Failed"] if self.leaves_answers else [])}
            if (
                pod.get("status", {}).get("phase") in ends
                and pod["metadata"]["uid"] not in self.seen_pods
            ):
                self.seen_pods.add(pod["metadata"]["uid"])
                self._leave_files(pod)

    def _spoil_measurements(self):
        """Let a measure Job fail whose servers do not answer: at once at its start, later after the
        bench's wait."""
        jobs = self.store.view_objects(
            "pods", label_selector="app.kubernetes.io/name=tandem-measure"
        )
        for pod in jobs:
            uid = pod["metadata"]["uid"]
            task = _read_task(pod)
            if pod["status"].get("phase") != "Running" or uid in self.spoiled or task is None:
                continue
            if not all(map(self._answers, task.arms)):
                started_at = datetime.fromisoformat(pod["status"]["startTime"])
                elapsed_s = (self.account.now - started_at).total_seconds()
                wait_s = MAX_WAIT_S if elapsed_s > PROBE_S else 0
                self.spoiled[uid] = PodScript(run_s=elapsed_s + wait_s, exit_code=SILENT_EXIT_CODE)

    def _answers(self, arm):
        """Tell whether a server answers, which the API may not know yet."""
        ready = [pod for pod in self.list_servers(arm.name) if is_ready(pod)]
        return any(self.cluster.has_kubelet(pod["spec"]["nodeName"]) for pod in ready)

    def _leave_files(self, pod):
        name = pod["metadata"]["labels"]["app.kubernetes.io/name"]
        prefix = (self.models | self.artifacts).get(name)
        if prefix:
            self.stored.add(prefix)
        if name == "tandem-quality":
            job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
            self.account.put(f"results/{self.experiment.name}/quality/{job}-uid/quality.jsonl", b"")
        task = _read_task(pod)
        if task is not None and self.leaves_records:
            self._leave_records(name, pod["spec"]["containers"][0]["image"], task)

    def count_requests(self, task):
        """Return what a Job records that asked everything."""
        store = ObjectStore(task.bucket, self.account.clients.s3)
        plan = build_task_settings(task, store).plan()
        return sum(turn.request_count for turn in plan.round(task.number))

    def _leave_records(self, name, image, task):
        if name == "tandem-measure":
            self.measure_images.append(image)
            result = RoundResult(
                environment=task.environment,
                number=task.number,
                attempt=task.attempt,
                requests=self.count_requests(task),
                failed=0,
                duration_s=300,
                is_simulated=False,
            )
            key = round_prefix(task.experiment, task.run, task.number, task.attempt) + ROUND_FILE
        else:
            sentence = "VOID" if self.is_void else "qwen-sd-vllm is faster"
            result = JudgmentResult(
                sentence=sentence, is_void=self.is_void, exit_code=4 if self.is_void else 0
            )
            result = msgspec.structs.replace(result, **self.judge_pair(task))
            key = results_prefix(task.experiment, task.run) + JUDGMENT_FILE
            self.judged = task
        self.account.put(key, msgspec.json.encode(result))

    def judge_pair(self, _):
        """Return what the judge finds of the arms of a task, by field; nothing where no sweep reads
        it."""
        return {}

    # runner

    @functools.cached_property
    def models(self):
        """CronJob -> prefix of the model that it stages."""
        return list_models(self.experiment)

    @functools.cached_property
    def artifacts(self):
        """CronJob -> prefix of the artifact that it compiles."""
        return list_artifacts(self.experiment)

    def start_runner(self):
        """Start a runner in the place of the last one, as the Deployment does."""
        self.runner_number += 1
        box: list[Runner] = []
        world = RunWorld(
            environment=ENVIRONMENT,
            experiments={self.experiment.name: self.experiment},
            catalogue=CATALOGUE,
            guard=GUARD,
            clients=self.account.clients,
            cluster=self.api,
            survey=self.survey,
            read_paths=lambda _: self.paths,
            now=lambda: self.account.now,
            pause=self.pass_time,
            beat=lambda: box[0].beat(),  # noqa: PLW0108 - made below
            log=self.log.append,
            writer=f"runner-{self.runner_number}",
        )
        box.append(Runner(world))
        return box[0]

    def survey(self, experiment):
        rows = [("model", prefix) for prefix in list_models(experiment).values()]
        rows += [("artifact", prefix) for prefix in list_artifacts(experiment).values()]
        return [
            SurveyRow(
                kind=kind,
                name=prefix.split("/", 1)[1],
                prefix=prefix,
                used_by=("post/x",),
                state="present" if prefix in self.stored else "missing",
            )
            for kind, prefix in rows
        ]

    def pass_time(self, seconds):
        while seconds > 0:
            step_s = min(seconds, LOOK_S)
            self.account.advance(step_s / 60)
            self.settle()
            self._reap()
            seconds -= step_s

    def _reap(self):
        """Let the reaper pass if it is due; it is a process of its own, which no kill of the runner
        meets."""
        now = self.account.now
        if not self.has_reaper or (self.reaped_at and now - self.reaped_at < REAPER_SPAN):
            return
        dies_after = self.account.dies_after
        self.account.dies_after = None
        run_reaper_pass(self.account.clients, GUARD, now)
        self.account.dies_after = dies_after
        self.reaped_at = now
        self.passes += 1

    def look(self):
        """Take one look; a runner that was killed is replaced at the next one, one that AWS failed
        goes on."""
        try:
            self.runner.look()
        except ExternalError as fault:
            self.log.append(f"fault: {fault}")
        except Crash:
            self.account.dies_after = None
            self.runner = self.start_runner()
        self.pass_time(self.look_s)

    def live(self, hours=24, until=None):
        """Look until the run has ended or waits, and return its record."""
        for _ in range(int(hours * 3600 / self.look_s)):
            self.look()
            if until is not None and until(self):
                return self.read_run()
            record = self.read_run()
            if record is not None and record["state"] != "running" and self.runner.engine is None:
                return record
        raise AssertionError(
            f"the run is still at work after {hours} h: {self.log[-3:]}, {self.list_steps()[-3:]}"
        )

    # people

    def ask(self, kind="run", *, run=RUN, who=WHO, stem=None, **fields):
        """Write a request as `tandem run` does."""
        request = {
            "kind": kind,
            "run": run,
            "environment": ENVIRONMENT.name,
            "experiment": self.experiment.name,
            "spec_digest": compute_spec_digest(ENVIRONMENT, self.experiment, CATALOGUE),
            "at": self.account.now.isoformat(),
            "hours": 8,
            "rounds": 4,
            "size": "default" if "until" in fields else "quick",
        }
        request |= fields
        stems = {"run": run, "cancel": f"{run}.cancel", "resume": f"{run}.resume-2"}
        key = request_key(who, stem or stems[kind], is_stage=fields.get("until") == "stage")
        self.account.put(key, msgspec.json.encode(msgspec.convert(request, RunRequest)))
        return key

    def hear(self, kind="run", **fields):
        """Write a request, and return what the runner's next look answers."""
        key = self.ask(kind, **fields)
        self.look()
        return self.read_answer(key)

    def read_answer(self, key):
        return self.account.read(answer_key(key))

    def read_run(self, run=RUN):
        return self.account.read(run_record_key(run))

    def list_steps(self, run=RUN):
        """Return (step, state, note) as the journal has them."""
        return [(row["step"], row["state"], row["note"]) for row in self.read_steps(run)]

    def read_steps(self, run=RUN):
        """Return the steps' records as the journal has them."""
        keys = sorted(key for key in self.account.objects if key.startswith(f"runs/{run}/steps/"))
        return [json.loads(self.account.objects[key][0]) for key in keys]

    def find_step(self, name):
        return next(row for row in self.list_steps() if row[0] == name)

    @property
    def is_empty(self):
        """Whether nothing runs any more: no instance, server, Job, lease or schedule, and no fence
        that is closed."""
        fence = self.account.read("stop.json")
        pods = [
            pod
            for pod in self.store.list_objects("pods")
            if pod["status"].get("phase") in {"Running", "Pending"}
        ]
        return (
            not self.account.alive
            and not self.account.desired_size
            and not pods
            and not self.store.list_objects("jobs")
            and not self.account.schedules
            and (self.account.read("lease.json") or {}).get("run") is None
            and (fence is None or fence["state"] == "lifted")
        )


def at_step(name):
    """Return what tells whether a world's run has begun a step of this name."""
    return lambda world: any(step.startswith(name) for step, _, _ in world.list_steps())


def reach(step, *, stored=FULL_BUCKET, **fields):
    """Return a world in which the run of a request with these fields has begun a step."""
    world = VirtualWorld(stored=stored)
    world.ask(**fields)
    world.live(until=at_step(step))
    return world


@functools.cache
def _render(experiment):
    """Return the objects of an experiment; of a declared one those of the session: no chart names a
    reservation."""
    if experiment == EXPERIMENTS.get(experiment.name):
        charts = stages(ENVIRONMENT.name, experiment.name)
    else:
        from charts import build_charts  # noqa: PLC0415  # starts Node

        charts = render_charts(build_charts(ENVIRONMENT, experiment, CATALOGUE))
    return tuple(body for objects in charts.values() for body in objects)


def _read_task(pod):
    """Return the task of a bench Job's pod; None of any other pod, or where nobody filled it in."""
    variables = {
        row["name"]: row.get("value") for row in pod["spec"]["containers"][0].get("env", [])
    }
    text = variables.get(TASK_VARIABLE)
    return msgspec.json.decode(text, type=BenchTask) if text else None
