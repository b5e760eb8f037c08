"""What is said of a server that cannot be measured, with what to do.

Invariant: each advice can be followed as it stands; a flag that it names exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tandem.bench.load.completion_request import API_PATHS
from tandem.bench.load.model_list import ModelList
from tandem.bench.plan.run_options import ApiName
from tandem.bench.records.manifest import ManifestArm
from tandem.errors import ExternalError, InputError, SilentServerError, TandemError

NO_MODELS = ModelList()


@dataclass(frozen=True, slots=True)
class FaultAdvice:
    """What a kind of fault means, and what to do about it.

    Args:
        words: pattern of the error's words.
        kind: of the fault.
        problem, change: its two sentences; `url`, `path` and `model` are filled in.
        lists_models: whether the change ends with the models that the server lists.
    """

    words: str
    kind: type[TandemError]
    problem: str
    change: str
    lists_models: bool = False


FAULTS = (
    FaultAdvice(
        "not_.*|no_choices|decode",
        ExternalError,
        "this is not an OpenAI-compatible streaming server",
        "check the address and --api: is it a login page, or a server that does not stream?",
    ),
    FaultAdvice(
        "connect|connect_timeout",
        SilentServerError,
        "nothing answers",
        "start the server or correct its address",
    ),
    FaultAdvice(
        "certificate",
        InputError,
        "TLS certificate verification failed",
        "trust the certificate, replace it, or use a host name that it covers",
    ),
    FaultAdvice(
        "endless",
        ExternalError,
        "the server sends too much data",
        "check what runs at this address",
    ),
    FaultAdvice(
        "status_40[13]",
        InputError,
        "the server requires an API key",
        "export its key, and give --api-key-env VAR (sent as Authorization: Bearer KEY) or"
        " --header K:env:VAR",
    ),
    FaultAdvice(
        "status_407",
        InputError,
        "a proxy before the server requires a login",
        "name the server's own address",
    ),
    FaultAdvice(
        "status_40[45]|status_501",
        InputError,
        "{url} has no {path}, or the server has no {model}",
        "correct --api or --model, or give the whole URL, as https://HOST/PATH{path}",
        lists_models=True,
    ),
    FaultAdvice(
        "status_4(00|13|22)",
        InputError,
        "the server refuses a plain streaming request",
        "leave out the field that it names with --leave-out, or add one with --extra-body",
        lists_models=True,
    ),
    FaultAdvice(
        "status_429",
        ExternalError,
        "the server limits the requests",
        "wait until its limit is over, then keep below it with --concurrency or --rate",
    ),
    FaultAdvice(
        "wrong_model",
        InputError,
        "the server answers with another model than {model}",
        "name its model with --model",
        lists_models=True,
    ),
    FaultAdvice(
        "status_3.*", InputError, "the server redirects", "use the address that it redirects to"
    ),
    FaultAdvice(
        "status_.*",
        ExternalError,
        "the server is not ready",
        "wait until its /health answers 200, then run again",
    ),
    FaultAdvice(
        ".*_timeout",
        ExternalError,
        "a plain request of a few tokens took too long",
        "check the server's log, or allow more with --timeouts",
    ),
    FaultAdvice(
        ".*",
        ExternalError,
        "a plain request of a few tokens failed",
        "check the server's log, then run again",
    ),
)
"""The first whose words fit counts."""


def build_probe_fault(
    arm: ManifestArm, api: ApiName, word: str, detail: str | None, models: ModelList = NO_MODELS
) -> TandemError:
    """Return the fault of a server that cannot be measured, with its remedy.

    Args:
        arm: of the server.
        api: of the requests.
        word, detail: of the error.
        models: that the server lists.
    """
    advice = next(advice for advice in FAULTS if re.fullmatch(advice.words, word))
    texts = {"url": arm.api_root, "path": API_PATHS[api], "model": arm.model}
    reason = f"{word}: {detail}" if detail else word
    change = advice.change.format(**texts)
    if advice.lists_models and models.names:
        change += f"; it has the models {models.format_names()}"
    return advice.kind(
        f"{advice.problem.format(**texts)} ({reason})", where=name_server(arm), change=change
    )


def name_server(arm: ManifestArm) -> str:
    """Return an arm and its address, for the place of a fault."""
    return f"{arm.name}={arm.root}"
