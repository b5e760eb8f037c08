"""The options of a measurement in Python: the flags of `tandem bench run`, typed and frozen.

Invariant: options that exist are valid; a value that the command line refuses is refused here too,
with what is allowed. Standard library only, so the command line can read the limits without loading
the bench.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from tandem.bench.plan.restart_options import MAX_STARTS, RESTART_LIMIT_S, find_restart_fault
from tandem.bench.plan.server_access import freeze_value, thaw_value
from tandem.bench.plan.server_options import ServerOptions, refuse_option

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_RULE = "up to 63 letters, digits, '.', '_' and '-', the first a letter or digit"
# no password, because every record would have it
URL_PATTERN = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")
TIMEOUT_FIELDS = {
    "connect": "connect_s",
    "first-token": "first_token_s",
    "gap": "gap_s",
    "whole": "whole_s",
}
# figures of one request
GOODPUT_METRICS = ("ttft_ms", "tpot_ms", "tpot_exact_ms", "e2e_ms", "output_tokens_per_s")
RECORDED_FIELDS = {"token-ids": "token_ids", "logprobs": "logprobs"}
MAX_CONTROL_ROUNDS = 1000
MAX_CONCURRENCY = 4096
MAX_COUNT = 1_000_000
MAX_SEED = 2**63 - 1
MAX_SYNTHETIC_TOKENS = 1_000_000
MAX_ANSWER_TOKENS = 131_072
SYNTHETIC_PATTERN = re.compile(r"([1-9]\d{0,6})/([1-9]\d{0,5})")
SYNTHETIC_RULE = (
    f"IN/OUT in tokens, as 512/128: IN from 1 to {MAX_SYNTHETIC_TOKENS}, OUT from 1 to"
    f" {MAX_ANSWER_TOKENS}"
)
RATE_LIMITS = (1e-6, 1e6)
PRICE_LIMITS = (1e-6, 1e6)
TEMPERATURE_LIMITS = (0, 2)

SizeName = Literal["quick", "default", "full"]
ApiName = Literal["chat", "completions"]
ScheduleName = Literal["interleaved", "simultaneous"]

SHARE_LIMITS = (0.5, 0.999)

_INTEGER_LIMITS = {
    "turns": (1, MAX_COUNT),
    "sample": (1, MAX_COUNT),
    "prompts_per_class": (1, MAX_COUNT),
    "max_tokens": (1, MAX_COUNT),
    "rounds": (1, MAX_COUNT),
    "control_rounds": (0, MAX_CONTROL_ROUNDS),
    "repeats": (1, MAX_COUNT),
    "starts": (1, MAX_STARTS),
    "seed": (0, MAX_SEED),
    "warm_up": (0, MAX_COUNT),
}
_NUMBER_LIMITS = {
    "temperature": TEMPERATURE_LIMITS,
    "duration_s": (1e-3, 1e9),
    "restart_limit_s": (1e-3, 1e9),
    "price_usd_per_hour": PRICE_LIMITS,
    "goodput_share": SHARE_LIMITS,
}
_LOAD_LIMITS = {"concurrency": (1, MAX_CONCURRENCY), "rate_per_s": RATE_LIMITS}
_CHOICES = {
    "size": get_args(SizeName),
    "api": get_args(ApiName),
    "thinking": (None, True, False),
    "schedule": get_args(ScheduleName),
    "mixed": (True, False),
    "ignore_eos": (True, False),
    "knee": (True, False),
}
_EXCLUSIVE_FIELDS = (("rounds", "duration_s"), ("concurrency", "rate_per_s"))
# what these options must be: a search for the knee decides them
_KNEE_VALUES: Mapping[str, Any] = {
    "concurrency": None,
    "rate_per_s": None,
    "rounds": None,
    "duration_s": None,
    "schedule": "interleaved",
    "repeats": 1,
    "restart": {},
    "starts": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ServerOptions):
    """What to measure, and how: each option is a flag of `tandem bench run`.

    >>> options = RunOptions(
    ...     servers={"plain": "http://10.0.0.5:8000", "draft": "http://10.0.0.6:8000"},
    ...     model="Qwen/Qwen3-32B",
    ...     size="quick",
    ... )
    >>> options.control_rounds
    1
    >>> from tandem.errors import InputError
    >>> try:
    ...     RunOptions(servers={"plain": "http://10.0.0.5:8000"}, model="m", rounds=0)
    ... except InputError as error:
    ...     print(error)
    RunOptions.rounds: 0; allowed: a whole number from 1 to 1000000; change it

    Args:
        servers: name of each server to its URL, with or without /v1; the first is the baseline.
        model: the model's served name, or the name of each server to its model; a server without
            one is sent the only model that it lists.
        size: `quick` is minutes, `full` every prompt; an option below that is given wins over it.
        suites: `real`, `post` or files of prompts; `real` if empty and nothing is synthetic.
        prompt_column: column or key of a file with its prompts.
        class_field: column or key of a file with the class of each prompt; None for one class.
        turns: turns of the user that are sent of a recorded conversation.
        sample: prompts to draw of each file by the seed, or to make; None for all.
        synthetic: `512/128` makes prompts of 512 tokens, as the server counts them, with answers of
            at most 128.
        classes: the only classes of the suites; all if empty.
        prompts_per_class: the first prompts of each class; None for those of the size.
        max_tokens: most output tokens of an answer; None for those of the size.
        api: the endpoint.
        thinking: given to the chat template; None for the model's own default.
        temperature: of the sampling; 0 is greedy.
        record: what else to record of servers that give it: `token_ids`, `logprobs`.
        llmperf_source: checkout of llmperf, for the eighth case of the suite `post`.
        concurrency: requests in flight, each value a separate load; None for that of the size.
        rate_per_s: arrivals each second, each value a separate load, in place of concurrency.
        schedule: `interleaved` measures one server at a time, `simultaneous` all at once.
        rounds: number of rounds; if None 4, or `starts` if that is more. Fewer than 4 give no
            verdict.
        duration_s: repeat rounds for this time in seconds, in place of rounds.
        control_rounds: rounds that measure the baseline against itself, for the noise floor.
        starts: of each server that `restart` names, over all rounds.
        restart: name of each server to the shell command that restarts it, or one command that
            restarts all; servers with the same command are restarted by one run of it.
        restart_limit_s: longest time of a restart in seconds, until the server answers again.
        repeats: of each prompt in a round.
        mixed: whether a turn has all classes of a suite.
        seed: of orders, arrivals and sampling.
        warm_up: requests of warm-up for each server; None until it is stable.
        timeouts: limits of a request in seconds: `connect_s`, `first_token_s`, `gap_s`, `whole_s`.
        knee: search the highest rate of each server at which enough requests keep the limits of
            `goodput`, in place of loads and rounds.
        goodput_share: share of the requests for `knee`; None for 0.95.
        goodput: limit of each metric for a good answer, in the metric's unit, such as `{"ttft_ms":
            500}`.
        placement: name of a server to a word for where it runs; kept in every record.
        price_usd_per_hour: of what the run occupies.
        api_key: sent as a bearer token, never recorded: one for servers at the same scheme, host
            and port, or the name of each server to its key.
        headers: of every request, name to value: for all servers, or the name of each server to
            its headers. Only the names are recorded.
        extra_body: further fields of each request: for all servers, or by server.
        leave_out: fields of the request not to send: to all servers, or by server.
        ignore_eos: whether the servers go on to the most tokens, so that answers are equally long.
        speculates: name of a server that speculates to its number of drafted tokens; None if that
            is not known.

    Raises:
        InputError: a value is not allowed; the error names the option, the value and what is
            allowed.
    """

    model: str | Mapping[str, str] | None = None
    size: SizeName = "default"
    suites: Sequence[str | Path] = ()
    prompt_column: str | None = None
    class_field: str | None = None
    turns: int | None = None
    sample: int | None = None
    synthetic: str | None = None
    classes: Sequence[str] = ()
    prompts_per_class: int | None = None
    max_tokens: int | None = None
    api: ApiName = "chat"
    thinking: bool | None = None
    temperature: float = 0.0
    record: Collection[str] = frozenset()
    llmperf_source: Path | str | None = None
    concurrency: Sequence[int] | None = None
    rate_per_s: Sequence[float] | None = None
    schedule: ScheduleName = "interleaved"
    rounds: int | None = None
    duration_s: float | None = None
    control_rounds: int = 1
    starts: int = 1
    restart: str | Mapping[str, str] = field(default_factory=dict)
    restart_limit_s: float = RESTART_LIMIT_S
    repeats: int = 1
    mixed: bool = False
    seed: int = 0
    warm_up: int | None = None
    timeouts: Mapping[str, float] = field(default_factory=dict)
    knee: bool = False
    goodput_share: float | None = None
    goodput: Mapping[str, float] = field(default_factory=dict)
    placement: Mapping[str, str] = field(default_factory=dict)
    price_usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        """Check every value, and replace each collection by one that nobody can change."""
        self._check_values()
        self._check_collections()
        self._check_prompts()
        self._check_servers()
        self._check_server_options()
        self._check_loads()
        self._check_limits("timeouts", tuple(TIMEOUT_FIELDS.values()))
        self._check_limits("goodput", GOODPUT_METRICS)
        for first, second in _EXCLUSIVE_FIELDS:
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise refuse_option(second, getattr(self, second), f"{first} or {second}, not both")
        self._check_knee()
        self._check_restarts()
        self._freeze()

    def __reduce__(self) -> tuple[Any, ...]:
        """Write read-only mappings as plain ones, since they cannot be pickled."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        plain = {
            name: thaw_value(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }
        return _restore_options, (plain,)

    def models(self) -> dict[str, str]:
        """Return the model of each server; empty for the only one that it lists."""
        named = self.model if isinstance(self.model, Mapping) else {}
        common = self.model if isinstance(self.model, str) else ""
        return {name: named.get(name) or common for name in self.servers}

    def restart_commands(self) -> dict[str, str]:
        """Return the command that restarts each server, of the servers that have one."""
        if isinstance(self.restart, str):
            return dict.fromkeys(self.servers, self.restart)
        return dict(self.restart)

    def _check_values(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if not any(type(value) is type(choice) and value == choice for choice in choices):
                raise refuse_option(name, value, ", ".join(map(repr, choices)))
        for name, integer_limits in _INTEGER_LIMITS.items():
            _check_number(name, getattr(self, name), integer_limits, is_whole=True)
        for name, limits in _NUMBER_LIMITS.items():
            _check_number(name, getattr(self, name), limits)

    def _check_collections(self) -> None:
        for name in ("suites", "classes", "record"):
            _check_words(name, getattr(self, name))
        for name in ("timeouts", "goodput", "placement", "speculates"):
            if not isinstance(getattr(self, name), Mapping):
                raise refuse_option(name, getattr(self, name), "a mapping")
        for word in self.record:
            if word not in RECORDED_FIELDS.values():
                raise refuse_option("record", word, ", ".join(RECORDED_FIELDS.values()))

    def _check_prompts(self) -> None:
        for name in ("prompt_column", "class_field"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise refuse_option(name, value, "the name of a column or key")
        if self.synthetic is not None:
            try:
                parse_synthetic(self.synthetic)
            except (TypeError, ValueError) as error:
                raise refuse_option("synthetic", self.synthetic, SYNTHETIC_RULE) from error

    def _check_servers(self) -> None:
        if not isinstance(self.servers, Mapping) or not self.servers:
            raise refuse_option(
                "servers", self.servers, "name of each server to its URL, the baseline first"
            )
        for name, url in self.servers.items():
            if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
                raise refuse_option("servers", name, NAME_RULE)
            if not isinstance(url, str) or not URL_PATTERN.fullmatch(url):
                raise refuse_option(
                    f"servers[{name!r}]", url, "http(s)://HOST:PORT, with or without /v1"
                )
        self._check_models()
        allowed = f"a server of {', '.join(self.servers)}, to {NAME_RULE}"
        for name, word in self.placement.items():
            is_word = isinstance(word, str) and NAME_PATTERN.fullmatch(word)
            if name not in self.servers or not is_word:
                raise refuse_option(f"placement[{name!r}]", word, allowed)

    def _check_models(self) -> None:
        servers = ", ".join(self.servers)
        allowed = f"one for all servers, or one for each of {servers} that has several"
        models: Mapping[str, Any] = dict.fromkeys(self.servers, self.model)
        if isinstance(self.model, Mapping):
            models = self.model
        is_named = all(name is None or (isinstance(name, str) and name) for name in models.values())
        if not is_named or not models.keys() <= self.servers.keys():
            raise refuse_option("model", self.model, allowed)

    def _check_loads(self) -> None:
        for name, limits in _LOAD_LIMITS.items():
            values = getattr(self, name)
            if values is None:
                continue
            if not isinstance(values, Sequence) or isinstance(values, str) or not values:
                noun = "whole numbers" if name == "concurrency" else "numbers"
                raise refuse_option(name, values, f"a tuple of {noun} {_format_range(limits)}")
            for value in values:
                _check_number(name, value, limits, is_whole=name == "concurrency")

    def _check_knee(self) -> None:
        if not self.knee:
            if self.goodput_share is not None:
                raise refuse_option("goodput_share", self.goodput_share, "a share beside knee=True")
            return
        if not self.goodput:
            raise refuse_option("goodput", dict(self.goodput), "a limit beside knee=True")
        for name, value in _KNEE_VALUES.items():
            if getattr(self, name) != value:
                allowed = f"{value!r} beside knee=True, which decides it"
                raise refuse_option(name, getattr(self, name), allowed)

    def _check_restarts(self) -> None:
        if not isinstance(self.restart, str | Mapping):
            allowed = "a command, or the name of a server to one"
            raise refuse_option("restart", self.restart, allowed)
        if not all(isinstance(command, str) for command in self.restart_commands().values()):
            raise refuse_option("restart", self.restart, "texts of commands")
        if self.restart_limit_s != RESTART_LIMIT_S and not self.restart:
            raise refuse_option("restart_limit_s", self.restart_limit_s, "a time beside restart")
        fault = find_restart_fault(
            self.starts,
            self.restart_commands(),
            servers=self.servers,
            rounds=self.rounds,
            duration_s=self.duration_s,
        )
        if fault is not None:
            raise refuse_option(*fault)

    def _check_limits(self, name: str, keys: Sequence[str]) -> None:
        for key, value in getattr(self, name).items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if key not in keys or not is_number or not 0 < value < math.inf:
                raise refuse_option(
                    f"{name}[{key!r}]", value, f"a number above 0 of {', '.join(keys)}"
                )

    def _freeze(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name in _NUMBER_LIMITS and value is not None:
                value = float(value)
            elif entry.name == "suites":
                value = tuple(map(str, value))
            elif entry.name == "record":
                value = frozenset(value)
            elif isinstance(value, Mapping):
                value = freeze_value(value)
            elif entry.name == "rate_per_s" and value is not None:
                value = tuple(dict.fromkeys(map(float, value)))
            elif isinstance(value, Sequence) and not isinstance(value, str):
                value = tuple(dict.fromkeys(value))
            object.__setattr__(self, entry.name, value)


def parse_synthetic(text: str) -> tuple[int, int]:
    """Return the tokens of a synthetic prompt and the most tokens of its answer.

    Raises:
        ValueError: the text is not IN/OUT, or a number is too large.
    """
    match = SYNTHETIC_PATTERN.fullmatch(text)
    if match is not None:
        input_tokens = int(match[1])
        output_tokens = int(match[2])
        if input_tokens <= MAX_SYNTHETIC_TOKENS and output_tokens <= MAX_ANSWER_TOKENS:
            return input_tokens, output_tokens
    raise ValueError(f"{text!r}; allowed: {SYNTHETIC_RULE}")


def _restore_options(values: dict[str, Any]) -> RunOptions:
    return RunOptions(**values)


def _check_number(
    name: str, value: Any, limits: tuple[float, float], *, is_whole: bool = False
) -> None:
    """Refuse what is not a number within its limits; None is allowed where it is the default.

    Raises:
        InputError: the value is not allowed.
    """
    if value is None and name in _OPTIONAL_FIELDS:
        return
    kinds = int if is_whole else int | float
    if (
        not isinstance(value, kinds)
        or isinstance(value, bool)
        or not limits[0] <= value <= limits[1]
    ):
        noun = "a whole number" if is_whole else "a number"
        raise refuse_option(name, value, f"{noun} {_format_range(limits)}")


def _format_range(limits: tuple[float, float]) -> str:
    low, high = (f"{limit:f}".rstrip("0").rstrip(".") for limit in limits)
    return f"from {low} to {high}"


def _check_words(name: str, value: Any) -> None:
    """Refuse a single text in place of several, which would be taken letter by letter.

    Raises:
        InputError: the value is not allowed.
    """
    is_list = isinstance(value, Collection) and not isinstance(value, str | Mapping)
    if not is_list or not all(isinstance(word, str | Path) for word in value):
        raise refuse_option(name, value, "a tuple of texts")


_OPTIONAL_FIELDS = frozenset(entry.name for entry in fields(RunOptions) if entry.default is None)
