"""The flags of `tandem bench run` and `publish`, each refused with what is allowed.

Invariant: nothing of the bench is loaded here, so that every other command starts as quickly as before.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_RULE = "up to 63 letters, digits, '.', '_' and '-', the first a letter or digit"
SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600}
TIMEOUT_FIELDS = {"connect": "connect_s", "first-token": "first_token_s", "gap": "gap_s", "whole": "whole_s"}
GOODPUT_METRICS = ("ttft_ms", "tpot_ms", "tpot_exact_ms", "e2e_ms", "output_tokens_per_s")  # figures of one request
EXTRA_FIELDS = {"token-ids": "token_ids", "logprobs": "logprobs"}
SIMULATED_HELP = "the servers are simulated; figures go to a namespace apart"
MAX_CONTROL_ROUNDS = 1000
MAX_CONCURRENCY, MAX_COUNT, MAX_SEED = 4096, 1_000_000, 2**63 - 1


REPORT_CODES = (
    "exit codes: 0 judged; 1 some requests failed or were never recorded; 2 bad input; 3 an arm has a class in which "
    "nothing succeeded; 4 void: a control failed, nothing may be concluded"
)


def add_run_flags(run: argparse.ArgumentParser) -> None:
    """Declare every flag of `tandem bench run`."""
    _add_arm_flags(run)
    _add_request_flags(run)
    _add_schedule_flags(run)
    out = run.add_argument_group("output").add_mutually_exclusive_group(required=True)
    out.add_argument("--out", type=Path, metavar="DIR", help="a new folder for the run")
    out.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR; its manifest has all flags")


def add_report_flags(report: argparse.ArgumentParser) -> None:
    """Declare what `tandem bench report` takes."""
    report.add_argument("folder", type=Path, metavar="DIR", help="the folder that a run wrote")
    report.add_argument(
        "--margin", type=parse_margin, metavar="SHARE", help="a difference within it is `same` (default 0.05)"
    )
    report.add_argument(
        "--price",
        type=build_number_parser("USD an hour"),
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
        "--margin", type=parse_margin, metavar="SHARE", help="a difference within it is `same` (default 0.05)"
    )


def add_publish_flags(publish: argparse.ArgumentParser) -> None:
    """Declare what `tandem bench publish` takes."""
    publish.add_argument("folder", type=Path, metavar="DIR", help="the folder that a run wrote")
    publish.add_argument("--env", required=True, metavar="NAME", help="the environment to whose account it goes")
    publish.add_argument("--experiment", metavar="NAME", help="which of its experiments was measured")
    publish.add_argument("--simulated", action="store_true", help=SIMULATED_HELP)


def _add_arm_flags(run: argparse.ArgumentParser) -> None:
    arms = run.add_argument_group("arms", "either servers by address, or an experiment's own inside its cluster")
    arms.add_argument(
        "--baseline", type=parse_arm, metavar="[NAME=]URL", help="the server that others are compared with"
    )
    arms.add_argument(
        "--variant",
        type=parse_arm,
        nargs="+",
        action="extend",
        default=[],
        metavar="[NAME=]URL",
        help="others; repeatable",
    )
    arms.add_argument(
        "--model", nargs="+", action="extend", default=[], metavar="[NAME=]M",
        help="the model's served name; NAME=M for one arm",
    )  # fmt: skip
    arms.add_argument("--env", metavar="NAME", help="the environment inside whose cluster this runs")
    arms.add_argument("--experiment", metavar="NAME", help="its experiment: servers, model, suites and schedule")
    arms.add_argument(
        "--only", type=parse_names, metavar="NAME,...", help="these variants of the experiment; the first is A"
    )
    arms.add_argument(
        "--publish", nargs="?", const="", metavar="ENV",
        help="send each round to CloudWatch and S3; ENV where servers are named by address, with --experiment",
    )  # fmt: skip
    arms.add_argument("--simulated", action="store_true", help=f"with --publish: {SIMULATED_HELP}")
    arms.add_argument(
        "--placement", type=parse_placement, nargs="+", action="extend", default=[], metavar="NAME=WORD",
        help="where an arm's server runs, as base=first-half; kept in every record",
    )  # fmt: skip
    arms.add_argument("--api-key-env", metavar="VARIABLE", help="variable that holds the servers' API key")


def _add_request_flags(run: argparse.ArgumentParser) -> None:
    size_group = run.add_argument_group("size", "how much is asked; each flag below stands before it")
    size_group.add_argument(
        "--quick", action="store_true", help="three classes, 6 prompts of each, 192 tokens: minutes, and a verdict"
    )
    size_group.add_argument(
        "--full", action="store_true", help="every prompt, with the loads and the answers that its suite states"
    )
    request_group = run.add_argument_group("what is asked")
    request_group.add_argument(
        "--suite", nargs="+", action="extend", default=[], metavar="S", help="post, real or FILE.jsonl (default real)"
    )
    request_group.add_argument(
        "--classes", type=parse_names, default=(), metavar="NAME,...", help="of the suites; all by default"
    )
    request_group.add_argument(
        "--prompts-per-class", type=parse_count, metavar="N", help="the first N of each (default 8; of a file all)"
    )
    request_group.add_argument(
        "--max-tokens", type=parse_count, metavar="N",
        help="of an answer; a prompt may state fewer (default 560; of a file what it states)",
    )  # fmt: skip
    request_group.add_argument("--api", choices=("chat", "completions"), default="chat", help="(default chat)")
    request_group.add_argument(
        "--thinking", choices=("on", "off"), help="say it to the chat template; the model's own default"
    )
    request_group.add_argument(
        "--temperature", type=parse_temperature, default=0.0, metavar="T", help="(default 0.0, greedy)"
    )
    request_group.add_argument(
        "--ask", type=parse_extras, default=frozenset(), metavar="token-ids,logprobs", help="keep these too"
    )
    request_group.add_argument(
        "--llmperf-source", type=Path, metavar="DIR", help="checkout of llmperf, for the suite post's eighth case"
    )


def _add_schedule_flags(run: argparse.ArgumentParser) -> None:
    schedule_group = run.add_argument_group("when")
    load = schedule_group.add_mutually_exclusive_group()
    load.add_argument("--concurrency", type=parse_concurrencies, metavar="N,...", help="closed loops (default 4)")
    load.add_argument(
        "--rate", type=build_number_parser("requests a second"), metavar="R", help="an open loop: arrivals a second"
    )
    schedule_group.add_argument(
        "--schedule",
        choices=("interleaved", "simultaneous"),
        help="one arm at a time, A B B A (default), or all at once",
    )
    length = schedule_group.add_mutually_exclusive_group()
    length.add_argument("--rounds", type=parse_count, metavar="N", help="(default 4; fewer give no verdict)")
    length.add_argument("--duration", type=parse_duration, metavar="T", help="repeat rounds for so long: 180m, 3h, 90s")
    schedule_group.add_argument(
        "--control-rounds", type=parse_control_rounds, metavar="N",
        help="rounds of the baseline against itself: the noise floor (default 1; 0 is off)",
    )  # fmt: skip
    schedule_group.add_argument(
        "--repeats", type=parse_count, default=1, metavar="N", help="of each prompt in a round (default 1)"
    )
    schedule_group.add_argument(
        "--mixed", action="store_true", help="all classes of a suite together, not one at a time"
    )
    schedule_group.add_argument(
        "--seed", type=parse_seed, default=0, metavar="N", help="of orders, arrivals and sampling (default 0)"
    )
    schedule_group.add_argument(
        "--warm-up", type=parse_warm_up, metavar="N|auto", help="requests for each arm, or until stable (default auto)"
    )
    schedule_group.add_argument(
        "--time-outs", type=parse_timeouts, default={}, metavar="WHAT:S,...",
        help="connect:10,first-token:120,gap:60,whole:600, in seconds (these are the defaults)",
    )  # fmt: skip
    schedule_group.add_argument(
        "--goodput", type=parse_goodput_limits, metavar="METRIC:LIMIT,...", help="as ttft_ms:500,tpot_ms:30"
    )
    schedule_group.add_argument(
        "--price", type=build_number_parser("USD an hour"), metavar="USD_PER_HOUR", help="of what the run occupies"
    )


def parse_arm(text: str) -> tuple[str | None, str]:
    """Return the NAME, where one is given, and the URL."""
    name, url = None, text
    if "=" in text.partition("://")[0]:
        name, _, url = text.partition("=")
        if not NAME_PATTERN.fullmatch(name):
            raise argparse.ArgumentTypeError(f"name {name!r}; allowed: {NAME_RULE}")
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", url):
        raise argparse.ArgumentTypeError(
            f"{url!r} is no address; allowed: [NAME=]http(s)://HOST:PORT, with or without /v1"
        )
    return name, url


def parse_placement(text: str) -> tuple[str, str]:
    """Return an arm's NAME and the word for where its server runs."""
    name, _, word = text.partition("=")
    if not NAME_PATTERN.fullmatch(name) or not NAME_PATTERN.fullmatch(word):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: NAME=WORD, each {NAME_RULE}")
    return name, word


