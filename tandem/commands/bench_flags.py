"""The flags of `tandem bench run` and `publish`, each refused with what is allowed.

Invariant: nothing of the bench is loaded here, so that every other command starts as quickly as before.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_ALLOWED = "up to 63 letters, digits, '.', '_' and '-', the first a letter or digit"
SECONDS = {"s": 1, "m": 60, "h": 3600}
TIME_OUTS = {"connect": "connect_s", "first-token": "first_token_s", "gap": "gap_s", "whole": "whole_s"}
LIMITED = ("ttft_ms", "tpot_ms", "tpot_exact_ms", "e2e_ms", "output_tokens_per_s")  # figures of one request
EXTRAS = {"token-ids": "token_ids", "logprobs": "logprobs"}
SIMULATED = "the servers are simulated; figures go to a namespace apart"
MOST_CONTROLS = 1000
MOST_CONCURRENCY, MOST_COUNT, MOST_SEED = 4096, 1_000_000, 2**63 - 1


REPORT_CODES = (
    "exit codes: 0 judged; 1 some requests failed or were never recorded; 2 bad input; 3 an arm has a class in which "
    "nothing succeeded; 4 void: a control failed, nothing may be concluded"
)


def add_flags(run: argparse.ArgumentParser) -> None:
    """Declare every flag of `tandem bench run`."""
    _arms(run)
    _asked(run)
    _schedule(run)
    out = run.add_argument_group("output").add_mutually_exclusive_group(required=True)
    out.add_argument("--out", type=Path, metavar="DIR", help="a new folder for the run")
    out.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR; its manifest has all flags")


def add_report_flags(report: argparse.ArgumentParser) -> None:
    """Declare what `tandem bench report` takes."""
    report.add_argument("folder", type=Path, metavar="DIR", help="the folder that a run wrote")
    report.add_argument(
        "--margin", type=margin, metavar="SHARE", help="a difference within it is `same` (default 0.05)"
    )
    report.add_argument(
        "--price",
        type=positive("USD an hour"),
        metavar="USD_PER_HOUR",
        help="of what the run occupied; else the run's own",
    )
    report.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="the target's tokenizer.json, where servers give no token ids"
    )
    report.add_argument("--figures", action="store_true", help="the figures alone, without a verdict")


def add_compare_flags(compare: argparse.ArgumentParser) -> None:
    """Declare what `tandem bench compare` takes."""
    compare.add_argument("before", type=Path, metavar="DIR_A", help="the folder of the earlier run")
    compare.add_argument("after", type=Path, metavar="DIR_B", help="the folder of the later run")
    compare.add_argument(
        "--margin", type=margin, metavar="SHARE", help="a difference within it is `same` (default 0.05)"
    )


def add_publish_flags(publish: argparse.ArgumentParser) -> None:
    """Declare what `tandem bench publish` takes."""
    publish.add_argument("folder", type=Path, metavar="DIR", help="the folder that a run wrote")
    publish.add_argument("--env", required=True, metavar="NAME", help="the environment to whose account it goes")
    publish.add_argument("--experiment", metavar="NAME", help="which of its experiments was measured")
    publish.add_argument("--simulated", action="store_true", help=SIMULATED)


def _arms(run: argparse.ArgumentParser) -> None:
    arms = run.add_argument_group("arms", "either servers by address, or an experiment's own inside its cluster")
    arms.add_argument("--baseline", type=arm, metavar="[NAME=]URL", help="the server that others are compared with")
    arms.add_argument(
        "--variant", type=arm, nargs="+", action="extend", default=[], metavar="[NAME=]URL", help="others; repeatable"
    )
    arms.add_argument(
        "--model", nargs="+", action="extend", default=[], metavar="[NAME=]M",
        help="the model's served name; NAME=M for one arm",
    )  # fmt: skip
    arms.add_argument("--env", metavar="NAME", help="the environment inside whose cluster this runs")
    arms.add_argument("--experiment", metavar="NAME", help="its experiment: servers, model, suites and schedule")
    arms.add_argument("--only", type=words, metavar="NAME,...", help="these variants of the experiment; the first is A")
    arms.add_argument(
        "--publish", nargs="?", const="", metavar="ENV",
        help="send each round to CloudWatch and S3; ENV where servers are named by address, with --experiment",
    )  # fmt: skip
    arms.add_argument("--simulated", action="store_true", help=f"with --publish: {SIMULATED}")
    arms.add_argument(
        "--placement", type=placement, nargs="+", action="extend", default=[], metavar="NAME=WORD",
        help="where an arm's server runs, as base=first-half; kept in every record",
    )  # fmt: skip
    arms.add_argument("--api-key-env", metavar="VARIABLE", help="variable that holds the servers' API key")


def _asked(run: argparse.ArgumentParser) -> None:
    size = run.add_argument_group("size", "how much is asked; each flag below stands before it")
    size.add_argument(
        "--quick", action="store_true", help="three classes, 6 prompts of each, 192 tokens: minutes, and a verdict"
    )
    size.add_argument(
        "--full", action="store_true", help="every prompt, with the loads and the answers that its suite states"
    )
    asked = run.add_argument_group("what is asked")
    asked.add_argument(
        "--suite", nargs="+", action="extend", default=[], metavar="S", help="post, real or FILE.jsonl (default real)"
    )
    asked.add_argument("--classes", type=words, default=(), metavar="NAME,...", help="of the suites; all by default")
    asked.add_argument(
        "--prompts-per-class", type=count, metavar="N", help="the first N of each (default 8; of a file all)"
    )
    asked.add_argument(
        "--max-tokens", type=count, metavar="N",
        help="of an answer; a prompt may state fewer (default 560; of a file what it states)",
    )  # fmt: skip
    asked.add_argument("--api", choices=("chat", "completions"), default="chat", help="(default chat)")
    asked.add_argument("--thinking", choices=("on", "off"), help="say it to the chat template; the model's own default")
    asked.add_argument("--temperature", type=temperature, default=0.0, metavar="T", help="(default 0.0, greedy)")
    asked.add_argument("--ask", type=extras, default=frozenset(), metavar="token-ids,logprobs", help="keep these too")
    asked.add_argument(
        "--llmperf-source", type=Path, metavar="DIR", help="checkout of llmperf, for the suite post's eighth case"
    )


def _schedule(run: argparse.ArgumentParser) -> None:
    when = run.add_argument_group("when")
    load = when.add_mutually_exclusive_group()
    load.add_argument("--concurrency", type=counts, metavar="N,...", help="closed loops (default 4)")
    load.add_argument("--rate", type=positive("requests a second"), metavar="R", help="an open loop: arrivals a second")
    when.add_argument(
        "--schedule",
        choices=("interleaved", "simultaneous"),
        help="one arm at a time, A B B A (default), or all at once",
    )
    length = when.add_mutually_exclusive_group()
    length.add_argument("--rounds", type=count, metavar="N", help="(default 4; fewer give no verdict)")
    length.add_argument("--duration", type=seconds, metavar="T", help="repeat rounds for so long: 180m, 3h, 90s")
    when.add_argument(
        "--control-rounds", type=controls, metavar="N",
        help="rounds of the baseline against itself: the noise floor (default 1; 0 is off)",
    )  # fmt: skip
    when.add_argument("--repeats", type=count, default=1, metavar="N", help="of each prompt in a round (default 1)")
    when.add_argument("--mixed", action="store_true", help="all classes of a suite together, not one at a time")
    when.add_argument("--seed", type=seed, default=0, metavar="N", help="of orders, arrivals and sampling (default 0)")
    when.add_argument(
        "--warm-up", type=warm_up, metavar="N|auto", help="requests for each arm, or until stable (default auto)"
    )
    when.add_argument(
        "--time-outs", type=time_outs, default={}, metavar="WHAT:S,...",
        help="connect:10,first-token:120,gap:60,whole:600, in seconds (these are the defaults)",
    )  # fmt: skip
    when.add_argument("--goodput", type=limits, metavar="METRIC:LIMIT,...", help="as ttft_ms:500,tpot_ms:30")
    when.add_argument("--price", type=positive("USD an hour"), metavar="USD_PER_HOUR", help="of what the run occupies")


def arm(text: str) -> tuple[str | None, str]:
    """Return the NAME, where one is given, and the URL."""
    name, url = None, text
    if "=" in text.partition("://")[0]:
        name, _, url = text.partition("=")
        if not NAME.fullmatch(name):
            raise argparse.ArgumentTypeError(f"name {name!r}; allowed: {NAME_ALLOWED}")
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", url):
        raise argparse.ArgumentTypeError(
            f"{url!r} is no address; allowed: [NAME=]http(s)://HOST:PORT, with or without /v1"
        )
    return name, url


def placement(text: str) -> tuple[str, str]:
    """Return an arm's NAME and the word for where its server runs."""
    name, _, word = text.partition("=")
    if not NAME.fullmatch(name) or not NAME.fullmatch(word):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: NAME=WORD, each {NAME_ALLOWED}")
    return name, word


