"""The exit code of a run's figures."""

from __future__ import annotations

import pytest
from measured import failed, record, write_run

from tandem.bench.records.manifest import PlanTotals
from tandem.errors import ExitCode
from tandem.report.run_report import report_run


@pytest.mark.parametrize(
    ("records", "planned", "code"),
    [
        ([record()], 1, ExitCode.DONE),
        ([record()], 2, ExitCode.STALE),
        ([record(), failed()], 2, ExitCode.STALE),
        ([record(), failed(error="interrupted")], 2, ExitCode.DONE),
        ([failed()], 1, ExitCode.EXTERNAL_FAILURE),
    ],
    ids=["all", "one missing", "one failed", "one cut", "none answered"],
)
def test_the_exit_code_says_what_is_missing(tmp_path, records, planned, code):
    folder = write_run(tmp_path, records, plan=PlanTotals(requests=planned))
    assert report_run(folder, None).exit_code == code
