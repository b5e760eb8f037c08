"""Which compile and execution settings a runtime reads, and reads alike in every variant."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Trial


def _read(trial: Trial) -> Iterable[Finding]:
    runtime = trial.runtime
    if runtime is None or runtime.spelling is None:
        return
    keys = runtime.spelling.tuning_keys
    for name, value in trial.experiment.serving.tuning:
        if value in (None, ()) or name in keys:
            continue
        readers = [
            other.name
            for other in trial.catalogue.runtimes.values()
            if other.spelling is not None and name in other.spelling.tuning_keys
        ]
        spelt = str(list(value)) if isinstance(value, tuple) else str(value).lower()
        yield Finding(
            path=f"serving.tuning.{name}", got=f"{spelt} on runtime {runtime.name}, which does not read it",
            allowed=listed(keys), change=f"delete it; it is read by runtime {listed(readers)}",
        )  # fmt: skip


def _async(trial: Trial) -> Iterable[Finding]:
    runtime = trial.runtime
    if runtime is None or runtime.spelling is None or not trial.experiment.serving.async_mode:
        return
    if runtime.spelling.async_off_arguments and any(True for _ in trial.speculating()):
        yield Finding(
            path="serving.async_mode",
            got=f"true on runtime {runtime.name}, which turns it off for speculating variants",
            allowed="false, which is then written for every variant",
            change="write false: arms that differ in it are no control",
        )  # fmt: skip


def _async_plain(trial: Trial) -> Iterable[Finding]:
    runtime = trial.runtime
    if runtime is None or runtime.spelling is None or not trial.experiment.serving.async_mode:
        return
    plain = [variant.name for variant in trial.experiment.all_variants() if variant.mode == "none"]
    if runtime.spelling.async_key and plain:
        yield Finding(
            path="serving.async_mode",
            got=f"true with the plain variant {plain[0]}",
            allowed="false, until the plain variant is seen to run asynchronously",
            change="write false, or look into the plain server's log: if it stays synchronous it is no control",
        )  # fmt: skip


RULES: tuple[Rule[Trial], ...] = (
    Rule(
        id="tuning-read", of=Trial, severity="refusal", find=_read,
        sentence="every setting of serving.tuning is one that the runtime reads",
        source="tandem/spec/data/runtimes, tuning_keys", date=date(2026, 11, 21),
    ),
    Rule(
        id="async-alike", of=Trial, severity="refusal", find=_async,
        sentence="asynchronous execution is off where speculation turns it off, so that all variants run alike",
        source="aws-neuron/aws-neuron-sdk vllm-neuron/docs/guides/features-guide.md, speculative decoding (EAGLE3)",
        date=date(2026, 8, 21),
    ),
    Rule(
        id="async-plain", of=Trial, severity="warning", find=_async_plain,
        sentence="asynchronous execution of plain decoding is shown by no source: the guide asks for fused speculation",
        source="aws-neuron/aws-neuron-sdk libraries/nxd-inference/developer_guides/feature-guide.rst, async runtime",
        date=date(2026, 8, 21),
    ),
)  # fmt: skip
