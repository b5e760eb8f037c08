"""From a staged model to a warm server, by the very arguments and variables that the charts
render."""

from __future__ import annotations

import copy
import json

import pytest
from chart_cases import stages
from committed import workspace
from pods import Pod

from rehearsal.checkpoint import RandomCheckpoint
from tandem.artifacts.__main__ import main
from tandem.artifacts.manifest import MANIFEST_NAME
from tandem.artifacts.store import open_store
from tandem.declarations import names
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.experiment import Experiment
from tandem.declarations.variant_key import compute_artifact_key

pytestmark = pytest.mark.endpoint

CATALOGUE = load_catalogue()
CASES = {
    "nxdi": ("post-us-east-2", "post", "fused"),
    "native": ("native-us-east-2", "llama-eagle3", "eagle3"),
}


class Chain:
    """One variant of a committed experiment, the bucket of its environment, and a folder for its
    pods."""

    def __init__(self, case, folder, endpoint, aws):
        environment, experiment, mode = CASES[case]
        self.environment = workspace().environments[environment].record
        self.experiment: Experiment = workspace().experiments[experiment].record
        self.variant = next(entry for entry in self.experiment.all_variants() if entry.mode == mode)
        self.key = compute_artifact_key(self.experiment, self.variant, CATALOGUE)
        self.folder = folder
        self.aws = aws
        self.bucket = names.bucket_name(self.environment)
        self.s3 = endpoint.client("s3")
        existing = [body["Name"] for body in self.s3.list_buckets()["Buckets"]]
        if self.bucket not in existing:
            where = {"LocationConstraint": endpoint.region}
            self.s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration=where)
        self.empty()

    def empty(self):
        for key in self.objects():
            self.s3.delete_object(Bucket=self.bucket, Key=key)

    def objects(self, prefix=""):
        return [row.key for row in open_store(self.bucket).list(prefix)]

    def stage(self):
        """Stage small models under the names of the real ones, by the real command."""
        for seed, name in enumerate((self.experiment.target, self.variant.draft)):
            model = CATALOGUE.models[name]
            source = self.folder / f"hub/{seed}"
            family = "llama" if model.family == "llama" else "qwen3"
            RandomCheckpoint(
                family=family, layers=2 - seed, seed=seed, embeddings="tied" if seed else "untied"
            ).write(source)
            output = [
                "stage",
                "--bucket",
                self.bucket,
                "--model",
                model.id,
                "--revision",
                model.revision_or_main(),
            ]
            assert main([*output, "--from", str(source), "--work", str(self.folder)]) == 0

    def compile_pod(self, job):
        name = names.compile_job_name(self.key)
        body = next(
            body for body in stages(*self._spec())["compile"] if body["metadata"]["name"] == name
        )
        spec = copy.deepcopy(body["spec"]["jobTemplate"]["spec"]["template"]["spec"])
        return Pod(
            self.folder / job,
            spec,
            runtime=self.key.runtime,
            tools=self.aws,
            maps=self.maps,
            job=job,
        )

    def serve_pod(self, name="serve"):
        """A pod of the Deployment, with the bucket's prefixes as the folders that Mountpoint would
        show."""
        body = stages(*self._spec())["serve"]
        body = next(
            entry
            for entry in body
            if (entry["kind"], entry["metadata"]["name"]) == ("Deployment", self.variant.name)
        )
        spec = body["spec"]["template"]["spec"]
        pod = Pod(self.folder / name, spec, runtime=self.key.runtime, tools={}, maps=self.maps)
        for prefix, root in ((f"{self.key.prefix}/", "stored"), ("models/", "models")):
            for key in self.objects(prefix):
                path = pod.folder / root / key.removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                self.s3.download_file(self.bucket, key, str(path))
        return pod

    @property
    def maps(self):
        """Name to rendered ConfigMap."""
        bodies = stages(*self._spec())["storage"]
        return {body["metadata"]["name"]: body for body in bodies if body["kind"] == "ConfigMap"}

    def _spec(self):
        return self.environment.name, self.experiment.name


@pytest.fixture(params=CASES)
def chain(request, endpoint, aws, tmp_path):
    """A chain whose job has run, container by container, each a process; what its compile said."""
    this = Chain(request.param, tmp_path, endpoint, aws)
    this.stage()
    job = this.compile_pod("first")
    done(job.run("fetch"))
    output = done(job.run("compile", "--ask-s", "0.1"))
    done(job.run("upload"))
    return this, output


def done(run):
    assert run.returncode == 0, run.stdout
    return run.stdout


def test_what_is_rendered_compiles_uploads_admits_and_serves_warm(chain):
    this, output = chain

    assert "STAND-IN" in output
    manifest = json.loads(
        this.s3.get_object(Bucket=this.bucket, Key=f"{this.key.prefix}/{MANIFEST_NAME}")[
            "Body"
        ].read()
    )
    assert manifest["fields"] == this.key.as_fields()
    # as declared; none was seen here, and the artifact says so
    assert manifest["made"]["where"] == "device"
    assert any("no Neuron device was seen" in sentence for sentence in manifest["made"]["unproven"])

    pod = this.serve_pod()
    admission = done(pod.run("admit"))
    pod.mount()
    server = pod.serve()
    statuses = server.ask("/health"), server.ask("/v1/completions", b"{}")
    server_log = server.end()

    assert (statuses, server.process.returncode) == ((200, 200), 0)
    native = this.key.runtime == "native"
    assert ("0 graphs compiled" if native else "nothing was compiled") in server_log
    assert (pod.folder / "artifact/current").is_symlink() != native
    assert '"level": "warning"' in admission  # what is unproven of it was said
