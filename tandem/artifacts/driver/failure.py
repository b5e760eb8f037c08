"""Failures of a compile: the classes, their signs in a log, and the number of tries of each.

Invariant: a class of failure that would repeat has one try; every sign names its source.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass

# exit codes
BAD_INPUT = 2
EXTERNAL_FAILURE = 3
MIN_FREE_BYTES = 256 * 1024**2  # bytes: with less on the disk, that is the cause of a failure


@dataclass(frozen=True)
class FailureKind:
    """A class of failure.

    Args:
        name: as in outcome.json.
        change: advice for the operator.
        tries: most attempts with this failure; 0 for as many as `--attempts`.
        code: exit code of this program.
    """

    name: str
    change: str
    tries: int = 1
    code: int = EXTERNAL_FAILURE


_AGAIN = "then delete this Job and create it again: a restart of this one does not try"
_REFUSAL = (
    "the program rejects its arguments; compare with the runtime's release, correct the experiment"
)
_EMPTY = (
    "the program calls itself done and left nothing:"
    " compare the artifact's folder in its arguments with --output"
)
_TOO_LARGE = (
    "the model does not fit into the devices' memory: lower serving.max_num_seqs or"
    " serving.max_model_len, or raise serving.tensor_parallel_size;"
    " all of these make another artifact"
)
_UNCOMPILABLE = (
    "the compiler cannot compile this graph, and would say so again: look its code up in the Neuron"
    " documents (compiler/error-codes) or the issues of aws-neuron/aws-neuron-sdk, change shapes or"
    " tuning of the experiment"
)
BAD_ARGUMENTS = FailureKind("bad arguments", f"{_REFUSAL}, {_AGAIN}", code=BAD_INPUT)
DISK_FULL = FailureKind(
    "disk full", f"give the Job more ephemeral storage, or a larger NVMe, {_AGAIN}"
)
OUT_OF_MEMORY = FailureKind(
    "out of memory", f"raise compile.memory_gib of the experiment, {_AGAIN}"
)
DEVICE_MEMORY = FailureKind("device memory", _TOO_LARGE)
COMPILER_ERROR = FailureKind("compiler error", _UNCOMPILABLE)
NO_DEVICE = FailureKind(
    "no device", f"check the claim's devices, the node's driver, and who else runs there, {_AGAIN}"
)
NOTHING_LEFT = FailureKind("nothing left", f"{_EMPTY}, {_AGAIN}")
DEADLINE = FailureKind("deadline", f"raise compile.deadline_hours of the experiment, {_AGAIN}")
TRANSIENT = FailureKind("transient", f"another try usually passes, and none did; {_AGAIN}", tries=0)
UNKNOWN = FailureKind("unknown", f"read the lines above, {_AGAIN}", tries=2)
STOP_REQUEST = FailureKind("stopped", "it was stopped; a restart begins again", tries=0)
_FOREVER = (
    BAD_ARGUMENTS,
    DISK_FULL,
    OUT_OF_MEMORY,
    DEVICE_MEMORY,
    COMPILER_ERROR,
    NO_DEVICE,
    NOTHING_LEFT,
    DEADLINE,
)
KINDS = {kind.name: kind for kind in (*_FOREVER, TRANSIENT, UNKNOWN, STOP_REQUEST)}

# Class and regular expression, searched in each line of a program that failed; read at their
# sources on 2026-11-21. The first entry with a match decides, not the first line in the log: a
# compiler that is out of memory also reports an internal error, and every cause may end in the same
# status 70.
SIGNS = (
    # Python's argparse, which both programs use
    (
        BAD_ARGUMENTS,
        r"^\S.*: error: (unrecognized arguments|the following arguments are required|argument )",
    ),
    # NxD Inference v0.6.10598 models/config.py; vllm 0.9.1 vllm/config.py
    (BAD_ARGUMENTS, r"\bIncompatibleConfigError\b|cannot be larger than target_max_model_len"),
    # pydantic, which vLLM's settings use
    (BAD_ARGUMENTS, r"^(\S*\.)?ValidationError: \d+ validation error"),
    # errno(3): ENOSPC, EDQUOT
    (DISK_FULL, r"No space left on device|Disk quota exceeded"),
    # neuronx-cc's message for a part that SIGKILL ended
    (OUT_OF_MEMORY, r"\[F137\]"),
    # aws-neuron/aws-neuron-sdk issues 706 and 431
    (
        OUT_OF_MEMORY,
        r"neuronx-cc (failed|compilation failed) with -9\b|Compile command returned: -9\b",
    ),
    # aws-neuron/nki-samples issue 87; a shell prints it
    (OUT_OF_MEMORY, r"^(\S+: line \d+: +\d+ )?Killed\b"),
    # Python, libstdc++, errno(3): ENOMEM, torch's DefaultCPUAllocator
    (
        OUT_OF_MEMORY,
        r"\b\w*MemoryError\b|std::bad_alloc|[Cc]annot allocate memory|can't allocate memory",
    ),
    # aws-neuron/aws-neuron-sdk compiler/error-codes/EOOM001.rst and EOOM002.rst
    (DEVICE_MEMORY, r"\bNCC_EOOM\d+|exceeds the high-bandwidth memory limit"),
    # aws-neuron/aws-neuron-sdk compiler/error-codes/index.rst
    (COMPILER_ERROR, r"\bNCC_[A-Z]{3,5}\d{2,}"),
    # aws-neuron/aws-neuron-sdk issues 1000 and 1365: neuronx-cc ended abnormally
    (COMPILER_ERROR, r"\[F13[49]\]"),
    # aws-neuron/aws-neuron-sdk issue 1023
    (
        COMPILER_ERROR,
        (
            r"\[[A-Z]{3}\d{3}\] +(Unhandled exception|Internal)|An Internal Compiler Error has"
            r" occurred"
        ),
    ),
    # aws-neuron/aws-neuron-sdk neuron-caching.rst; issue 1023
    (COMPILER_ERROR, r"Got a cached failed neff"),
    # aws-neuron/aws-neuron-sdk neuron-runtime/nrt-troubleshoot.rst
    (NO_DEVICE, r"Unable to determine Neuron Driver version|requires Neuron Driver version"),
    (NO_DEVICE, r"NeuronCore\(s\) not available|not compatible with the installed aws-neuron"),
    # aws-neuron/aws-neuron-sdk issue 1369: one of many compilers ends with 70, the others lose a
    # peer
    (TRANSIENT, r"\btp_barrier\b|gloo/transport/tcp/pair\.cc.*Connection (closed|reset) by peer"),
)
SIGN_PATTERNS = tuple(re.compile(pattern) for _, pattern in SIGNS)


def classify_failure(
    sign_lines: Mapping[int, str], last_line: str, status: int, *, oom_kills: int, free_bytes: int
) -> tuple[FailureKind, str]:
    """Return the class of a failure and the line that shows it.

    Args:
        sign_lines: index in SIGNS -> first line with that sign.
        last_line: the last line; empty for no output.
        status: the program's, negative for a signal.
        oom_kills: processes of this container that the kernel killed for memory during the attempt.
        free_bytes: bytes left on the output's disk.
    """
    kind = UNKNOWN
    line = last_line or f"the program said nothing and ended with status {status}"
    if sign_lines:
        index = min(sign_lines)
        kind = SIGNS[index][0]
        line = sign_lines[index]
    if kind in (BAD_ARGUMENTS, DISK_FULL):
        return kind, line
    if free_bytes < MIN_FREE_BYTES:
        return DISK_FULL, f"{free_bytes} bytes are left on the disk of the output"
    if oom_kills:
        return (
            OUT_OF_MEMORY,
            f"the kernel killed {oom_kills} process(es) of this container for memory",
        )
    if status in (-signal.SIGKILL, 128 + signal.SIGKILL) and kind is not OUT_OF_MEMORY:
        return (
            OUT_OF_MEMORY,
            f"the program ended with status {status}: it was killed, as the kernel does for memory",
        )
    return kind, line