def controls(text: str) -> int:
    """Return a number of control rounds."""
    return _whole(text, 0, MOST_CONTROLS)


def count(text: str) -> int:
    """Return a whole number from 1 on."""
    return _whole(text, 1, MOST_COUNT)


def counts(text: str) -> tuple[int, ...]:
    """Return concurrencies, each once."""
    return tuple(dict.fromkeys(_whole(part, 1, MOST_CONCURRENCY) for part in text.split(",")))


def seed(text: str) -> int:
    """Return a seed."""
    return _whole(text, 0, MOST_SEED)


def warm_up(text: str) -> int | None:
    """Return a number of requests; None for auto."""
    return None if text == "auto" else _whole(text, 0, MOST_COUNT, "auto, or ")


def temperature(text: str) -> float:
    """Return a sampling temperature."""
    return _number(text, 0.0, 2.0, "a number from 0 to 2")


def positive(what: str) -> Callable[[str], float]:
    """Return a reader of numbers from a millionth to a million."""

    def read(text: str) -> float:
        return _number(text, 1e-6, 1e6, f"{what}, from 0.000001 to 1000000")

    return read


def margin(text: str) -> float:
    """Return a share of a speed-up."""
    return _number(text, 0.001, 1.0, "a share from 0.001 to 1, as 0.05")