def parse_control_rounds(text: str) -> int:
    """Return a number of control rounds."""
    return _parse_whole(text, 0, MAX_CONTROL_ROUNDS)


def parse_count(text: str) -> int:
    """Return a whole number from 1 on."""
    return _parse_whole(text, 1, MAX_COUNT)


def parse_concurrencies(text: str) -> tuple[int, ...]:
    """Return concurrencies, each once."""
    return tuple(dict.fromkeys(_parse_whole(part, 1, MAX_CONCURRENCY) for part in text.split(",")))


def parse_seed(text: str) -> int:
    """Return a seed."""
    return _parse_whole(text, 0, MAX_SEED)


def parse_warm_up(text: str) -> int | None:
    """Return a number of requests; None for auto."""
    return None if text == "auto" else _parse_whole(text, 0, MAX_COUNT, "auto, or ")


def parse_temperature(text: str) -> float:
    """Return a sampling temperature."""
    return _parse_number(text, 0.0, 2.0, "a number from 0 to 2")


def build_number_parser(label: str) -> Callable[[str], float]:
    """Return a reader of numbers from a millionth to a million."""

    def parse_number(text: str) -> float:
        return _parse_number(text, 1e-6, 1e6, f"{label}, from 0.000001 to 1000000")

    return parse_number


