"""What one server is, takes and offers: the probe, and a look at its counters.

Invariant: every value was in an answer of the server just now; what was not asked for is None.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import msgspec

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.completion_request import LIMIT_FIELDS
from tandem.bench.load.field_trial import FIELD_GROUPS, OFFERS_BY_FIELD, RequestTrial
from tandem.bench.load.metrics_scraper import read_counters
from tandem.bench.load.probe import DEFAULT_TIMEOUTS, PLAIN_DRAFT, ProbeResult, probe_server
from tandem.bench.plan.run_options import ApiName
from tandem.bench.plan.server_access import NO_ACCESS, ServerAccess
from tandem.bench.records.counter_names import SAMPLES
from tandem.bench.records.manifest import ManifestArm, Timeouts

SEEDED_DRAFT = replace(PLAIN_DRAFT, seed=0)  # as a run without --seed sends it


class StreamedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The last tiny answer.

    Args:
        events: data events of the stream.
        output_events: those with output.
        first_s, end_s: seconds from the request to the first output and to the end; `first_s` is
            None without output.
        words: of the answer.
    """

    events: int
    output_events: int
    first_s: float | None
    end_s: float
    words: int


class ServerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One server.

    Args:
        url, api: as the user gave them.
        version, owned_by, server_header: as the server names itself; None if it does not.
        simulated: whether it announced that it is simulated.
        model: that was requested.
        answers_as: further names that it may give the model.
        listed_models: that it lists.
        answer: the last one.
        limit_field: the field that limits the answer.
        keeps_limit: whether the answer kept to it.
        usage, running_usage: whether it counts tokens at the end, and in the stream.
        token_ids, logprobs: whether it gives them; None if they were not asked for.
        taken_fields, refused_fields: of a request, beside model, prompt and `stream`.
        counters: that its /metrics has, by Tandem's names; None without that page.
        no_counters: why there are none.
        notes: sentences on what a run would do without.
    """

    url: str
    api: ApiName
    version: str | None
    owned_by: str | None
    server_header: str | None
    simulated: bool | None
    model: str
    answers_as: tuple[str, ...]
    listed_models: tuple[str, ...]
    answer: StreamedAnswer
    limit_field: str | None
    keeps_limit: bool
    usage: bool
    running_usage: bool
    token_ids: bool | None
    logprobs: bool | None
    taken_fields: tuple[str, ...]
    refused_fields: tuple[str, ...]
    counters: tuple[str, ...] | None
    no_counters: str | None
    notes: tuple[str, ...]


async def describe_server(
    arm: ManifestArm,
    *,
    api: ApiName = "chat",
    access: ServerAccess = NO_ACCESS,
    extras: Collection[str] = (),
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> ServerDescription:
    """Probe a server as a run would, and read its counters.

    Args:
        arm: with its URL, and the model if one is named.
        api: of the requests.
        access: its key and headers.
        extras: to ask for, of `ServerOffers`: some engines die of log-probabilities.
        timeouts: of each request.

    Raises:
        InputError: the server has no such model, or refuses what the user asked for.
        ExternalError: nothing answers, the answer is not from such a server, or it dies of a field.
    """
    async with CompletionClient(arm, limit=1, api=api, access=access) as client:
        result = await probe_server(client, SEEDED_DRAFT, extras=extras, timeouts=timeouts)
        counters, reason = await read_counters(client, result.models)
    return _build_description(result, api, extras, counters, reason)


def _build_description(
    result: ProbeResult,
    api: ApiName,
    extras: Collection[str],
    counters: dict[str, float] | None,
    reason: str | None,
) -> ServerDescription:
    arm = result.arm
    offers = arm.offers
    limit_names = [name for name in LIMIT_FIELDS[api] if name not in arm.left_out]
    return ServerDescription(
        url=arm.url,
        api=api,
        version=arm.server_version,
        owned_by=arm.owned_by,
        server_header=arm.server_header,
        simulated=arm.simulated,
        model=arm.model,
        answers_as=tuple(sorted(result.models - {arm.model})),
        listed_models=result.listed_models,
        answer=_describe_answer(result.trial),
        limit_field=limit_names[0] if limit_names else None,
        keeps_limit=not result.trial.ignores_limit,
        usage=offers.include_usage,
        running_usage=offers.continuous_usage,
        token_ids=offers.token_ids if "token_ids" in extras else None,
        logprobs=offers.logprobs if "logprobs" in extras else None,
        taken_fields=(*limit_names[:1], *_list_taken(result.trial)),
        refused_fields=tuple(result.refusals),
        counters=None if counters is None else tuple(key for key in counters if key in SAMPLES),
        no_counters=reason,
        notes=result.notes,
    )


def _describe_answer(trial: RequestTrial) -> StreamedAnswer:
    chunks = trial.answer.chunks
    output_times_s = [chunk.at_s for chunk in chunks if chunk.bears_tokens]
    return StreamedAnswer(
        events=len(chunks),
        output_events=len(output_times_s),
        first_s=output_times_s[0] if output_times_s else None,
        end_s=trial.answer.end_s,
        words=trial.word_count,
    )


def _list_taken(trial: RequestTrial) -> list[str]:
    """Return the optional fields that the last request had."""
    request = trial.request
    values = {"seed": request.seed, "chat_template_kwargs": request.thinking}
    names = []
    for group in FIELD_GROUPS:
        for name in group:
            offer = OFFERS_BY_FIELD.get(name)
            is_set = getattr(request.offers, offer) if offer else values.get(name, name) is not None
            if is_set and name not in request.left_out:
                names.append(name)
    return names
