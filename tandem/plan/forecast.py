"""What each draft and window of an experiment can give at each load: tokens, speed-up, break-even, memory.

Invariant: every figure carries where it comes from (`measured`, `published`, `assumed`), and the speed-up is a ratio.
Batches: a plain step reads the weights once and the KV cache of each sequence, and a draft forward is bound by latency,
so it is a smaller share of a longer step. A step that verifies more tokens than the chip computes while it reads the
weights is bound by arithmetic and takes longer: there speculation loses what it gains at small batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from tandem.plan.forecast_cell import ForecastCell
from tandem.plan.measurement_rows import PublishedRow
from tandem.plan.step_cost import imply_draft_ms
from tandem.plan.step_tokens import CommitLaw, count_drafted, expect_tokens, extend_positions, find_acceptance
from tandem.spec.catalogue import Catalogue
from tandem.spec.experiment import Experiment
from tandem.spec.model import ModelConfig

FigureBasis = Literal["measured", "published", "assumed"]
ASSUMED_ACCEPTANCE = 0.8  # between the break-even of the post's pair, 0.58, and what llmperf's copying prompts give
BYTES_PER_VALUE = 2  # bfloat16 and float16
GIB = 2**30
# tokens that Trainium2 computes while it reads each 2-byte weight once: 667 BF16 TFLOPS over 2.9 TB/s, 2 FLOP a weight
# and token (awsdocs-neuron v2.29.0 about-neuron/arch/neuron-hardware/trainium2.rst; nki/arch/trainium2_arch.html)
TOKENS_PER_READ = 230


@dataclass(frozen=True, slots=True)
class DraftShare:
    """Time of one draft forward over a plain step at concurrency 1.

    Args:
        mean, low, high: the share, and its range.
        basis: where it comes from.
    """

    mean: float
    low: float
    high: float
    basis: FigureBasis


@dataclass(frozen=True, slots=True)
class PlanBasis:
    """What every figure of a plan rests on.

    Args:
        acceptance: chance that a draft is accepted after all before it were.
        words: where the acceptance comes from.
        share: of a draft forward; the range of a measured one is that of the classes.
        is_simulated: whether it was measured on simulated servers.
        position_rates: share of drafts accepted at each position, where a run counted them.
    """

    acceptance: float
    words: str
    share: DraftShare
    is_simulated: bool = False
    position_rates: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLoad:
    """What is served, apart from drafts and windows.

    Args:
        law: of the runtime.
        target: the model served.
        context_tokens: of a sequence in the middle of its answer.
        acceptance: chance that a draft is accepted after all before it were.
        position_rates: share of drafts accepted at each position, where a server counted them: used instead.
    """

    law: CommitLaw
    target: ModelConfig
    context_tokens: int
    acceptance: float
    position_rates: tuple[float, ...] = ()


def build_load(
    experiment: Experiment, catalogue: Catalogue, acceptance: float, position_rates: tuple[float, ...] = ()
) -> PlanLoad:
    """Return what an experiment serves, with a sequence in the middle of its longest answer."""
    return PlanLoad(
        law=catalogue.runtimes[experiment.runtime].counters.tokens_per_step.value,
        target=catalogue.models[experiment.target],
        context_tokens=experiment.max_prompt_tokens + experiment.max_output_tokens // 2,
        acceptance=acceptance,
        position_rates=position_rates,
    )


def fit_draft_share(rows: Iterable[PublishedRow]) -> DraftShare:
    """Return a draft forward's share of a plain step over all published rows that are used.

    Raises:
        ValueError: every row is left out.
    """
    shares = [imply_draft_ms(row) / row.baseline_tpot_ms.value for row in rows if row.left_out is None]
    if not shares:
        raise ValueError("no published row has a known acceptance")
    return DraftShare(sum(shares) / len(shares), min(shares), max(shares), "published")


def count_kv_bytes(model: ModelConfig) -> int | None:
    """Return the bytes of one token in the KV cache, keys and values of all layers; None where a figure is unknown."""
    heads, dim = model.kv_heads.value, model.head_dim.value
    return None if heads is None or dim is None else 2 * model.layers.value * heads * dim * BYTES_PER_VALUE


def stretch_step(load: PlanLoad, concurrency: int) -> float:
    """Return how much longer a plain step is at a load than at concurrency 1, by the bytes that it reads."""
    kv_bytes, weight_bytes = count_kv_bytes(load.target), load.target.bytes.value
    if kv_bytes is None or weight_bytes is None:
        return 1.0
    per_sequence = kv_bytes * load.context_tokens
    return (weight_bytes + concurrency * per_sequence) / (weight_bytes + per_sequence)


def compute_step_cost(load: PlanLoad, share: float, window: int, concurrency: int) -> float:
    """Return the time of a speculative step over a plain one at the same load.

    Args:
        load: what is served.
        share: of a draft forward in a plain step at concurrency 1.
        window: num_speculative_tokens.
        concurrency: sequences at once.
    """
    stretch, verified = stretch_step(load, concurrency), 1 + count_drafted(load.law, window)
    plain = max(stretch, concurrency / TOKENS_PER_READ)
    verify = max(stretch, concurrency * verified / TOKENS_PER_READ)
    return (verify + window * share) / plain


def forecast_cells(
    load: PlanLoad, share: DraftShare, drafts: Sequence[str], windows: Sequence[int], concurrency: Sequence[int]
) -> Iterator[ForecastCell]:
    """Yield every draft, window and load, in this order.

    Args:
        load: what is served.
        share: of a draft forward, of every draft alike: on Neuron it depends on latency, not on the draft's size.
        drafts: ids of models.
        windows: values of num_speculative_tokens.
        concurrency: sequences at once.
    """
    for draft, window, count in product(drafts, windows, concurrency):
        least = tokens = expect_tokens(load.law, load.acceptance, window)
        if load.position_rates:
            least, tokens = extend_positions(load.law, load.position_rates, window)
        costs = [compute_step_cost(load, value, window, count) for value in (share.mean, share.high, share.low)]
        yield ForecastCell(
            draft=draft, window=window, concurrency=count, tokens=tokens, speed_up=tokens / costs[0],
            low=least / costs[1], high=tokens / costs[2], break_even=find_acceptance(load.law, costs[0], window),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
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
    target: ModelConfig, draft: ModelConfig | None, *, cores: int, sequences: int, max_model_len: int
) -> CoreMemory | None:
    """Return what weights and KV cache take on each logical core; None where a figure is unknown.

    More cores than KV heads hold copies of them (NxD Inference modules/attention/gqa.py, REPLICATE_TO_TP_DEGREE).

    Args:
        target, draft: the models.
        cores: logical cores that share them, tensor_parallel_size.
        sequences: max_num_seqs.
        max_model_len: tokens of a sequence.
    """
    weights, kv_bytes = [], 0.0
    for model in (target, draft):
        if model is None:
            weights.append(0.0)
            continue
        token_bytes, heads = count_kv_bytes(model), model.kv_heads.value
        if token_bytes is None or heads is None or model.bytes.value is None:
            return None
        weights.append(model.bytes.value / cores / GIB)
        kv_bytes += token_bytes * max(cores / heads, 1) * sequences * max_model_len
    return CoreMemory(target_gib=weights[0], draft_gib=weights[1], kv_gib=kv_bytes / cores / GIB)


def choose_window(cells: Iterable[ForecastCell], draft: str, concurrency: int) -> ForecastCell:
    """Return the cell of a draft at a load whose worst case is best, the shorter window of equals."""
    own = [cell for cell in cells if (cell.draft, cell.concurrency) == (draft, concurrency)]
    return max(own, key=lambda cell: (cell.low, -cell.window))