def parse_margin(text: str) -> float:
    """Return a share of a speed-up."""
    return _parse_number(text, 0.001, 1.0, "a share from 0.001 to 1, as 0.05")


def parse_duration(text: str) -> float:
    """Return a length of time in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number and s, m or h, as 180m")
    return float(match[1]) * SECONDS_BY_UNIT[match[2]]


def parse_names(text: str) -> tuple[str, ...]:
    """Return names, each once."""
    return tuple(dict.fromkeys(part for part in text.split(",") if part))


def parse_extras(text: str) -> frozenset[str]:
    """Return the fields of what is asked beside the answer."""
    for word in parse_names(text):
        if word not in EXTRA_FIELDS:
            raise argparse.ArgumentTypeError(f"{word!r}; allowed: {', '.join(EXTRA_FIELDS)}")
    return frozenset(EXTRA_FIELDS[word] for word in parse_names(text))


def parse_timeouts(text: str) -> dict[str, float]:
    """Return limits of a request in seconds."""
    return {TIMEOUT_FIELDS[name]: value for name, value in _parse_pairs(text, tuple(TIMEOUT_FIELDS)).items()}


def parse_goodput_limits(text: str) -> dict[str, float]:
    """Return what a good answer keeps to: metric to its limit, in the metric's unit."""
    return _parse_pairs(text, GOODPUT_METRICS)


def _parse_pairs(text: str, names: tuple[str, ...]) -> dict[str, float]:
    pairs = {}
    for part in text.split(","):
        name, _, value = part.partition(":")
        if name not in names:
            raise argparse.ArgumentTypeError(f"{name!r}; allowed: {', '.join(names)}, each as NAME:NUMBER")
        pairs[name] = _parse_number(value, 1e-6, 1e6, f"{name}: a number above 0")
    return pairs


def _parse_whole(text: str, minimum: int, maximum: int, alternative: str = "") -> int:
    if not text.strip().isascii() or not text.strip().isdecimal() or not minimum <= int(text) <= maximum:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {alternative}a whole number from {minimum} to {maximum}")
    return int(text)


def _parse_number(text: str, minimum: float, maximum: float, requirement: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not minimum <= value <= maximum:  # NaN too
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {requirement}")
    return value
