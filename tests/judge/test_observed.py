import numpy as np
from measured import arm, record, write_run
from observed import Asked, observed

from tandem.bench.request_table import RequestTable, read_request_table


def test_what_is_made_without_a_file_is_what_a_file_gives(tmp_path):
    folder = write_run(
        tmp_path, [record(arm="base"), record(arm="spec")], arms=(arm("base", role="baseline"), arm("spec"))
    )
    read = read_request_table(folder)
    made = observed(
        [Asked(arm=name, prompt="repeat-00", e2e_ms=290, ttft_ms=200, tokens=8) for name in ("base", "spec")]
    )
    assert (made.arms, made.classes, made.loads, made.prompts) == (read.arms, read.classes, read.loads, read.prompts)
    columns = ("arm", "class_", "load", "prompt", "round", "slot", "start", "placement", "failed", "output")
    for name in (*columns, "hit_token_limit"):
        assert np.array_equal(getattr(made, name), getattr(read, name)), name
        assert getattr(made, name).dtype == getattr(read, name).dtype, name
    for name, values in made.figures.items():
        np.testing.assert_allclose(values, read.figures[name])
    assert set(vars(made)) == set(RequestTable.__dataclass_fields__)


def test_a_baseline_without_a_record_is_still_the_baseline(tmp_path):
    arms = (arm("base", role="baseline"), arm("spec"))
    read, made = read_request_table(write_run(tmp_path, [record(arm="spec")], arms=arms)), observed([Asked(arm="spec")])
    for seen in (read, made):
        assert (seen.baseline, seen.variants, seen.arm_mask("base").sum()) == ("base", ("spec",), 0)
