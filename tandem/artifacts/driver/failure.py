"""How a compile fails: the classes, the signs by which a log shows them, and who may try again.

Invariant: a class that would only come again has one try; every sign names who says so.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BAD_INPUT, EXTERNAL_FAILURE = 2, 3  # exit codes
MIN_FREE_BYTES = 256 * 1024**2  # bytes: a compiler that fails with less on its disk failed of it


@dataclass(frozen=True)
class FailureKind:
    """A class of failure.

    Args:
        name: as in outcome.json.
        tries: most attempts that end so; 0 for as many as `--attempts`.
        change: what an operator does.
        code: exit code of this program.
    """

    name: str
    tries: int
    change: str
    code: int = EXTERNAL_FAILURE


_AGAIN = "then delete this Job and create it again: a restart of this one does not try"
_REFUSAL = "the program refuses what it is told; compare with the runtime's release, correct the experiment"
BAD_ARGUMENTS = FailureKind("bad arguments", 1, f"{_REFUSAL}, {_AGAIN}", BAD_INPUT)
DISK_FULL = FailureKind("disk full", 1, f"give the Job more ephemeral storage, or a larger NVMe, {_AGAIN}")
OUT_OF_MEMORY = FailureKind("out of memory", 1, f"raise compile.memory_gib of the experiment, {_AGAIN}")
DEVICE_MEMORY = FailureKind(
    "device memory",
    1,
    "the model does not fit into the devices' memory: lower serving.max_num_seqs or serving.max_model_len, or raise "
    "serving.tensor_parallel_size; all of these make another artifact",
)
COMPILER_ERROR = FailureKind(
    "compiler error",
    1,
    "the compiler cannot compile this graph, and would say so again: look its code up in the Neuron documents "
    "(compiler/error-codes) or the issues of aws-neuron/aws-neuron-sdk, change shapes or tuning of the experiment",
)
NO_DEVICE = FailureKind(
    "no device", 1, f"check the claim's devices, the node's driver, and who else runs there, {_AGAIN}"
)
_EMPTY = "the program calls itself done and left nothing: compare the artifact's folder in its arguments with --output"
NOTHING_LEFT = FailureKind("nothing left", 1, f"{_EMPTY}, {_AGAIN}")
TRANSIENT = FailureKind("transient", 0, f"it passes by itself on another try, and did not; {_AGAIN}")
UNKNOWN = FailureKind("unknown", 2, f"read the lines above, {_AGAIN}")
DEADLINE = FailureKind("deadline", 1, f"raise compile.deadline_hours of the experiment, {_AGAIN}")
STOP_REQUEST = FailureKind("stopped", 0, "it was told to end; a restart begins again")
_FOREVER = (BAD_ARGUMENTS, DISK_FULL, OUT_OF_MEMORY, DEVICE_MEMORY, COMPILER_ERROR, NO_DEVICE, NOTHING_LEFT, DEADLINE)
KINDS = {kind.name: kind for kind in (*_FOREVER, TRANSIENT, UNKNOWN, STOP_REQUEST)}


@dataclass(frozen=True)
class FailureSign:
    """What a line of a failed program shows.

    Args:
        kind: the class.
        pattern: regular expression, searched in each line.
        source: who says so.
    """

    kind: FailureKind
    pattern: str
    source: str


SIGNS_DATE = "2026-11-21"
_ARGPARSE = r"^\S.*: error: (unrecognized arguments|the following arguments are required|argument )"
_CONFIG_ERROR = r"\bIncompatibleConfigError\b|cannot be larger than target_max_model_len"
_MEMORY_ERROR = r"\b\w*MemoryError\b|std::bad_alloc|[Cc]annot allocate memory|can't allocate memory"
_KILLED_COMPILER = r"neuronx-cc (failed|compilation failed) with -9\b|Compile command returned: -9\b"
_INTERNAL_ERROR = r"\[[A-Z]{3}\d{3}\] +(Unhandled exception|Internal)|An Internal Compiler Error has occurred"
_NO_DRIVER = (
    r"Unable to determine Neuron Driver version|requires Neuron Driver version"
    r"|NeuronCore\(s\) not available|not compatible with the installed aws-neuron"
)
_LOST_PEER = r"\btp_barrier\b|gloo/transport/tcp/pair\.cc.*Connection (closed|reset) by peer"
_SDK = "aws-neuron/aws-neuron-sdk"
# The first class that has a sign decides, whatever came first in the log: a compiler that is out of memory also calls
# itself broken, and every cause may end in the same status 70.
SIGNS = (
    FailureSign(BAD_ARGUMENTS, _ARGPARSE, "Python's argparse, which both programs use"),
    FailureSign(BAD_ARGUMENTS, _CONFIG_ERROR, "NxD Inference v0.6.10598 models/config.py; vllm 0.9.1 vllm/config.py"),
    FailureSign(
        BAD_ARGUMENTS, r"^(\S*\.)?ValidationError: \d+ validation error", "pydantic, which vLLM's settings use"
    ),
    FailureSign(DISK_FULL, r"No space left on device|Disk quota exceeded", "errno(3): ENOSPC, EDQUOT"),
    FailureSign(OUT_OF_MEMORY, r"\[F137\]", "neuronx-cc's own message for a part of it that SIGKILL ended"),
    FailureSign(OUT_OF_MEMORY, _KILLED_COMPILER, f"{_SDK} issues 706 and 431"),
    FailureSign(
        OUT_OF_MEMORY, r"^(\S+: line \d+: +\d+ )?Killed\b", "aws-neuron/nki-samples issue 87; a shell prints it"
    ),
    FailureSign(OUT_OF_MEMORY, _MEMORY_ERROR, "Python, libstdc++, errno(3): ENOMEM, torch's DefaultCPUAllocator"),
    FailureSign(
        DEVICE_MEMORY,
        r"\bNCC_EOOM\d+|exceeds the high-bandwidth memory limit",
        f"{_SDK} compiler/error-codes/EOOM001.rst and EOOM002.rst",
    ),
    FailureSign(COMPILER_ERROR, r"\bNCC_[A-Z]{3,5}\d{2,}", f"{_SDK} compiler/error-codes/index.rst"),
    FailureSign(COMPILER_ERROR, r"\[F13[49]\]", f"{_SDK} issues 1000 and 1365: neuronx-cc ended abnormally"),
    FailureSign(COMPILER_ERROR, _INTERNAL_ERROR, f"{_SDK} issue 1023"),
    FailureSign(COMPILER_ERROR, r"Got a cached failed neff", f"{_SDK} neuron-caching.rst; issue 1023"),
    FailureSign(NO_DEVICE, _NO_DRIVER, f"{_SDK} neuron-runtime/nrt-troubleshoot.rst"),
    FailureSign(
        TRANSIENT, _LOST_PEER, f"{_SDK} issue 1369: one of many compilers ends with 70, the others lose a peer"
    ),
)
SIGN_PATTERNS = tuple(re.compile(sign.pattern) for sign in SIGNS)


def classify_failure(
    sign_lines: Mapping[int, str], last_line: str, status: int, *, oom_kills: int, free_bytes: int
) -> tuple[FailureKind, str]:
    """Return the class of a failure and the line that shows it.

    Args:
        sign_lines: index in SIGNS -> the first line that has it.
        last_line: the last line; empty where nothing was said.
        status: the program's, negative for a signal.
        oom_kills: processes of this container that the kernel killed for memory during the attempt.
        free_bytes: bytes left on the output's disk.
    """
    matches = [(SIGNS[index].kind, line) for index, line in sorted(sign_lines.items())]
    if matches and matches[0][0] in (BAD_ARGUMENTS, DISK_FULL):
        return matches[0]
    if free_bytes < MIN_FREE_BYTES:
        return DISK_FULL, f"{free_bytes} bytes are left on the disk of the output"
    if oom_kills:
        return OUT_OF_MEMORY, f"the kernel killed {oom_kills} process(es) of this container for memory"
    if status in (-signal.SIGKILL, 128 + signal.SIGKILL) and not (matches and matches[0][0] is OUT_OF_MEMORY):
        return OUT_OF_MEMORY, f"the program ended with status {status}: it was killed, as the kernel does for memory"
    if matches:
        return matches[0]
    return UNKNOWN, last_line or f"the program said nothing and ended with status {status}"


def may_retry_failure(kind_names: Sequence[str], max_attempts: int) -> bool:
    """Whether what ended so, by the names of its classes, may be tried once more; `max_attempts` attempts in all."""
    names = [name for name in kind_names if name != STOP_REQUEST.name]
    if not names or len(names) >= max_attempts:
        return not names
    last_kind = KINDS.get(names[-1], UNKNOWN)
    return not last_kind.tries or names.count(last_kind.name) < last_kind.tries
