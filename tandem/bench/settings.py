"""What a run was asked to do, checked and complete.

Invariant: frozen and the same for every arm; nothing here came from a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.bench import manifest
from tandem.bench.completion_request import ApiName, ModelServer
from tandem.bench.manifest import Timeouts
from tandem.bench.plan import PlanShape, RunPlan
from tandem.bench.schedule import Schedule
from tandem.bench.suites.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One run.

    Args:
        arms: the baseline, then its variants; unique names.
        api_key: sent to every arm, never recorded.
        suites: what is asked.
        schedule: who is asked when.
        seed: of every order, arrival and sampling seed.
        api: which of OpenAI's two.
        thinking: None leaves the model's own default.
        temperature: 0.0 is greedy.
        max_tokens: most output tokens of a request, in place of the suite's; a prompt that states fewer keeps them.
        concurrency: closed loops; None for what each suite states.
        rate_per_s: one open loop in place of them.
        rounds: None where `duration_s` decides.
        control_rounds: how often the baseline is asked against itself; not among `rounds`.
        repeats: how often a round asks each prompt.
        prompts_per_class: the first so many; None for all.
        mixes_classes: the classes of a suite in one block.
        duration_s: rounds are begun and blocks are started until so much time has gone.
        timeouts: of one request.
        warm_up: requests for each arm; None until stable.
        extras: extras that are asked of servers that offer them.
        goodput: metric to its limit, in the metric's unit.
        price_usd_per_hour: of all that the run occupies.
        environment, experiment: the declared ones whose servers are asked; None where they were named by address.
        instance_type: of the environment's nodes.
        flags: the options of the command, by which the run can go on.
    """

    arms: tuple[manifest.ManifestArm, ...]
    api_key: str | None = field(default=None, repr=False)
    suites: tuple[Suite, ...]
    schedule: Schedule = "interleaved"
    seed: int = 0
    api: ApiName = "chat"
    thinking: bool | None = None
    temperature: float = 0.0
    max_tokens: int | None = None
    concurrency: tuple[int, ...] | None = None
    rate_per_s: float | None = None
    rounds: int | None = 1
    control_rounds: int = 0
    repeats: int = 1
    prompts_per_class: int | None = None
    mixes_classes: bool = False
    duration_s: float | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    warm_up: int | None = None
    extras: frozenset[str] = frozenset()
    goodput: Mapping[str, float] | None = None
    price_usd_per_hour: float | None = None
    environment: str | None = None
    experiment: str | None = None
    instance_type: str | None = None
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def plan(self) -> RunPlan:
        """Return who is asked what, in order."""
        shape = PlanShape(
            concurrency=self.concurrency, rate_per_s=self.rate_per_s, prompts_per_class=self.prompts_per_class,
            max_tokens=self.max_tokens, mixes_classes=self.mixes_classes,
        )  # fmt: skip
        return RunPlan(
            arms=tuple(arm.name for arm in self.arms),
            blocks=shape.blocks(self.suites),
            schedule=self.schedule, seed=self.seed, repeats=self.repeats, rounds=self.rounds,
            control_rounds=self.control_rounds,
        )  # fmt: skip

    def server(self, arm: manifest.ManifestArm) -> ModelServer:
        """Return where and as whom one arm is asked."""
        return ModelServer(name=arm.name, url=arm.url, model=arm.model, api=self.api, api_key=self.api_key)
