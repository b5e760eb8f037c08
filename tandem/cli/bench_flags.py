"""The flags of `tandem bench run`, their limits, and those of a resumed run.

Invariant: of the bench only the limits of its options are loaded here before a run goes on, so that
every other command starts quickly. A flag that is given again next to `--resume` stands before the
recorded one; whether it contradicts the run is then said as of any other setting, with both values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, ArgumentCollection, Group, Parameter, Token

from tandem.bench.plan.restart_options import MAX_STARTS, RESTART_LIMIT_S
from tandem.bench.plan.run_options import (
    GOODPUT_METRICS,
    MAX_CONCURRENCY,
    MAX_CONTROL_ROUNDS,
    MAX_COUNT,
    MAX_SEED,
    NAME_PATTERN,
    NAME_RULE,
    RATE_LIMITS,
    RECORDED_FIELDS,
    SHARE_LIMITS,
    TEMPERATURE_LIMITS,
    TIMEOUT_FIELDS,
    URL_PATTERN,
    ApiName,
    ScheduleName,
    parse_synthetic,
)
from tandem.cli.flags import (
    EXCLUSIVE,
    Name,
    Names,
    Price,
    RunFolder,
    Whole,
    read_each,
    read_last,
    require_range,
    require_single,
    split_names,
)
from tandem.cli.server_flags import (
    ServerWord,
    hide_header_value,
    parse_extra_body,
    parse_header,
    parse_key_variable,
    parse_left_out,
    parse_speculation,
)
from tandem.errors import InputError

SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600}

CHANGEABLE_FLAGS = frozenset({"--out", "--resume", "--placement", "--goodput", "--price"})
"""What is no setting of a run, or may change while it goes on: the manifest holds the last one in
its own field."""
COMMON_FLAGS = frozenset({"--environments", "--experiments", "--json", "--recorded"})
EXCLUSIVE_FLAGS = (("--rounds", "--duration"), ("--concurrency", "--rate"))
UNRECORDED_FLAGS = frozenset({"--quick", "--full", "--record", "--warm-up"})
"""What no field of the manifest holds as it was asked."""


def parse_url(text: str) -> str:
    """Return the URL of a server."""
    if not URL_PATTERN.fullmatch(text):
        raise ValueError(
            "not a URL; allowed: http(s)://HOST:PORT, with or without /v1, or the whole URL of an"
            " endpoint; no query and no password"
        )
    return text


def parse_arm(text: str) -> tuple[str | None, str]:
    """Return the NAME, where one is given, and the URL."""
    name = None
    url = text
    if "=" in text.partition("://")[0]:
        name, _, url = text.partition("=")
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError(f"name {name!r}; allowed: {NAME_RULE}")
    return name, parse_url(url)


def parse_placement(text: str) -> tuple[str, str]:
    """Return an arm's NAME and the word for where its server runs."""
    name, _, word = text.partition("=")
    if not NAME_PATTERN.fullmatch(name) or not NAME_PATTERN.fullmatch(word):
        raise ValueError(f"{text!r}; allowed: NAME=WORD, each {NAME_RULE}")
    return name, word


def parse_whole(text: str, minimum: int, maximum: int, alternative: str = "") -> int:
    """Return a whole number within its bounds."""
    if (
        not text.strip().isascii()
        or not text.strip().isdecimal()
        or not minimum <= int(text) <= maximum
    ):
        raise ValueError(
            f"{text!r}; allowed: {alternative}a whole number from {minimum} to {maximum}"
        )
    return int(text)


def parse_concurrencies(text: str) -> tuple[int, ...]:
    """Return concurrencies, each once."""
    return tuple(dict.fromkeys(parse_whole(part, 1, MAX_CONCURRENCY) for part in text.split(",")))


def parse_rates(text: str) -> tuple[float, ...]:
    """Return rates of open loops, each once."""
    low, high = RATE_LIMITS
    rates = {}
    for part in text.split(","):
        is_number = re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", part)
        if not is_number or not low <= float(part) <= high:
            raise ValueError(f"{part!r}; allowed: requests a second, from {low:g} to {high:g}")
        rates[float(part)] = part
    return tuple(rates)


def parse_warm_up(text: str) -> int | None:
    """Return a number of requests; None for auto."""
    return None if text == "auto" else parse_whole(text, 0, MAX_COUNT, "auto, or ")


