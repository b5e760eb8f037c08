"""The stand-ins of the runtimes' programs: what they refuse, what they leave, and what each knob
does.

What is said of the work is asked of `main` in this process; what is said of a process, of a
process.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from served import Served

from rehearsal.checkpoint import RandomCheckpoint
from rehearsal.runtime import inference_demo, vllm
from rehearsal.runtime.installation import install_programs

COMPILE = "inference_demo --model-type qwen3 --task-type causal-lm run"
COMPILE_OPTIONS = (
    "--torch-dtype bfloat16 --tp-degree 2 --batch-size 4 --ctx-batch-size 1"
    " --max-context-length 1024 --seq-len 1024 --enable-bucketing --is-continuous-batching"
    " --on-device-sampling --save-sharded-checkpoint --prompt 1 --compile-only"
)


class Image:
    """A runtime's image without the runtime: its programs in a folder, two models, nothing else in
    the environment."""

    def __init__(self, folder: Path, runtime: Any) -> None:
        self.native = runtime == "native"
        self.bin = install_programs(folder / "bin", runtime)
        self.target = folder / "models/target"
        RandomCheckpoint().write(self.target)
        self.output = folder / "artifact"
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "BASE_COMPILE_WORK_DIR": str(folder / "work"),
            "NEURON_COMPILE_CACHE_URL": str(folder / "cache"),
            "NEURON_LOGICAL_NC_CONFIG": "2",
            **(
                {"VLLM_CACHE_ROOT": str(self.output), "NEURON_SKIP_EFA_AFFINITY": "1"}
                if self.native
                else {}
            ),
        }

    def serve_command(self, *more: str, port: int = 0) -> list[str]:
        return [
            "vllm",
            "serve",
            str(self.target),
            *f"--port {port} --tensor-parallel-size 2 --max-num-seqs 4".split(),
            *["--max-model-len", "1024", "--dtype", "bfloat16"],
            *more,
        ]

    def run(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program's `main`, with nothing else in the environment; one that would serve has
        failed."""
        all_variables = {**self.environment, **variables}
        output = io.StringIO()
        program, *arguments = command
        main = {
            "inference_demo": inference_demo.main,
            "vllm": partial(vllm.main, "vllm-native" if self.native else "vllm-nxdi"),
        }[program]
        hears = signal.getsignal(signal.SIGTERM)  # a server takes it over before it loads anything
        with (
            patch.dict(os.environ, all_variables, clear=True),
            patch.object(vllm, "serve_requests", endless),
            redirect_stdout(output),
            redirect_stderr(output),
        ):
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = ended.code
            finally:
                signal.signal(signal.SIGTERM, hears)
        return subprocess.CompletedProcess(command, code, output.getvalue())

    def compile(self) -> subprocess.CompletedProcess[str]:
        models = ["--model-path", str(self.target), "--compiled-model-path", str(self.output)]
        return self.run([*COMPILE.split(), *models, *COMPILE_OPTIONS.split()])


@pytest.fixture
def nxdi(tmp_path):
    return Image(tmp_path, "nxdi-v0")


def serving(image: Image, *more: str, **variables: str) -> Served:
    """Start an image's server on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    return Served(image.serve_command(*more, port=port), {**image.environment, **variables}, port)


def endless(*_: object) -> int:
    """Stand in for serving, which nobody would end in this process."""
    pytest.fail("it serves, where it was to end before")


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors.index.json", "shard"])
def test_a_model_that_is_not_whole_is_refused(nxdi, damage):
    if damage == "shard":
        shard = min(nxdi.target.glob("*.safetensors"))
        shard.write_bytes(shard.read_bytes()[:-1])
    else:
        (nxdi.target / damage).unlink()

    assert nxdi.compile().returncode == 1


def test_a_warm_server_whose_override_lacks_global_topk_fails_every_request(nxdi):
    nxdi.compile()

    server = serving(
        nxdi,
        "--override-neuron-config",
        '{"on_device_sampling_config": {"do_sample": false}}',
        NEURON_COMPILED_ARTIFACTS=str(nxdi.output),
    )
    statuses = (server.ask("/health"), server.ask("/v1/completions", b"{}"))

    assert (statuses, "KeyError: 'global_topk'" in server.end()) == ((200, 500), True)


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """An image whose server has filled its cache root."""
    image = Image(tmp_path_factory.mktemp("warm"), "native")
    assert "2 graphs compiled" in serving(image).end()
    return image


def test_a_miss_is_fatal_where_the_server_may_not_compile(warm):
    buckets = '{"neuron_config": {"num_seqs_buckets": [1]}}'
    command = [*warm.serve_command(), "--additional-config", buckets]
    run = warm.run(command, VLLM_NEURON_DISABLE_WARMUP_COMPILE="1")
    assert (run.returncode, "compile cache miss" in run.stdout) == (1, True)
