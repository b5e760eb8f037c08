"""The answers to the post's claims, as the page and the terminal show them."""

from __future__ import annotations

import pytest
from example_verdict import EVIL
from measured import record, write_run

from tandem.errors import InputError
from tandem.judge.verdict import JudgeOptions
from tandem.post.schema import FILE, ClaimAnswers, ClaimVerdict, save_answers
from tandem.report.claims import build_claims_section, render_claims
from tandem.report.run_report import report_run

UNASKED = ClaimAnswers(reason="The post's claims are not asked of these servers: simulated.")
CLAIMS = ClaimAnswers(
    claims=tuple(
        ClaimVerdict(
            claim=claim, text=f"text of {claim}", where="post", answer=word, why=EVIL, against=other
        )
        for claim, word, other in (
            ("C1", "confirmed", ()),
            ("C2", "confirmed", ("C7",)),
            ("C7", "contradicted", ("C2",)),
        )
    )
)


def test_claims_that_contradict_each_other_are_one_pair():
    (part,) = build_claims_section(CLAIMS).parts
    assert part.count('class="pair versus-pair"') == 1
    assert part.index("text of C2") < part.index("text of C7") < part.index('id="claim-C1"')


def test_no_text_of_an_answer_becomes_markup():
    (part,) = build_claims_section(CLAIMS).parts
    assert "<script" not in part
    assert part.count("&lt;script") == 3


def test_a_claim_is_one_line_with_what_contradicts_it():
    _, _, *rows = render_claims(CLAIMS)
    assert [row.split()[:2] for row in rows] == [
        ["C1", "confirmed"],
        ["C2", "confirmed"],
        ["C7", "contradicted"],
    ]
    assert rows[1].endswith("  C7")


def test_servers_that_are_not_asked_have_the_reason():
    assert list(render_claims(UNASKED)) == [UNASKED.reason]
    assert UNASKED.reason.replace("'", "&#39;") in build_claims_section(UNASKED).parts[0]


@pytest.fixture
def folder(tmp_path):
    records = [record(arm=arm, request_id=arm) for arm in ("base", "spec")]
    return write_run(tmp_path, records)


def test_stored_answers_are_on_the_page_and_below_the_details(folder):
    save_answers(folder, CLAIMS)

    report = report_run(folder, JudgeOptions())

    assert report.claims == CLAIMS
    assert 'id="claim-C7"' in (folder / "report.html").read_text()
    assert any(line.startswith("C7") for line in report.format_lines(verbose=True))


@pytest.mark.parametrize("text", ['{"schema": 2}', "nonsense"])
def test_answers_that_cannot_be_read_are_refused(folder, text):
    (folder / FILE).write_text(text)
    with pytest.raises(InputError, match=r"claims\.json"):
        report_run(folder, JudgeOptions())
