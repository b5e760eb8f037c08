"""Tokens per step of the target, by arm and class: counted by the server, else derived.

Invariant: each figure names its method and the direction in which the method errs. The functions of
the summary read the counters, so both give the same figures. A figure that no method gives is None,
with the reason. A turn is that of the summary: the counts of one server between two scrapes,
compared with the records of the same turn. Loads are summed, not averaged, so a figure covers all
steps. The control arm is the baseline's server again, so it has no figure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.summary import ALL_CLASSES
from tandem.bench.figures.throughput import LENGTH_METRIC, Spreads, TurnRemark
from tandem.bench.figures.throughput import compute_acceptance as compute_turn_acceptance
from tandem.bench.plan.schedule import ArmLoad, TurnKey
from tandem.bench.records import counters
from tandem.judge.pairs import find_figures
from tandem.judge.schema import ClassAcceptance
from tandem.judge.text_format import format_sentence
from tandem.metrics import list_position_rates

_DRAFTS_LIMIT = (
    "steps without a draft are not in it, so it is above tokens per step where drafts are rare"
)
_STEPS_LIMIT = (
    "the server counts no drafts, so it is derived from its steps; steps without a draft are in it"
)
_CHUNKS_LIMIT = (
    "derived from tokens per chunk without each answer's first: too high where two steps came as"
    " one chunk because the reader was late, or where a stop token is counted and not sent; 1 where"
    " a server sends each token by itself"
)


def compute_acceptance(table: RequestTable) -> tuple[ClassAcceptance, ...]:
    """Return the acceptance of every arm but the control, for all classes together and for each.

    Raises:
        InputError: a line of counters.jsonl that is no scrape.
    """
    if not table.arms:
        return ()
    spreads, remarks = _read_counters(table)
    rows = []
    for arm in (table.baseline, *table.variants):
        arm_remarks = [remark for remark in remarks if remark.arm == arm]
        rows.append(_estimate_class(table, arm, None, spreads, arm_remarks))
        for code in np.unique(table.class_[table.arm_mask(arm)]).tolist():
            class_ = table.classes[code]
            rows.append(_estimate_class(table, arm, class_, spreads, arm_remarks))
    return tuple(rows)


def _read_counters(table: RequestTable) -> tuple[Spreads, list[TurnRemark]]:
    """Return the counts by arm and class under loads without limits, and what limits them."""
    scrapes = counters.read_scrapes(table.folder / counters.FILE)
    changes, drop_reasons = counters.pair_scrapes(scrapes, table.dropped_counters)
    numbers: dict[TurnKey, int] = {turn: number for number, (turn, _) in enumerate(changes)}

    def strip_load(turn: TurnKey) -> TurnKey:
        """Return a turn without its load; its round becomes a number, so that turns stay apart."""
        number = numbers.setdefault(turn, len(numbers))
        return turn._replace(concurrency=None, rate_per_s=None, round=number, slot=0)

    groups = table.turn_groups
    turns = [
        turn.pool_classes() if turn.pool_classes() in numbers else turn for turn in groups.keys
    ]
    metrics = compute_turn_acceptance(
        table,
        groups.rename(map(strip_load, turns)),
        [(strip_load(turn), change) for turn, change in changes],
    )
    drops = (TurnRemark(*reason.partition(": ")[::2]) for reason in drop_reasons)
    return metrics.spreads, [*metrics.remarks, *drops]


def _estimate_class(
    table: RequestTable,
    arm: str,
    class_: str | None,
    spreads: Spreads,
    remarks: Sequence[TurnRemark],
) -> ClassAcceptance:
    """Return the acceptance of one class (None: of all), by the counters, else by chunks."""
    load = ArmLoad(arm, class_, None, None)

    def read_mean(name: str) -> float | None:
        spread = spreads.get((load, name))
        return None if spread is None else spread.mean

    length = read_mean(LENGTH_METRIC)
    steps = read_mean("target_steps_per_token")
    if length is None and steps is None:
        return _estimate_by_chunks(table, arm, class_, remarks)
    per_position = list_position_rates(read_mean)
    has_drafts = bool(per_position) or read_mean("draft_acceptance_rate") is not None
    reasons = [_DRAFTS_LIMIT if has_drafts else _STEPS_LIMIT]
    if length is None:
        reasons = [
            remark.absence
            for remark in remarks
            if remark.metric == LENGTH_METRIC and remark.absence
        ]
    if class_ is None:
        reasons += [remark.text for remark in remarks if remark.metric != LENGTH_METRIC]
    return ClassAcceptance(
        arm=arm,
        class_=class_ or ALL_CLASSES,
        method="counters" if has_drafts else "steps of the counters",
        acceptance_length=length,
        per_position=per_position,
        target_steps_per_token=steps,
        sentence=_join_clauses(reasons),
    )


def _estimate_by_chunks(
    table: RequestTable, arm: str, class_: str | None, remarks: Sequence[TurnRemark]
) -> ClassAcceptance:
    """Return the acceptance from the streams: tokens per chunk, without each answer's first."""
    per_chunk = find_figures(table, "tokens_per_chunk")
    # a failed request has neither
    usable_mask = table.arm_mask(arm) & (per_chunk > 0) & (table.tokens > 0)
    reasons = [*(remark.text for remark in remarks), "no counters of its turns"]
    if class_ is not None:
        usable_mask &= table.class_ == table.classes.index(class_)
        reasons = ["no counters of its turns alone"]
    tokens = table.tokens[usable_mask]
    answers = int(usable_mask.sum())
    token_count = float(tokens.sum())
    chunk_count = float(np.rint(tokens / per_chunk[usable_mask]).sum())
    length = None
    limit = "no answer has a chunk after its first"
    speculation = next((entry.speculation for entry in table.run.arms if entry.name == arm), None)
    if not answers:
        limit = "no answer whose tokens the server counted"
    elif speculation is not None and speculation.method is None:
        limit = "it does not speculate"
    elif chunk_count > answers:
        length = (token_count - answers) / (chunk_count - answers)
        limit = _CHUNKS_LIMIT
    return ClassAcceptance(
        arm=arm,
        class_=class_ or ALL_CLASSES,
        method="tokens per chunk" if answers else "absent",
        acceptance_length=length,
        target_steps_per_token=chunk_count / token_count if answers else None,
        sentence=_join_clauses([limit, *reasons]),
    )


def _join_clauses(clauses: Sequence[str]) -> str:
    """Join clauses; each once."""
    text = "; ".join(dict.fromkeys(clauses))
    return format_sentence(text) if text else ""
