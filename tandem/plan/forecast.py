"""What each draft and window gives at each load: tokens, speed-up, break-even, memory.

Invariant: every figure carries where it comes from (`measured`, `given`, `published`, `assumed`),
and the speed-up is a ratio. It is forecast where the cost of a draft was measured or given. Else it
needs the plain TPOT, a load that was published, and published rows of the target's kind that
predict each other (step_cost.py); each other cell has none.

Batches: a plain step reads the weights once and the KV cache of each sequence, and a draft forward
is bound by latency, so it is a smaller share of a longer step. A step that verifies more tokens
than the chip computes while it reads the weights is bound by arithmetic and takes longer: there
speculation loses what it gains at small batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment
from tandem.declarations.model import ModelConfig
from tandem.plan.forecast_cell import ForecastCell
from tandem.plan.measurement_rows import PublishedRow, RowKind, TargetKind
from tandem.plan.plan_basis import DraftBasis, DraftShare
from tandem.plan.step_cost import RANGE_FACTOR, StepCost, find_objection, fit_step_cost
from tandem.plan.step_tokens import (
    CommitLaw,
    count_drafted,
    expect_tokens,
    extend_positions,
    find_acceptance,
)

GIB = 2**30
# tokens that Trainium2 computes while it reads each 2-byte weight once: 667 BF16 TFLOPS over 2.9
# TB/s, 2 FLOP a weight and token (awsdocs-neuron v2.29.0
# about-neuron/arch/neuron-hardware/trainium2.rst; nki/arch/trainium2_arch.html)
TOKENS_PER_READ = 230
# model_type of a published configuration (transformers, models/*/configuration_*.py) -> kind of the
# target
TARGET_KINDS: dict[str, TargetKind] = {
    "llama": "dense",
    "qwen3": "dense",
    "gpt_oss": "mixture of experts",
    "llama4": "mixture of experts",
    "mixtral": "mixture of experts",
    "qwen3_moe": "mixture of experts",
}


@dataclass(frozen=True, kw_only=True)
class PlanLoad:
    """What is served, apart from drafts and windows.

    Args:
        law: of the runtime.
        target: the model served.
        context_tokens: of a sequence in the middle of its answer.
        draft: what is known of the draft.
    """

    law: CommitLaw
    target: ModelConfig
    context_tokens: int
    draft: DraftBasis


def build_load(experiment: Experiment, catalogue: Catalogue, draft: DraftBasis) -> PlanLoad:
    """Return what an experiment serves, with a sequence in the middle of its longest answer."""
    return PlanLoad(
        law=catalogue.runtimes[experiment.runtime].counters.tokens_per_step.value,
        target=catalogue.models[experiment.target],
        context_tokens=experiment.max_prompt_tokens + experiment.max_output_tokens // 2,
        draft=draft,
    )


def fit_published_cost(
    rows: Sequence[PublishedRow], target: ModelConfig
) -> tuple[StepCost | None, str]:
    """Return the cost of a step with a target on what Tandem deploys; if no rows tell it, why.

    Drafts are sequential: no runtime that Tandem deploys serves parallel ones.
    """
    target_kind = TARGET_KINDS.get(target.family.value)
    if target_kind is None:
        return None, f"whether {target.family.value} is a mixture of experts is not known here"
    kind = RowKind(target_kind, "sequential", is_served=True)
    objection = find_objection(rows, kind)
    if objection:
        return None, f"of its kind ({kind.words}), {objection}"
    return fit_step_cost(rows, kind), ""


def convert_cost(cost: StepCost, plain_tpot_ms: float) -> DraftShare:
    """Return a published cost as shares of a plain step that takes so many milliseconds."""
    return DraftShare(
        mean=cost.draft_ms / plain_tpot_ms,
        low=cost.low_ms / plain_tpot_ms,
        high=cost.high_ms / plain_tpot_ms,
        basis="published",
        verified=cost.verified_share,
        concurrency=cost.concurrency,
    )


def stretch_step(load: PlanLoad, concurrency: int) -> float:
    """Return how much longer a plain step is at a load than alone, by the bytes that it reads."""
    kv_bytes = load.target.count_kv_bytes()
    weight_bytes = load.target.bytes.value
    if kv_bytes is None or weight_bytes is None:
        return 1.0
    per_sequence = kv_bytes * load.context_tokens
    return (weight_bytes + concurrency * per_sequence) / (weight_bytes + per_sequence)


def compute_step_cost(
    load: PlanLoad, share: float, window: int, concurrency: int, verified_share: float = 0.0
) -> float:
    """Return the time of a speculative step over a plain one at the same load.

    Args:
        load: what is served.
        share: of a draft forward in a plain step at concurrency 1.
        window: num_speculative_tokens.
        concurrency: sequences at once.
        verified_share: of each drafted token that is verified, in a plain step at concurrency 1.
    """
    drafted = count_drafted(load.law, window)
    stretch = stretch_step(load, concurrency)
    plain = max(stretch, concurrency / TOKENS_PER_READ)
    arithmetic = concurrency * (1 + drafted) / TOKENS_PER_READ
    verify = max(stretch + concurrency * drafted * verified_share, arithmetic)
    return (verify + window * share) / plain


def forecast_cells(
    load: PlanLoad,
    drafts: tuple[str, ...],
    windows: Sequence[int],
    concurrency: Sequence[int],
    *,
    cost: StepCost | None = None,
) -> Iterator[ForecastCell]:
    """Yield every window and load, in this order, of drafts that cannot be told apart.

    Args:
        load: what is served. No cell has a speed-up where its draft has no share.
        drafts: ids of models.
        windows: values of num_speculative_tokens.
        concurrency: sequences at once.
        cost: as published, for the plain TPOT above which a cell gains.
    """
    share = load.draft.share
    for window, count in product(windows, concurrency):
        least = tokens = expect_tokens(load.law, load.draft.acceptance, window)
        if load.draft.position_rates:
            least, tokens = extend_positions(load.law, load.draft.position_rates, window)
        gain_tpot_ms = None
        if cost is not None and count <= cost.concurrency:
            gain_tpot_ms = cost.find_gain_tpot(
                least, window, count * count_drafted(load.law, window)
            )
        cell = ForecastCell(
            drafts=drafts,
            window=window,
            concurrency=count,
            tokens=tokens,
            gain_tpot_ms=gain_tpot_ms,
        )
        if share is not None and count <= (share.concurrency or count):
            cell = _add_speed_up(cell, load, share, least)
        yield cell


def _add_speed_up(
    cell: ForecastCell, load: PlanLoad, share: DraftShare, least_tokens: float
) -> ForecastCell:
    """Return a cell with its speed-up, the range of it and break-even."""
    place = (cell.window, cell.concurrency, share.verified)
    middle = compute_step_cost(load, share.mean, *place)
    dearest = middle * RANGE_FACTOR
    cheapest = middle / RANGE_FACTOR
    if share.basis == "measured":
        dearest = compute_step_cost(load, share.high, *place)
        cheapest = compute_step_cost(load, share.low, *place)
    return replace(
        cell,
        speed_up=cell.tokens / middle,
        low=least_tokens / dearest,
        high=cell.tokens / cheapest,
        break_even=find_acceptance(load.law, middle, cell.window),
    )


@dataclass(frozen=True, kw_only=True)
class CoreMemory:
    """GiB on each logical core, without compiled graphs, of which no source gives a size.

    Args:
        target_gib, draft_gib: weights; the draft's are 0 where there is none.
        kv_gib: KV cache of both, for max_num_seqs sequences of max_model_len tokens.
    """

    target_gib: float
    draft_gib: float
    kv_gib: float

    @property
    def total_gib(self) -> float:
        """Return the sum."""
        return self.target_gib + self.draft_gib + self.kv_gib


def compute_core_memory(
    target: ModelConfig,
    draft: ModelConfig | None,
    *,
    cores: int,
    sequences: int,
    max_model_len: int,
) -> CoreMemory | None:
    """Return what weights and KV cache take on each logical core; None where a figure is unknown.

    Args:
        target, draft: the models.
        cores: logical cores that share them, tensor_parallel_size.
        sequences: max_num_seqs.
        max_model_len: tokens of a sequence.
    """
    weights = []
    kv_bytes = 0.0
    for model in (target, draft):
        if model is None:
            weights.append(0.0)
            continue
        token_bytes = model.count_kv_bytes(cores)
        if token_bytes is None or model.bytes.value is None:
            return None
        weights.append(model.bytes.value / cores / GIB)
        kv_bytes += token_bytes * sequences * max_model_len
    return CoreMemory(target_gib=weights[0], draft_gib=weights[1], kv_gib=kv_bytes / cores / GIB)


def choose_window(
    cells: Iterable[ForecastCell], drafts: tuple[str, ...], concurrency: int
) -> ForecastCell:
    """Return the cell of a group of drafts at a load whose worst case is best.

    Of equals it is that of the shorter window.
    Without speed-ups it is the cell that gains from the shortest plain step on, without that the
    shortest window.
    """
    own = [cell for cell in cells if (cell.drafts, cell.concurrency) == (drafts, concurrency)]
    return max(own, key=rank_cell)


def rank_cell(cell: ForecastCell) -> tuple[float, float, int]:
    """Return a key by which the more promising of two cells of one load is the greater."""
    gain = -math.inf if cell.gain_tpot_ms is None else -cell.gain_tpot_ms
    return -math.inf if cell.low is None else cell.low, gain, -cell.window