def parse_duration(text: str) -> float:
    """Return a length of time in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or float(match[1]) <= 0:
        raise ValueError(f"{text!r}; allowed: a number and s, m or h, as 180m")
    return float(match[1]) * SECONDS_BY_UNIT[match[2]]


def read_synthetic(text: str) -> str:
    """Return the size of synthetic prompts as it is written, once it is one."""
    parse_synthetic(text)
    return text


def parse_record_fields(text: str) -> frozenset[str]:
    """Return the fields of what is recorded next to the answer."""
    for word in split_names(text):
        if word not in RECORDED_FIELDS:
            raise ValueError(f"{word!r}; allowed: {', '.join(RECORDED_FIELDS)}")
    return frozenset(RECORDED_FIELDS[word] for word in split_names(text))


def parse_timeouts(text: str) -> dict[str, float]:
    """Return limits of a request in seconds."""
    return {
        TIMEOUT_FIELDS[name]: value
        for name, value in _parse_pairs(text, tuple(TIMEOUT_FIELDS)).items()
    }


def parse_goodput_limits(text: str) -> dict[str, float]:
    """Return what a good answer keeps to: metric to its limit, in the metric's unit."""
    return _parse_pairs(text, GOODPUT_METRICS)


def _parse_pairs(text: str, names: tuple[str, ...]) -> dict[str, float]:
    pairs = {}
    for part in text.split(","):
        name, _, value = part.partition(":")
        if name not in names or not re.fullmatch(r"\d{1,6}(\.\d+)?", value) or not float(value):
            example = f"{names[0]}:500"
            raise ValueError(
                f"{part!r}; allowed: NAME:NUMBER as in {example}, a number above 0 of"
                f" {', '.join(names)}"
            )
        pairs[name] = float(value)
    return pairs


def _declare(
    group: Group | tuple[Group, ...] | str, metavar: str, read: Callable[[str], Any]
) -> Parameter:
    return Parameter(
        group=group, metavar=metavar, converter=read_last(read), n_tokens=1, accepts_keys=False
    )


def _declare_list(group: Group | str, metavar: str, read: Callable[[str], Any]) -> Parameter:
    return Parameter(
        group=group,
        metavar=metavar,
        converter=read_each(read),
        n_tokens=1,
        consume_multiple=1,
        json_list=False,  # a value may begin with a bracket
        accepts_keys=False,
    )


PARAMETERS = "Parameters"  # the command line's own group, of commands without groups
ARMS = Group(
    "Arms",
    help="servers by URL, or the servers of an experiment from inside its cluster",
    sort_key=1,
)
SIZE = Group("Size", help="how much is sent; the flags below override it", sort_key=2)
REQUESTS = Group("Requests", sort_key=3)
SCHEDULE = Group("Load and schedule", sort_key=4)
ONE_SIZE = Group("size", show=False, validator=EXCLUSIVE)
LOAD = Group("load", show=False, validator=EXCLUSIVE)
LENGTH = Group("length", show=False, validator=EXCLUSIVE)
OUTPUT = Group("Output", validator=require_single, sort_key=0)

