import yaml

from tandem.bench.suites.suite import BUILT_IN, load_suite
from tandem.metrics import CATALOGUE
from tandem.post.register import read_register


def test_every_claim_of_the_post_has_a_row():
    assert [claim.id for claim in read_register().claim] == [
        f"C{number}" for number in range(1, 18)
    ]


def test_the_set_up_is_that_of_the_posts_experiment(root):
    post = yaml.safe_load((root / "experiments" / "post.yaml").read_text())
    set_up = read_register().set_up
    assert (set_up.target, *set_up.runtimes) == (post["target"], post["runtime"])
    draft_arm = post["variants"][1]
    assert post["claims"] == "post"
    assert (set_up.draft, set_up.mode, set_up.num_speculative_tokens) == (
        draft_arm["draft"],
        draft_arm["mode"],
        draft_arm["num_speculative_tokens"],
    )


def test_claims_of_equality_ask_for_all_of_their_cells():
    equal = [
        claim
        for claim in read_register().claim
        if claim.asks == "cells" and claim.direction == "same"
    ]
    assert [claim.id for claim in equal] == ["C4", "C5", "C6"]
    assert all(claim.every for claim in equal)


def test_claims_contradict_each_other_both_ways():
    claims = {claim.id: claim for claim in read_register().claim}
    classes = {name for suite in BUILT_IN for name in load_suite(suite).classes}
    for claim in claims.values():
        assert {*claim.classes, *claim.beside} <= classes
        assert set(claim.metrics) <= set(CATALOGUE)
        assert all(claim.id in claims[second].against for second in claim.against)


def test_the_page_has_every_claim_as_the_register_has_it(root):
    page = (root / "docs" / "claims.md").read_text()
    for claim in read_register().claim:
        classes = ", ".join(claim.classes) or ("all" if claim.metrics else "-")
        row = f"| {claim.id} | {claim.text} | {classes} | {claim.confirms} |"
        assert row in page.splitlines(), row
