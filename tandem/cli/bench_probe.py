"""`tandem bench probe URL`: ten lines on one server.

Invariant: each line says what the server did just now; notes go to standard error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import uvloop
from cyclopts import Parameter

from tandem.bench.load.server_description import ServerDescription, describe_server
from tandem.bench.plan.run_options import ApiName
from tandem.bench.records.manifest import ManifestArm, Timeouts
from tandem.cli.bench_flags import (
    ExtraBodies,
    Headers,
    KeyVariables,
    LeftOutFields,
    RecordFields,
    RequestLimits,
    ServerUrl,
)
from tandem.cli.console import VerbatimText, print_json, print_line, print_rows
from tandem.cli.selection import DEFAULTS, Selection
from tandem.cli.server_flags import assign_words, merge_bodies, read_access
from tandem.errors import ExitCode
from tandem.shell_command import quote_command

ARM_NAME = "server"
_MOST_MODELS = 8  # that a line names
_EXTRA_WORDS = {None: "not asked for (--record)", True: "yes", False: "no"}
_SPECULATION_KEYS = frozenset({"drafts", "draft_tokens", "accepted_tokens"})


def probe(
    url: ServerUrl,
    /,
    *,
    model: Annotated[str | None, Parameter(metavar="M")] = None,
    api: ApiName = "chat",
    record: RecordFields = frozenset(),
    api_key_env: KeyVariables = (),
    header: Headers = (),
    extra_body: ExtraBodies = (),
    leave_out: LeftOutFields = (),
    timeouts: RequestLimits | None = None,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Say what a server is, takes and offers, before a run.

    Args:
        url: of the server, with or without /v1, or the whole URL of an endpoint
        model: name of the served model (default: the only one that it lists)
        api: endpoint of the requests
        record: also ask for token ids or log-probabilities, of which some engines die
        api_key_env: environment variable with the API key
        header: HTTP header of every request, such as api-version:2; env:VAR reads V from the
            environment
        extra_body: JSON object of further fields of each request, such as {"top_p": 0.9}
        leave_out: field of the request not to send, such as seed
        timeouts: in seconds (default: connect:10,first-token:120,gap:60,whole:600)

    Raises:
        InputError: a variable is not set, or the server refuses what the user asked for.
        ExternalError: the server cannot be measured.
    """
    names = (ARM_NAME,)
    access = read_access({ARM_NAME: url}, api_key_env, header)[ARM_NAME]
    arm = ManifestArm(
        name=ARM_NAME,
        role="baseline",
        url=url,
        model=model or "",
        headers=tuple(access.headers),
        extra_body=merge_bodies(assign_words("--extra-body", extra_body, names)[ARM_NAME]),
        left_out=tuple(assign_words("--leave-out", leave_out, names)[ARM_NAME]),
    )
    limits = Timeouts(**(timeouts or {}))
    description = uvloop.run(
        describe_server(arm, api=api, access=access, extras=record, timeouts=limits)
    )
    if selection.as_json:
        return print_json(msgspec.to_builtins(description))
    print_rows(_list_rows(description), indent=0)
    for note in description.notes:
        print_line(f"note: {note}", stderr=True)
    return ExitCode.DONE


def _list_rows(description: ServerDescription) -> Iterator[tuple[str, str]]:
    """Yield the ten lines."""
    yield "server", _describe_server(description)
    yield "model", _describe_model(description)
    yield "streams", _describe_stream(description)
    limit = description.limit_field or "no limit"
    yield "limit", f"keeps to {limit}" if description.keeps_limit else f"ignores {limit}"
    yield "usage", _describe_usage(description)
    token_ids = _EXTRA_WORDS[description.token_ids]
    yield (
        "extras",
        f"token ids: {token_ids}; log-probabilities: {_EXTRA_WORDS[description.logprobs]}",
    )
    yield "takes", ", ".join(description.taken_fields)
    yield "refuses", ", ".join(description.refused_fields) or "none of the fields of a run"
    yield "metrics", _describe_counters(description)
    yield "next", VerbatimText(_write_command(description))


def _write_command(description: ServerDescription) -> str:
    """Return the command that measures this server beside another one."""
    words = ["--baseline", description.url, "--variant", "URL", "--model", description.model]
    words += [] if description.api == "chat" else ["--api", description.api]
    return quote_command("tandem", "bench", "run", *words, "--out", "runs/first")


def _describe_server(description: ServerDescription) -> str:
    facts = {
        "version": description.version,
        "owned_by": description.owned_by,
        "Server": description.server_header,
    }
    parts = [f"{name} {value}" for name, value in facts.items() if value]
    if description.simulated:
        parts.append("simulated")
    return f"{description.url}: {', '.join(parts) or 'it does not name itself'}"


def _describe_model(description: ServerDescription) -> str:
    names = description.listed_models
    listed = f"of {len(names)} listed" if names else "no list of models"
    others = [name for name in names if name != description.model]
    more = ", ..." if len(others) > _MOST_MODELS else ""
    text = f"{description.model}, {listed}"
    if others:
        text += f" (also {', '.join(others[:_MOST_MODELS])}{more})"
    if description.answers_as:
        text += f"; may answer as {', '.join(description.answers_as)}"
    return text


def _describe_stream(description: ServerDescription) -> str:
    answer = description.answer
    first = "no output" if answer.first_s is None else f"first after {answer.first_s * 1e3:.0f} ms"
    return (
        f"{answer.events} events, {answer.output_events} with output; {first}, end after"
        f" {answer.end_s * 1e3:.0f} ms; {answer.words} words"
    )


def _describe_usage(description: ServerDescription) -> str:
    if description.running_usage:
        return "counts tokens in the stream and at the end"
    return "counts tokens at the end only" if description.usage else "counts no tokens: no TPOT"


def _describe_counters(description: ServerDescription) -> str:
    keys = description.counters
    if keys is None:
        return f"none: {description.no_counters}"
    if not keys:
        return "/metrics has none of vLLM's counters"
    drafts = "drafts are counted" if _SPECULATION_KEYS & set(keys) else "no drafts are counted"
    return f"/metrics has {len(keys)} of vLLM's counters; {drafts}"
