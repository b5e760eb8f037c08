"""When a server counts as started, ready and alive.

Invariant: started means that the device answered once. On Neuron `/health` proves the process, not the device
(the plugin's own check does nothing, vllm-neuron 0.2.0 neuron_worker.py), so the first probe asks for one token;
the later ones must cost a measurement nothing and ask `/health`.
"""

from __future__ import annotations

import json
from typing import Any

from tandem.spec.names import SERVER_PORT

# A warm start reads the weights from S3 and loads a compiled artifact: minutes. An hour leaves room for the largest
# model and still ends a start that never will.
STARTUP_PERIOD_S = 10
STARTUP_FAILURES = 360
COMPLETION_TIMEOUT_S = 60
PROGRAM = """\
from urllib.request import Request, urlopen
body = b'{body}'
kind = {{"Content-Type": "application/json"}}
urlopen(Request("http://127.0.0.1:{port}/v1/completions", body, kind), timeout={timeout}).read()
"""

Probe = dict[str, Any]


def build_probes(model: str) -> dict[str, Probe]:
    """Return the three probes of a server that serves `model`."""
    health = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 10}
    return {
        "startupProbe": {
            "exec": {"command": ["python", "-c", probe_program(model)]},
            "periodSeconds": STARTUP_PERIOD_S,
            "timeoutSeconds": COMPLETION_TIMEOUT_S,
            "failureThreshold": STARTUP_FAILURES,
        },
        "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 3},
        # two minutes of silence: a restart in the middle of a run costs more than a late one
        "livenessProbe": {**health, "periodSeconds": 15, "failureThreshold": 8},
    }


def probe_program(model: str) -> str:
    """Return the Python program that asks the server for one token and fails unless it comes."""
    body = json.dumps({"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0})
    return PROGRAM.format(port=SERVER_PORT, body=body, timeout=COMPLETION_TIMEOUT_S - 5)