ArmUrl = tuple[str | None, str]
CONTROL_ROUNDS_RANGE = require_range(0, MAX_CONTROL_ROUNDS)
Count = Annotated[Whole, Parameter(validator=require_range(1, MAX_COUNT))]
KeyVariables = Annotated[
    tuple[ServerWord, ...], _declare_list(PARAMETERS, "[NAME=]VAR", parse_key_variable)
]
Headers = Annotated[tuple[ServerWord, ...], _declare_list(PARAMETERS, "[NAME=]K:V", parse_header)]
ExtraBodies = Annotated[
    tuple[ServerWord, ...], _declare_list(PARAMETERS, "[NAME=]JSON", parse_extra_body)
]
LeftOutFields = Annotated[
    tuple[ServerWord, ...], _declare_list(PARAMETERS, "[NAME=]FIELD", parse_left_out)
]
RecordFields = Annotated[
    frozenset[str], _declare(PARAMETERS, "token-ids,logprobs", parse_record_fields)
]
RequestLimits = Annotated[dict[str, float], _declare(PARAMETERS, "WHAT:S,...", parse_timeouts)]
ServerUrl = Annotated[str, _declare(PARAMETERS, "URL", parse_url)]
Words = Annotated[tuple[str, ...], Parameter(consume_multiple=1)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class RunFlags:
    """What `tandem bench run` takes.

    Args:
        out: new folder for the run
        resume: continue the run in DIR, with the flags in its manifest
        baseline: the server that the others are compared with
        variant: another server; repeatable
        model: name of the served model; NAME=M for one arm (default: the only one that it lists)
        env: environment in whose cluster this command runs
        experiment: experiment that gives servers, model, suites and schedule
        variants: only these variants of the experiment; the first is the baseline
        publish: send each round to CloudWatch and S3; for servers by URL, name ENV and add
            --experiment
        simulated: with --publish: the servers are simulated: use a separate namespace
        placement: where the server of an arm runs, such as base=first-half; kept in every record
        api_key_env: environment variable with the API key; NAME=VAR for one arm
        header: HTTP header of every request, such as api-version:2; env:VAR reads V from the
            environment
        speculates: NAME speculates although it has no counters, with K drafted tokens
        quick: three classes, 6 prompts of each, 192 tokens: a verdict in minutes
        full: every prompt, with the loads and answer lengths that its suite states
        suite: post, real or FILE of prompts: JSON Lines, ShareGPT, CSV, text (default: real)
        prompt_column: column or key of a FILE with its prompts
        class_field: column or key of a FILE with the class of each prompt (default: one class)
        turns: turns of the user to send of a recorded conversation, with its own answers (default:
            1)
        sample: draw N prompts of each FILE by the seed, or make N with --synthetic (default: all;
            24)
        synthetic: make prompts of IN tokens, as the server counts them, for answers of at most OUT
        classes: only these classes of the suites (default: all)
        prompts_per_class: the first N prompts of each class (default: 8; of a file, all)
        max_tokens: longest answer; a prompt may state fewer (default: 560; of a file, what it
            states)
        api: endpoint of the requests
        extra_body: JSON object of further fields of each request, such as {"top_p": 0.9}
        leave_out: field of the request not to send, such as seed
        ignore_eos: let every answer go on to its most tokens
        thinking: tell the chat template to think or not (default: the model's own)
        temperature: sampling temperature; 0 is greedy (default: 0)
        record: also record token ids or log-probabilities
        llmperf_source: checkout of llmperf, for the eighth case of the suite post
        concurrency: closed loop: requests at once (default: 4)
        rate: open loop: requests started per second, each value a separate load
        schedule: one arm at a time, A B B A (default), or all at once
        rounds: number of rounds (default: 4, or the number of starts if higher; fewer than 4
            give no verdict)
        duration: repeat rounds for this long, such as 180m, 3h or 90s, in place of --rounds
        control_rounds: rounds of the baseline against itself, for the noise floor (0 is off)
        starts: how often to start each server over all rounds; from 6 on the verdict covers
            differences between starts (default: 1)
        restart: shell command that restarts the servers, or that of one; repeatable
        restart_limit: longest time of a restart, until the server answers (default: 20m)
        repeats: how often to send each prompt in a round
        mixed: send all classes of a suite together, not one at a time
        seed: seed of order, arrivals and sampling (default: 0)
        warm_up: warm-up requests for each arm, or auto: until it is stable (default: auto)
        timeouts: in seconds (default: connect:10,first-token:120,gap:60,whole:600)
        knee: find the highest rate at which enough requests keep the limits of --goodput
        goodput_share: share of the requests for --knee (default: 0.95)
        goodput: limits of a good request, such as ttft_ms:500,tpot_ms:30
        price: price of the hardware, for the cost of tokens
        recorded: the flags that were given, as the manifest keeps them
    """

    out: Annotated[RunFolder | None, Parameter(group=OUTPUT)] = None
    resume: Annotated[RunFolder | None, Parameter(group=OUTPUT)] = None
    baseline: Annotated[ArmUrl | None, _declare(ARMS, "[NAME=]URL", parse_arm)] = None
    variant: Annotated[tuple[ArmUrl, ...], _declare_list(ARMS, "[NAME=]URL", parse_arm)] = ()
    model: Annotated[Words, Parameter(group=ARMS, metavar="[NAME=]M")] = ()
    env: Annotated[Name | None, Parameter(group=ARMS)] = None
    experiment: Annotated[Name | None, Parameter(group=ARMS)] = None
    variants: Annotated[Names, Parameter(group=ARMS)] = ()
    publish: Annotated[
        tuple[str, ...] | None, Parameter(group=ARMS, metavar="[ENV]", consume_multiple=(0, 1))
    ] = None
    simulated: Annotated[bool, Parameter(group=ARMS)] = False
    placement: Annotated[
        tuple[tuple[str, str], ...], _declare_list(ARMS, "NAME=WORD", parse_placement)
    ] = ()
    api_key_env: Annotated[KeyVariables, Parameter(group=ARMS)] = ()
    header: Annotated[Headers, Parameter(group=ARMS)] = ()
    speculates: Annotated[
        tuple[ServerWord, ...], _declare_list(ARMS, "NAME[=K]", parse_speculation)
    ] = ()
    quick: Annotated[bool, Parameter(group=(SIZE, ONE_SIZE))] = False
    full: Annotated[bool, Parameter(group=(SIZE, ONE_SIZE))] = False
    suite: Annotated[Words, Parameter(group=REQUESTS, metavar="S")] = ()
    prompt_column: Annotated[str | None, _declare(REQUESTS, "NAME", str)] = None
    class_field: Annotated[str | None, _declare(REQUESTS, "NAME", str)] = None
    turns: Annotated[Count | None, Parameter(group=REQUESTS)] = None
    sample: Annotated[Count | None, Parameter(group=REQUESTS)] = None
    synthetic: Annotated[str | None, _declare(REQUESTS, "IN/OUT", read_synthetic)] = None
    classes: Annotated[Names, Parameter(group=REQUESTS)] = ()
    prompts_per_class: Annotated[Count | None, Parameter(group=REQUESTS)] = None
    max_tokens: Annotated[Count | None, Parameter(group=REQUESTS)] = None
    api: Annotated[ApiName, Parameter(group=REQUESTS)] = "chat"
    extra_body: Annotated[ExtraBodies, Parameter(group=REQUESTS)] = ()
    leave_out: Annotated[LeftOutFields, Parameter(group=REQUESTS)] = ()
    ignore_eos: Annotated[bool, Parameter(group=REQUESTS)] = False
    thinking: Annotated[Literal["on", "off"] | None, Parameter(group=REQUESTS)] = None
    temperature: Annotated[
        float, Parameter(group=REQUESTS, metavar="T", validator=require_range(*TEMPERATURE_LIMITS))
    ] = 0.0
    record: Annotated[RecordFields, Parameter(group=REQUESTS)] = frozenset()
    llmperf_source: Annotated[RunFolder | None, Parameter(group=REQUESTS)] = None
    concurrency: Annotated[
        tuple[int, ...] | None, _declare((SCHEDULE, LOAD), "N,...", parse_concurrencies)
    ] = None
    rate: Annotated[tuple[float, ...] | None, _declare((SCHEDULE, LOAD), "R,...", parse_rates)] = (
        None
    )
    schedule: Annotated[ScheduleName | None, Parameter(group=SCHEDULE)] = None
    rounds: Annotated[Count | None, Parameter(group=(SCHEDULE, LENGTH))] = None
    duration: Annotated[float | None, _declare((SCHEDULE, LENGTH), "T", parse_duration)] = None
    control_rounds: Annotated[Whole, Parameter(group=SCHEDULE, validator=CONTROL_ROUNDS_RANGE)] = 1
    starts: Annotated[Whole, Parameter(group=SCHEDULE, validator=require_range(1, MAX_STARTS))] = 1
    restart: Annotated[Words, Parameter(group=SCHEDULE, metavar="[NAME=]COMMAND")] = ()
    restart_limit: Annotated[float, _declare(SCHEDULE, "T", parse_duration)] = RESTART_LIMIT_S
    repeats: Annotated[Count, Parameter(group=SCHEDULE)] = 1
    mixed: Annotated[bool, Parameter(group=SCHEDULE)] = False
    seed: Annotated[Whole, Parameter(group=SCHEDULE, validator=require_range(0, MAX_SEED))] = 0
    warm_up: Annotated[int | None, _declare(SCHEDULE, "N|auto", parse_warm_up)] = None
    timeouts: Annotated[RequestLimits | None, Parameter(group=SCHEDULE)] = None
    knee: Annotated[bool, Parameter(group=(SCHEDULE, LOAD, LENGTH))] = False
    goodput_share: Annotated[
        float | None,
        Parameter(group=SCHEDULE, metavar="SHARE", validator=require_range(*SHARE_LIMITS)),
    ] = None
    goodput: Annotated[
        dict[str, float] | None, _declare(SCHEDULE, "METRIC:LIMIT,...", parse_goodput_limits)
    ] = None
    price: Annotated[Price | None, Parameter(group=SCHEDULE)] = None
    recorded: Annotated[Any, Parameter(show=False)] = None


NO_FLAGS = RunFlags()


def restore_flags(_app: App, _commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Note the given flags; with `--resume`, take the others from the run's manifest.

    Args:
        arguments: of the command line; those of the manifest are added.

    Raises:
        InputError: the folder holds no run, or a flag contradicts one that no other setting shows.
    """
    by_flag = {
        argument.name: argument for argument in arguments if argument.name not in COMMON_FLAGS
    }
    # a search for the knee cannot go on with other limits
    changeable_flags = CHANGEABLE_FLAGS - ({"--goodput"} if by_flag["--knee"].tokens else set())
    flags = {
        flag: _read_values(flag, argument.tokens)
        for flag, argument in by_flag.items()
        if argument.tokens and flag not in changeable_flags
    }
    if by_flag["--resume"].tokens and not by_flag["--out"].tokens:
        folder = Path(by_flag["--resume"].tokens[-1].value)
        rivals = {
            *flags,
            *(name for pair in EXCLUSIVE_FLAGS if set(pair) & set(flags) for name in pair),
        }
        old_flags = {
            flag: old
            for flag, old in _read_old_flags(folder, flags).items()
            if flag not in rivals and not by_flag[flag].tokens
        }
        _require_header_values(folder, old_flags.get("--header", ()))
        for flag, values in old_flags.items():
            words = [Token(keyword=flag, value=value, source="manifest") for value in values]
            implicit_value = () if flag == "--publish" else True
            by_flag[flag].tokens += words or [
                Token(keyword=flag, implicit_value=implicit_value, source="manifest")
            ]
        flags |= old_flags
    recorded = next(argument for argument in arguments if argument.name == "--recorded")
    recorded.tokens.append(Token(keyword="--recorded", implicit_value=flags, source="tandem"))


def _require_header_values(folder: Path, words: Sequence[str]) -> None:
    """Refuse to go on without the values of the run's headers, which no manifest has.

    Raises:
        InputError: a header of the run has no variable to read its value from.
    """
    from tandem.bench.records.manifest import FILE as MANIFEST_NAME  # noqa: PLC0415 - the bench is loaded when it runs

    names = [word for word in words if ":" not in word]
    if names:
        problem = f"the manifest has no value of {', '.join(names)}"
        change = f"give each --header again: --header {names[0]}:VALUE"
        raise InputError(problem, where=str(folder / MANIFEST_NAME), change=change)


def _read_values(flag: str, tokens: list[Token]) -> tuple[str, ...]:
    """Return a flag's values as text, none for a switch; files by their whole path."""
    from tandem.bench.suites.suite import BUILT_IN  # noqa: PLC0415 - the bench is loaded when it runs

    texts = [token.value for token in tokens if token.value]
    if flag == "--header":
        return tuple(map(hide_header_value, texts))
    is_file = flag in {"--llmperf-source", "--suite"}
    return tuple(
        str(Path(text).absolute()) if is_file and text not in BUILT_IN else text for text in texts
    )


def _read_old_flags(
    folder: Path, new_flags: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return the flags of the run's manifest.

    Raises:
        InputError: the folder holds no run, or a flag contradicts one that no other setting shows.
    """
    from tandem.bench.records.manifest import FILE, read_manifest  # noqa: PLC0415 - the bench is loaded when it runs

    old_flags = read_manifest(folder).flags
    for flag in UNRECORDED_FLAGS & new_flags.keys():
        old_text, new_text = (
            " ".join(flags.get(flag, ("not given",))) for flags in (old_flags, new_flags)
        )
        if new_flags[flag] != old_flags.get(flag):
            problem = f"{flag} was {old_text} when this run began and is {new_text or 'given'} now"
            change = f"leave {flag} out, or begin another run: --out DIR"
            raise InputError(problem, where=str(folder / FILE), change=change)
    return old_flags
