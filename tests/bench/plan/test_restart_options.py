"""Which starts and restart commands a run may have."""

from __future__ import annotations

import pytest

from tandem.bench.plan.run_options import RunOptions
from tandem.bench.plan.settings import complete_options
from tandem.errors import InputError

NAMES = ("base", "spec")
SERVERS = dict.fromkeys(NAMES, "http://127.0.0.1:8000")
COMMAND = "systemctl restart vllm"
REFUSALS = [
    ({"starts": 6}, "6"),
    ({"restart": {"base": COMMAND}}, "never run"),
    ({"starts": 6, "restart": {"bsae": COMMAND}}, "a server of base, spec"),
    ({"starts": 6, "restart": {"base": " "}}, "a command that restarts base"),
    ({"starts": 6, "restart": {"base": COMMAND}, "rounds": 5}, "1 to 5, the number of rounds"),
    ({"starts": 6, "restart": {"base": COMMAND}, "duration_s": 60.0}, "need rounds"),
]


@pytest.mark.parametrize(("options", "allowed"), REFUSALS)
def test_restarts_that_cannot_be_done_are_refused(options, allowed):
    with pytest.raises(InputError, match=allowed):
        RunOptions(servers=SERVERS, model="m", **options)


def test_there_are_no_fewer_rounds_than_starts():
    options = RunOptions(servers=SERVERS, model="m", starts=6, restart=COMMAND)
    assert complete_options(options).manifest.rounds == 6
