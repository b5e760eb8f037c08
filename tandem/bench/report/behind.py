"""What stands behind the verdict: controls, the post's claims, definitions, and how to make it again.

Invariant: every claim has its answer and why; claims that contradict each other stand against each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from tandem.bench.judge import words
from tandem.bench.judge.form import FILE, Answer, Verdict
from tandem.bench.report.markup import Html, folded, joined, listed, table, tag, text
from tandem.bench.report.section import Section

MOST_ROWS = 40
_TONES = {
    "passed": "good", "caution": "caution", "failed": "bad", "absent": "open",
    "confirmed": "good", "contradicted": "bad", "no evidence": "open", "not comparable": "open",
}  # fmt: skip


def controls(verdict: Verdict) -> Section:
    """Return the section on controls."""
    told = verdict.controls
    rows = [
        tag("tr", tag("th", check.name, scope="row"), tag("td", _word(check.result)), tag("td", check.sentence))
        for check in told.checks
    ]
    head = tag("tr", *(tag("th", name, scope="col") for name in ("Control", "Result", "What was seen")))
    checks = tag("table", tag("caption", "Controls"), tag("thead", head), tag("tbody", *rows), class_="told")
    parts = [
        tag("div", checks, listed(told.cautions, "reasons"), *_floors(verdict), *_marked(verdict), class_="card")
        if rows or told.cautions or told.floors or told.marked
        else tag("p", "No control was done: this verdict has no noise floor.", class_="says")
    ]
    return Section(name="controls", short="Controls", title="Controls", parts=tuple(parts))


def _word(word: str) -> Html:
    return tag("span", word, class_=f"word {_TONES[word]}")


def _floors(verdict: Verdict) -> Iterator[Html]:
    floors = sorted(verdict.controls.floors, key=lambda each: -each.ratio)
    if not floors:
        return
    rows = (
        (each.class_, words.load(each.load), words.short_metric(each.metric), words.times(each.speed_up.value),
         words.interval(each.speed_up), words.times(each.ratio))
        for each in floors[:MOST_ROWS]
    )  # fmt: skip
    heads = ("Class", "Load", "Metric", "Against itself", f"{words.level(verdict)} interval", "Noise floor")
    left = f"The widest {MOST_ROWS} of {len(floors):,}; all are in {FILE}." if len(floors) > MOST_ROWS else None
    yield folded(
        "Noise floor per class",
        tag("p", left, class_="says") if left else None,
        table("What the baseline differs from itself by", heads, rows, numbers=(3, 4, 5)),
    )


def _marked(verdict: Verdict) -> Iterator[Html]:
    marked = verdict.controls.marked
    if not marked:
        return
    told = [f"round {each.round}: {each.sentence}" for each in marked[:MOST_ROWS]]
    left = [f"{len(marked) - MOST_ROWS:,} more are in {FILE}"] if len(marked) > MOST_ROWS else []
    rounds = "1 round is" if len(marked) == 1 else f"{len(marked):,} rounds are"
    yield tag(
        "p", f"{rounds} left out of every figure, because the measuring client was the bottleneck:", class_="says"
    )
    items = listed([*told, *left], "reasons")
    if items is not None:
        yield items


def claims(verdict: Verdict) -> Section:
    """Return the section on the post's claims."""
    if not verdict.claims:
        why = verdict.claims_unasked or "No claim was held against this run."
        return Section(name="claims", short="Claims", title="The post's claims",
                       parts=(tag("p", why, class_="says"),))  # fmt: skip
    pairs = list(_pairs(verdict.claims))
    against = [tag("h3", "Claims that contradict each other"), *pairs] if pairs else []
    return Section(
        name="claims", short="Claims", title="The post's claims, answered by this run",
        parts=(
            *([tag("div", *against, class_="card")] if against else []),
            tag("div", *(_claim(each) for each in verdict.claims), class_="card claims"),
        ),
    )  # fmt: skip


def _pairs(claims: tuple[Answer, ...]) -> Iterator[Html]:
    by_id = {each.claim: each for each in claims}
    done: set[frozenset[str]] = set()
    for one in claims:
        for name in one.against:
            pair = frozenset((one.claim, name))
            if name in by_id and pair not in done and len(pair) > 1:
                done.add(pair)
                yield tag(
                    "div",
                    _side(one),
                    tag("p", "against", class_="versus"),
                    _side(by_id[name]),
                    class_="pair versus-pair",
                )


def _side(claim: Answer) -> Html:
    return tag("div", tag("p", tag("b", claim.claim), " ", _word(claim.answer)), tag("p", claim.text), class_="side")


def _claim(claim: Answer) -> Html:
    llmperf = tag("p", _sentence(claim.llmperf), class_="says") if claim.llmperf else None
    return tag(
        "article",
        tag("h3", tag("span", claim.claim, class_="id"), " ", _word(claim.answer), " ", claim.text),
        tag("p", _sentence(claim.why)),
        llmperf,
        tag("p", f"Where: {claim.where}.", *_against(claim), class_="says"),
        id=f"claim-{claim.claim}",
    )


def _sentence(told: str) -> str:
    """Return it with a full stop; its first letter stays, for it may be that of a name."""
    return told if told.endswith(".") else f"{told}."


def _against(claim: Answer) -> Iterator[Html]:
    for place, name in enumerate(claim.against):
        yield joined([" See " if not place else ", ", tag("a", name, href=f"#claim-{name}")])
    if claim.against:
        yield text(".")


def definitions(verdict: Verdict) -> Section:
    """Return the section of definitions."""
    told = [
        tag("div", tag("dt", each.name, tag("span", each.unit, class_="unit") if each.unit not in {"", "1"} else None),
            tag("dd", each.definition))
        for each in verdict.definitions
    ]  # fmt: skip
    part = tag("dl", *told, class_="card words") if told else tag("p", "No word needs one.", class_="says")
    return Section(name="definitions", short="Definitions", title="Definitions", parts=(part,))


def recompute(verdict: Verdict) -> Section:
    """Return how the report is made again."""
    commands = [tag("pre", tag("code", each)) for each in verdict.recompute]
    said = (
        f"Every figure comes from the records in the folder {verdict.folder} and nothing else; {FILE} beside this page "
        f"has all of them, in schema {verdict.schema}."
    )
    return Section(
        name="recompute", short="Recompute", title="How to recompute this",
        parts=(tag("div", tag("p", said), *commands, class_="card"),),
    )  # fmt: skip
