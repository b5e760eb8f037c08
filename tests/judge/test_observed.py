import numpy as np
from measured import arm, record, write_run
from observed import Asked, Truth, drawn, observed, table

from tandem.bench.request_table import RequestTable, read_request_table
from tandem.bench.schedule import LoadLevel


def test_what_is_made_without_a_file_is_what_a_file_gives(tmp_path):
    folder = write_run(
        tmp_path, [record(arm="base"), record(arm="spec")], arms=(arm("base", role="baseline"), arm("spec"))
    )
    read = read_request_table(folder)
    made = observed(
        [Asked(arm=name, prompt="repeat-00", e2e_ms=290, ttft_ms=200, tokens=8) for name in ("base", "spec")]
    )
    assert (made.arms, made.classes, made.loads, made.prompts) == (read.arms, read.classes, read.loads, read.prompts)
    for name in (
        "arm",
        "class_",
        "load",
        "prompt",
        "round",
        "slot",
        "start",
        "placement",
        "failed",
        "hit_token_limit",
        "output",
    ):
        assert np.array_equal(getattr(made, name), getattr(read, name)), name
        assert getattr(made, name).dtype == getattr(read, name).dtype, name
    for name, values in made.figures.items():
        np.testing.assert_allclose(values, read.figures[name])
    assert set(vars(made)) == set(RequestTable.__dataclass_fields__)


def test_a_table_names_arms_classes_and_the_control():
    made = table(
        {"repeat": {"base": [1000, 900], "spec": [500, np.nan], "base#2": [1000, 901]}}, rounds=1, concurrency=2
    )
    assert (made.baseline, made.variants, made.control) == ("base", ("spec",), "base#2")
    assert made.loads == (LoadLevel(concurrency=2),)
    assert len(made) == 5


def test_a_drawn_run_has_the_ratio_it_was_drawn_at():
    made = drawn(Truth(ratio={"spec": {"repeat": 2.0}}, prompts=400, spread=0.05))
    logs = [np.log(made.figures["e2e_ms"][made.arm_mask(name)]).mean() for name in ("base", "spec")]
    assert abs(np.exp(logs[0] - logs[1]) - 2.0) < 0.05


def test_a_baseline_without_a_record_is_still_the_baseline(tmp_path):
    arms = (arm("base", role="baseline"), arm("spec"))
    read, made = read_request_table(write_run(tmp_path, [record(arm="spec")], arms=arms)), observed([Asked(arm="spec")])
    for seen in (read, made):
        assert (seen.baseline, seen.variants, seen.arm_mask("base").sum()) == ("base", ("spec",), 0)
