"""A stop and an end do their work whoever reads what they print, and whatever the stop function
answers."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest
from bucket_specs import folders
from shipped import load_shipped

from tandem.cli.program import main
from tandem.errors import ExternalError, InputError
from tandem.ops.caller import CallerIdentity
from tandem.ops.stop_function import invoke_stop_function

ROOT = Path(__file__).parents[2]
STOP = ["stop", "--env", "post-us-east-2", *folders(ROOT)]


class FullDisk(io.StringIO):
    """A stream that takes nothing."""

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_an_end_goes_on_where_its_output_finds_no_room(monkeypatch):
    runs = []

    def end_lease(*_, log, **__):
        log("set to 0")
        runs.append("r1")
        return "r1"

    monkeypatch.setattr("tandem.cli.stop.require_account", lambda *_: "anna")
    monkeypatch.setattr("tandem.cli.stop.end_lease", end_lease)
    monkeypatch.setattr("sys.stdout", FullDisk())

    assert (main([*STOP, "--end"]), runs) == (3, ["r1"])


def test_a_stop_goes_on_where_its_warning_finds_no_room(monkeypatch):
    stops = []

    def stop_fleet(*_, who, **__):
        stops.append(who)
        raise InputError("enough", change="")

    monkeypatch.setattr(
        "tandem.cli.stop.identify_caller", lambda *_: CallerIdentity("unknown", "STS is silent")
    )
    monkeypatch.setattr("tandem.cli.stop.stop_fleet", stop_fleet)
    monkeypatch.setattr("sys.stderr", FullDisk())

    assert (main(STOP), stops) == (2, ["unknown"])


@pytest.mark.parametrize(
    "body", [b"<html>proxy</html>", b"", b"null", b'"x"', b"[]", b'{"done": 3}']
)
def test_a_malformed_answer_of_the_stop_function_is_a_sentence(body, monkeypatch):
    answer = {"Payload": io.BytesIO(body)}
    monkeypatch.setattr("tandem.ops.stop_function.call_operation", lambda *_, **__: answer)
    environment = load_shipped().environments["post-us-east-2"].record

    with pytest.raises(
        ExternalError, match=r"reading what it did failed .*; the reaper tries again"
    ):
        invoke_stop_function(environment, who="anna", why="enough")
