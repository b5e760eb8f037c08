"""A compiled artifact as NxD Inference leaves one, of any size, and the key that it was compiled
for.

What is in it follows from the seed and means nothing.
"""

from __future__ import annotations

import json
import random
import zipfile
from typing import Any

from tandem.artifacts.inspection import build_expected_settings
from tandem.declarations.artifact_key import ArtifactKey

TARGET = "Qwen/Qwen3-0.6B@" + "0" * 40
KEY = ArtifactKey(
    runtime="nxdi-v0",
    image_repository="public.ecr.aws/neuron/x",
    image_tag="t",
    image_digest=None,
    sdk="2.26.1",
    neuronx_cc="2.21",
    nxdi="0.6",
    plugin=None,
    platform_target="trn2",
    target=TARGET,
    draft=None,
    mode="none",
    num_speculative_tokens=0,
    tensor_parallel_size=2,
    draft_tensor_parallel_size=None,
    logical_neuron_core=2,
    max_num_seqs=1,
    max_model_len=128,
    dtype="bfloat16",
    quantization=None,
    kv_cache_quantization=None,
    prefix_caching=False,
    async_mode=False,
    sampling={"do_sample": False},
    tuning={"fused_qkv": True},
    neuron_config={},
    environment={},
)
HOLDER = "compile-tiny-0123"


def variables():
    """What the rendered pod sets."""
    return {"TANDEM_ARTIFACT_KEY": json.dumps(KEY.as_fields()), "TANDEM_HOLDER": HOLDER}


def write_artifact(folder, *, rank_bytes=1000, key=KEY):
    """Write what passes the local inspection: configuration, graph, weights of each rank."""
    (folder / "weights").mkdir(parents=True)
    config: dict[str, Any] = {"_name_or_path": f"/models/{key.target.replace('@', '/')}"}
    for path, (_, value) in build_expected_settings(key).items():
        here = config
        *above, name = path.split(".")
        for step in above:
            here = here.setdefault(step, {})
        here[name] = value
    (folder / "neuron_config.json").write_text(json.dumps(config, indent=1))
    with zipfile.ZipFile(folder / "model.pt", "w") as graph:
        graph.writestr(zipfile.ZipInfo("model/data.pkl"), "graph 0")
    for rank in range(key.tensor_parallel_size):
        data = random.Random(rank).randbytes(rank_bytes)  # noqa: S311 - no secret
        header = json.dumps(
            {"w": {"dtype": "U8", "shape": [rank_bytes], "data_offsets": [0, rank_bytes]}}
        ).encode()
        path = folder / "weights" / f"tp{rank}_sharded_checkpoint.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return folder


def write_outcome(work, **changes):
    """Write what the driver says of a compile that ended well."""
    attempts = [
        {"kind": "transient", "exit": 70, "seconds": 3.5, "line": "x"},
        {"kind": "compiled", "exit": 0, "seconds": 12.25, "line": ""},
    ]
    outcome = {
        "schema_version": 1,
        "request": "r",
        "result": "compiled",
        "began": 1.0,
        "boot": "b",
        "attempts": attempts,
        "where": "device",
        "unproven": ["said by the driver"],
    }
    work.mkdir(parents=True, exist_ok=True)
    (work / "outcome.json").write_text(json.dumps(outcome | changes))
    return work
