"""The probe: a test before the measurement of what a server takes and offers.

Invariant: an offered extra was in an answer, not in a list of versions; if a server cannot be
measured, the probe names the server and the remedy before the first measured request.

The probe reads the list of models, then sends tiny requests, the least first
(`tandem.bench.load.field_trial`). A server that accepts a field and ignores it offers nothing: only
the answer counts. What a server refuses is left out for that server, and noted.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.completion_request import (
    API_PATHS,
    LIMIT_FIELDS,
    MODELS_PATH,
    TEMPLATE_FIELD,
    CompletionRequest,
)
from tandem.bench.load.event import DETAIL_CHARACTERS, EventError
from tandem.bench.load.field_trial import PROBE_TOKENS, FieldTrials, RequestTrial
from tandem.bench.load.model_list import ModelList, decode_page, names_model, parse_model_list
from tandem.bench.load.probe_fault import build_probe_fault, name_server
from tandem.bench.load.reply import ServerReply
from tandem.bench.load.scheme import find_other_scheme
from tandem.bench.plan.run_options import ApiName
from tandem.bench.records.manifest import ManifestArm, RunManifest, Timeouts
from tandem.bench.records.simulation import SIMULATED_HEADER, is_announced
from tandem.errors import InputError

DEFAULT_TIMEOUTS = Timeouts()
QUESTION = "Count from one to twenty in words."  # more words than PROBE_TOKENS
PLAIN_DRAFT = CompletionRequest("probe", prompt=QUESTION)
# of the list of models: with another error the server may still answer requests
_FATAL_WORDS = "connect|connect_timeout|certificate|endless|interrupted"
_NOT_FOUND = 404
_BAD_REQUEST = 400  # what many a server answers to a request of the other scheme
_EFFECTS = {
    "max_tokens": "the run sends max_completion_tokens in its place",
    "temperature": "the run leaves it out: the server samples at its own, and outputs may differ",
    "stream_options": "the run leaves it out: there may be no usage",
    "continuous_usage_stats": "the run leaves it out: no tokens are counted in the stream",
}
"""What follows from a field that a server refuses."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of the probe.

    Args:
        arm: the arm with its server's facts, the extras that were requested and present in the
            answer, and the fields that the server refuses.
        models: the names the server may give the requested model, for `answer.parse_answer`.
        trial: the fullest request that the server took, with its answer.
        refusals: what the server said to each field that it refuses.
        listed_models: names of the models that the server lists.
        notes: sentences on what the run does without.
    """

    arm: ManifestArm
    models: frozenset[str]
    trial: RequestTrial
    refusals: Mapping[str, str]
    listed_models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def build_draft(manifest: RunManifest) -> CompletionRequest:
    """Return a request with a run's temperature, seed and thinking."""
    return replace(
        PLAIN_DRAFT,
        temperature=manifest.temperature,
        thinking=manifest.thinking,
        seed=manifest.seed,
    )