def seconds(text: str) -> float:
    """Return a length of time in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number and s, m or h, as 180m")
    return float(found[1]) * SECONDS[found[2]]


def words(text: str) -> tuple[str, ...]:
    """Return names, each once."""
    return tuple(dict.fromkeys(part for part in text.split(",") if part))


def extras(text: str) -> frozenset[str]:
    """Return the fields of what is asked beside the answer."""
    for word in words(text):
        if word not in EXTRAS:
            raise argparse.ArgumentTypeError(f"{word!r}; allowed: {', '.join(EXTRAS)}")
    return frozenset(EXTRAS[word] for word in words(text))


def time_outs(text: str) -> dict[str, float]:
    """Return limits of a request in seconds."""
    return {TIME_OUTS[name]: value for name, value in _pairs(text, tuple(TIME_OUTS)).items()}


def limits(text: str) -> dict[str, float]:
    """Return what a good answer keeps to: metric to its limit, in the metric's unit."""
    return _pairs(text, LIMITED)


def _pairs(text: str, allowed: tuple[str, ...]) -> dict[str, float]:
    pairs = {}
    for part in text.split(","):
        name, _, value = part.partition(":")
        if name not in allowed:
            raise argparse.ArgumentTypeError(f"{name!r}; allowed: {', '.join(allowed)}, each as NAME:NUMBER")
        pairs[name] = _number(value, 1e-6, 1e6, f"{name}: a number above 0")
    return pairs


def _whole(text: str, least: int, most: int, also: str = "") -> int:
    if not text.strip().isascii() or not text.strip().isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {also}a whole number from {least} to {most}")
    return int(text)


def _number(text: str, least: float, most: float, allowed: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= most:  # NaN too
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
    return value
