"""Small checkpoints of an experiment's models, on a hub."""

from __future__ import annotations

import json
import urllib.request

from committed import workspace

from rehearsal.run.model_hub import serve_hub, write_checkpoints
from tandem.spec.catalogue import load_catalogue

CATALOGUE = load_catalogue()


def test_each_model_is_there_under_its_name_and_commit(tmp_path):
    experiment = workspace().experiments["post"].record
    write_checkpoints(experiment, CATALOGUE, tmp_path)
    shas = {}
    with serve_hub(tmp_path) as variables:
        for name in ("Qwen/Qwen3-32B", "Qwen/Qwen3-1.7B"):
            url = f"{variables['HF_ENDPOINT']}/api/models/{name}"
            with urllib.request.urlopen(url) as answer:  # noqa: S310 - of this machine
                shas[name] = json.load(answer)["sha"]
    assert shas == {name: CATALOGUE.models[name].revision_or_main() for name in shas}