async def probe_server(
    client: CompletionClient,
    draft: CompletionRequest = PLAIN_DRAFT,
    *,
    extras: Collection[str] = (),
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> ProbeResult:
    """Request a server's models, its version and tiny answers, the last one with every field.

    Args:
        client: an open client of the arm, which then has the facts of its server.
        draft: has the run's temperature, seed and thinking.
        extras: that the run records, of `ServerOffers`; no other is requested.
        timeouts: of each request.

    Raises:
        InputError: the server has no such model, or refuses what the user asked for.
        ExternalError: nothing answers, the answer is not from such a server, or it dies of a field.
    """
    models, page = await _read_models(client)
    client.arm = arm = _choose_model(client.arm, models)
    draft = replace(
        draft,
        request_id=f"probe-{uuid.uuid4().hex}",
        prompt=QUESTION,
        max_tokens=PROBE_TOKENS,
        extra_body=arm.extra_body,
        left_out=arm.left_out,
    )
    trials = FieldTrials(client, draft, extras, timeouts, models)
    least_trial = await trials.find_least()
    answer_name = least_trial.answer.model or arm.model
    own_names = models.list_names(arm.model) | {arm.model}
    is_own = names_model(answer_name, own_names)
    if answer_name in models.cards and not is_own:  # another name is a backend's, behind an alias
        detail = f"the server answers as {answer_name}, not as {' or '.join(sorted(own_names))}"
        raise build_probe_fault(arm, client.api, "wrong_model", detail, models)
    trial = await trials.add_fields(least_trial)
    _require_template(trials)
    notes = [
        *_note_model(arm, models, answer_name, is_own=is_own),
        *_note_refusals(arm, trials),
        *_note_length(arm, client.api, trial),
    ]
    client.arm = await _describe_arm(client, models, page, trials, trial)
    return ProbeResult(
        arm=client.arm,
        models=own_names | {answer_name},
        trial=trial,
        refusals=trials.refusals,
        listed_models=tuple(models.cards),
        notes=tuple(notes),
    )


async def _describe_arm(
    client: CompletionClient,
    models: ModelList,
    page: ServerReply,
    trials: FieldTrials,
    trial: RequestTrial,
) -> ManifestArm:
    """Return the arm with its server's facts."""
    arm = client.arm
    owner = models.cards.get(arm.model, {}).get("owned_by")
    owned_by = owner[:DETAIL_CHARACTERS] if isinstance(owner, str) and owner else None
    headers = (reply.headers.get(SIMULATED_HEADER) for reply in (page, trial.reply))
    return msgspec.structs.replace(
        arm,
        offers=trial.confirm_offers(),
        left_out=(*arm.left_out, *trials.refusals),
        server_version=await _read_version(client),
        owned_by=owned_by,
        simulated=is_announced(headers, owned_by),
        server_header=trial.reply.headers.get("Server", "")[:DETAIL_CHARACTERS] or None,
    )


async def _read_models(client: CompletionClient) -> tuple[ModelList, ServerReply]:
    """Return the models that the server lists, none if the page cannot be read, and the reply.

    Raises:
        TandemError: nothing answers, the address has the wrong scheme, the page has no end, or it
            cannot be read and the user names no model.
    """
    arm = client.arm
    reply = await client.get(MODELS_PATH)
    await _require_scheme(arm, reply)
    if reply.status == _NOT_FOUND:
        reply = await _look_beside(client) or reply
    try:
        models = parse_model_list(reply)
    except EventError as error:
        if not arm.model or re.fullmatch(_FATAL_WORDS, error.word):
            raise build_probe_fault(arm, client.api, error.word, error.detail) from error
        return ModelList(), reply
    return models, reply


async def _look_beside(client: CompletionClient) -> ServerReply | None:
    """Return the list of models at the address itself, where the API is not below /v1.

    Clients of OpenAI's API take such an address for the API's own, as https://HOST/api/v3. The
    client's arm then has the whole URL. None if nothing is there.
    """
    arm = client.arm
    api_url = arm.url.rstrip("/") + API_PATHS[client.api]
    other_arm = msgspec.structs.replace(arm, url=api_url)
    if other_arm.api_root == arm.api_root:
        return None
    client.arm = other_arm
    reply = await client.get(MODELS_PATH)
    with contextlib.suppress(EventError):
        if parse_model_list(reply).cards:
            return reply
    client.arm = arm
    return None


def _choose_model(arm: ManifestArm, models: ModelList) -> ManifestArm:
    """Return an arm with its model: the named one, else the only one that the server lists.

    Raises:
        InputError: the only one has another name, or none is named and there is not exactly one.
    """
    names = models.format_names()
    change = f"name its model with --model{names and ': '}{names}"
    count = len(models.names)
    if not arm.model and count == 1:
        return msgspec.structs.replace(arm, model=names)
    if not arm.model:
        problem = f"the server lists {count} models" if count else "the server lists no model"
        raise InputError(problem, where=name_server(arm), change=change)
    if len(models.cards) == 1 and not models.has_model(arm.model):
        problem = f"the server has no model {arm.model}"
        raise InputError(problem, where=name_server(arm), change=change)
    return arm


async def _require_scheme(arm: ManifestArm, reply: ServerReply) -> None:
    """Refuse an address with http where the server speaks TLS, or the reverse.

    Raises:
        InputError: the server speaks the other scheme.
    """
    may_be_wrong = reply.error is not None and reply.status in {None, _BAD_REQUEST}
    if not may_be_wrong or reply.error in {"certificate", "interrupted"}:
        return
    other_url = await find_other_scheme(arm.url)
    if other_url is not None:
        scheme, other_scheme = (url.partition("://")[0] for url in (arm.url, other_url))
        problem = f"the address says {scheme}, and the server speaks {other_scheme} ({reply.error})"
        raise InputError(problem, where=name_server(arm), change=f"name it as {other_url}")


def _require_template(trials: FieldTrials) -> None:
    """Refuse a run whose arguments of the chat template the server refuses: the user wants them.

    Raises:
        InputError: the server refuses them.
    """
    words = trials.refusals.get(TEMPLATE_FIELD)
    if words is None:
        return
    has_thinking = trials.draft.thinking is not None
    change = "drop --thinking" if has_thinking else "drop it from --extra-body"
    problem = f"the server refuses {TEMPLATE_FIELD} ({words})"
    raise InputError(problem, where=name_server(trials.client.arm), change=change)


async def _read_version(client: CompletionClient) -> str | None:
    """Return the server's version; None without that page."""
    reply = await client.get("/version")
    with contextlib.suppress(EventError):
        page = decode_page(reply)
        version = page.get("version") if isinstance(page, dict) else None
        return version if isinstance(version, str) else None
    return None


def _note_model(
    arm: ManifestArm, models: ModelList, answer_name: str, *, is_own: bool
) -> Iterator[str]:
    """Yield what a reader must know of the model's name."""
    if models.cards and not models.has_model(arm.model):
        yield f"{arm.name} does not list {arm.model}, and answers as {answer_name}"
    elif not is_own:
        yield f"{arm.name} answers as {answer_name} where {arm.model} is requested"


def _note_refusals(arm: ManifestArm, trials: FieldTrials) -> Iterator[str]:
    """Yield each field that the server refuses and what follows, and an answer broken off."""
    for name, words in trials.refusals.items():
        effect = _EFFECTS.get(name, "the run leaves it out")
        yield f"{arm.name} refuses {name} ({words}); {effect}"
    if trials.broken_answer is not None:
        yield f"{arm.name} broke off answers of the probe ({trials.broken_answer})"


def _note_length(arm: ManifestArm, api: ApiName, trial: RequestTrial) -> Iterator[str]:
    """Yield what the length of the answer and its count show."""
    limit = trial.request.max_tokens
    if trial.ignores_limit:
        limit_names = [name for name in LIMIT_FIELDS[api] if name not in trial.request.left_out]
        yield (
            f"{arm.name} ignores {' and '.join(limit_names)}: it gave {trial.word_count} words"
            f" where {limit} tokens were allowed; set --max-tokens above its longest answer"
        )
    if not trial.has_true_count:
        yield (
            f"{arm.name} counted {trial.answer.completion_tokens} tokens of an answer of at most"
            f" {limit}: its usage is no count, so the run does not ask for usage"
        )
