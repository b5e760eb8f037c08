"""Every knob of the simulator, as one frozen record read from YAML.

Invariant: settings that pass `read_settings` give a server that can start: unknown keys, wrong
types and meaningless combinations are refused with the key path. The default of an absent knob is
only in this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tandem.declarations.document import read_document
from tandem.declarations.faults import SpecError, SpecFault
from tandem.declarations.record import SpecRecord, parse_record

DEFAULT_CLASS = "default"

AcceptanceModelName = Literal["nxdi", "vllm", "none"]
RuntimeName = Literal["nxdi-v0", "native", "vllm-cpu"]
FaultKind = Literal[
    "status_500",
    "status_503",
    "status_429",
    "html",
    "stall",
    "drop",
    "slow_first_token",
    "restart",
    "no_usage",
    "wrong_usage",
    "wrong_model",
    "garbage",
    "endless",
]


class PromptClassSettings(SpecRecord):
    """Behaviour of the model for one class of prompts."""

    acceptance: float = Field(
        0.7, ge=0, le=1, description="chance that a draft's token is accepted"
    )
    output_tokens: int = Field(
        128, ge=1, description="tokens of an answer that ends by itself, its end token"
    )
    output_spread: int = Field(
        0, ge=0, description="an answer is longer or shorter by up to so many tokens"
    )
    reasoning_tokens: int = Field(
        32, ge=0, description="tokens of the thought, where thinking is on"
    )
    form: Literal["prose", "json", "sum"] = Field(
        "prose",
        description=(
            "an answer is prose, prose in a JSON object, or the sum of `A + B` in the prompt"
        ),
    )
    wrong_every: int = Field(
        0, ge=0, description="sum: about every so many-th prompt gets a wrong sum; 0: none"
    )
    contains: tuple[str, ...] = Field(
        (), description="a prompt with one of these texts is of this class"
    )


class FaultSettings(SpecRecord):
    """One kind of fault, and its requests."""

    kind: FaultKind = Field(description="what goes wrong")
    rate: float = Field(0.0, ge=0, le=1, description="share of the requests, drawn from the seed")
    requests: tuple[int, ...] = Field(
        (), description="these requests, counted from 1 as they are accepted"
    )
    classes: tuple[str, ...] = Field(
        (), description="only requests of these classes; empty for all"
    )
    after_bursts: int = Field(2, ge=0, description="stall, drop: bursts written before it")
    seconds: float = Field(
        0.5, ge=0, description="stall, slow_first_token, restart: how long, in seconds"
    )
    retry_after_s: int = Field(1, ge=0, description="status_429: its Retry-After, in seconds")
    tokens: int = Field(
        7, description="wrong_usage: added to completion_tokens; endless: most tokens, x1000"
    )


class SimulatorSettings(SpecRecord):
    """One server."""

    model: str = Field("twin", min_length=1, description="name that it serves")
    # nxdi-v0 is vLLM 0.9.1, the others V1
    runtime: RuntimeName = Field("vllm-cpu", description="whose frames, errors and metric names")
    version: str = Field("0.32.0", description="what /version says")
    law: AcceptanceModelName = Field(
        "none", description="tokens of a step: none 1, vllm up to k + 1, nxdi up to k"
    )
    num_speculative_tokens: int = Field(0, ge=0, le=64, description="window k; 0 for law none")
    classes: dict[str, PromptClassSettings] = Field(
        {DEFAULT_CLASS: PromptClassSettings()},
        description="class to what it does; `default` takes the rest",
    )
    step_ms: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (45.0,),
        min_length=1,
        description="a decode step at batch 1, 2, ...; the last holds for larger, in ms",
    )
    draft_ms: float = Field(0.0, ge=0, description="one draft forward, paid k times a step, in ms")
    prefill_base_ms: float = Field(50.0, ge=0, description="a prefill without its tokens, in ms")
    prefill_ms_per_token: float = Field(
        0.2, ge=0, description="each prompt token of a prefill, in ms"
    )
    jitter: float = Field(
        0.0, ge=0, le=1, description="sigma of the log-normal factor on every step's time"
    )
    max_num_seqs: int = Field(4, ge=1, le=1024, description="most sequences in a batch")
    max_model_len: int = Field(4096, ge=2, description="most tokens of prompt and output together")
    max_queue: int | None = Field(
        None, ge=0, description="most requests that wait; more get 503; null: no limit"
    )
    spec_counters: Literal["live", "flat"] = Field(
        "live", description="whether spec_decode counters count"
    )
    # false: between <think> tags in the content
    reasoning_parser: bool = Field(True, description="thoughts stand in a field of their own")
    thinking: bool = Field(False, description="thinking where a request does not say")
    seed: int = Field(0, ge=0, description="of bursts, jitter and faults; never of the text")
    start_s: float = Field(0.0, ge=0, description="until /health says 200, in seconds")
    faults: tuple[FaultSettings, ...] = Field((), description="what goes wrong, and when")

    @property
    def uses_speculation(self) -> bool:
        """Whether the server makes drafts."""
        return self.law != "none"

    def scale_time(self, factor: float) -> SimulatorSettings:
        """Return the knobs of a machine `factor` times as fast: step, draft, prefill divided."""
        times = ("draft_ms", "prefill_base_ms", "prefill_ms_per_token")
        steps = tuple(step_ms / factor for step_ms in self.step_ms)
        return self.model_copy(
            update={"step_ms": steps, **{name: getattr(self, name) / factor for name in times}}
        )

    def find_faults(self, file: str) -> Iterator[SpecFault]:
        """Yield the faults in the combination of knobs."""
        window = self.num_speculative_tokens
        class_names = ", ".join(self.classes) or "no class"
        if self.uses_speculation != (window > 0):
            got = f"{window} with law {self.law}"
            allowed = "at least 1 for law vllm or nxdi, 0 for law none"
            yield SpecFault(file, "num_speculative_tokens", got, allowed, "change one of the two")
        if DEFAULT_CLASS not in self.classes:
            yield SpecFault(
                file, "classes", class_names, f"a class {DEFAULT_CLASS!r} among them", "add it"
            )
        for index, fault in enumerate(self.faults):
            path = f"faults[{index}]"
            if not (fault.rate or fault.requests):
                yield SpecFault(
                    file,
                    path,
                    "neither rate nor requests",
                    "one of them",
                    "say which requests it hits",
                )
            for name in set(fault.classes) - set(self.classes):
                yield SpecFault(
                    file, f"{path}.classes", repr(name), class_names, "name a class of this file"
                )


def read_settings(path: Path) -> SimulatorSettings:
    """Read one file of knobs.

    Raises:
        SpecError: the file is malformed, has an unknown key, or its knobs contradict each other.
    """
    document = read_document(path)
    settings = parse_record(SimulatorSettings, document)
    if faults := list(settings.find_faults(document.file)):
        raise SpecError(faults)
    return settings
