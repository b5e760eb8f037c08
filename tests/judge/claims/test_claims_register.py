from pathlib import Path

import pytest
import yaml

from tandem.bench.fault import BenchError
from tandem.judge.claims.register import FILE, read_register


def changed(tmp_path: Path, before: str, after: str) -> Path:
    text = FILE.read_text()
    assert before in text
    path = tmp_path / "claims.toml"
    path.write_text(text.replace(before, after, 1))
    return path


def test_every_claim_of_the_post_has_a_row():
    assert [claim.id for claim in read_register().claim] == [f"C{number}" for number in range(1, 18)]


def test_the_set_up_is_that_of_the_experiment_that_repeats_the_post(root):
    post = yaml.safe_load((root / "experiments" / "post.yaml").read_text())
    set_up = read_register().set_up
    assert (set_up.target, *set_up.runtimes) == (post["target"], post["runtime"])
    fused = post["variants"][1]
    assert (set_up.draft, set_up.mode, set_up.num_speculative_tokens) == (
        fused["draft"], fused["mode"], fused["num_speculative_tokens"],
    )  # fmt: skip


def test_claims_of_equality_ask_for_all_of_their_cells():
    equal = [claim for claim in read_register().claim if claim.asks == "cells" and claim.direction == "same"]
    assert [claim.id for claim in equal] == ["C4", "C5", "C6"]
    assert all(claim.every for claim in equal)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('id = "C2"', 'id = "C1"', "C1 stands more than once"),
        ('trap = "-"', 'trap = "-"\nweight = 3', "weight"),
        ('classes = ["creative"', 'classes = ["poems"', "C8: classes has 'poems'"),
        ('source = "news"', 'source = "hearsay"', "C8: source has 'hearsay'"),
        ('metrics = ["ttft_ms"]', 'metrics = ["itl_ms"]', "C6: metrics has 'itl_ms'"),
        ('against = ["C7"]', "against = []", "C7 contradicts C2, which does not say so"),
        ('asks = "best class"', 'asks = "a guess"', "a guess"),
        ("hours = 3.0", "hours =", "no register of claims"),
    ],
)
def test_a_row_that_is_not_as_it_must_be_is_refused_and_named(tmp_path, before, after, named):
    path = changed(tmp_path, before, after)
    with pytest.raises(BenchError, match=named) as refused:
        read_register(path)
    assert refused.value.where == str(path)
