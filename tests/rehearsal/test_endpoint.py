"""The endpoint's life, and what its clients are told."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from process_end import has_ended

from rehearsal.aws import endpoint as module
from rehearsal.aws.__main__ import _build_parser, _select_location
from rehearsal.aws.endpoint import PROXY_VARIABLES, AwsEndpoint, is_listening, list_exports
from rehearsal.aws.installation import EndpointError

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]


def test_it_listens_on_loopback_only(endpoint):
    addresses = {
        address[4][0] for address in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    }
    elsewhere = [address for address in addresses if not address.startswith("127.")]
    for address in elsewhere:
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect((address, endpoint.port))
    assert is_listening(endpoint.port)


def test_a_stopped_endpoint_leaves_neither_process_nor_files(restart):
    assert (has_ended(restart.left.process), restart.left.work_there) == (True, False)


def test_state_survives_a_restart_where_it_is_asked_for(restart):
    assert restart.endpoint.client("ssm").get_parameter(Name="p")["Parameter"]["Value"] == "v"


def test_rejects_a_port_in_use():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(EndpointError, match="already in use"):
            AwsEndpoint(port=listener.getsockname()[1]).start()


def test_one_that_never_answers_is_stopped_at_the_deadline(monkeypatch):
    monkeypatch.setattr(module, "READY_S", 0.3)
    monkeypatch.setattr(AwsEndpoint, "_answers", lambda _self: False)
    silent = AwsEndpoint()

    with pytest.raises(EndpointError, match="did not answer within"):
        silent.start()

    assert has_ended(silent.process_id)


def test_it_ends_and_tidies_up_when_its_starter_is_killed():
    script = (
        "from rehearsal.aws.endpoint import AwsEndpoint; import time\n"
        "e = AwsEndpoint().start(); print(e.process_id, e.log.parent, flush=True); time.sleep(60)"
    )
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=root
    ) as starter:
        process, work = starter.stdout.readline().decode().split()
        starter.kill()

    assert has_ended(int(process))
    assert not Path(work).exists()


def test_clients_are_told_of_no_other_endpoint_or_credential(endpoint, tmp_path):
    variables = endpoint.client_environment(tmp_path)
    assert {variables["AWS_ENDPOINT_URL"], variables["AWS_ENDPOINT_URL_S3"]} == {endpoint.url}
    assert variables["AWS_ACCESS_KEY_ID"] == endpoint.account
    assert {variables["AWS_CONFIG_FILE"], variables["AWS_SHARED_CREDENTIALS_FILE"]} == {os.devnull}


def test_a_proxy_is_not_asked_for_the_endpoint(monkeypatch, endpoint, tmp_path):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert endpoint.client("sts").get_caller_identity()["Account"] == endpoint.account
    assert isinstance(endpoint.list_custom_resources(), list)
    assert not any(
        {**os.environ, **endpoint.client_environment(tmp_path)}[name] for name in PROXY_VARIABLES
    )


def test_the_exports_make_a_shell_speak_to_the_endpoint(endpoint):
    lines = "\n".join(list_exports(endpoint))
    program = "import boto3; print(boto3.client('sts').get_caller_identity()['Account'])"

    shell = subprocess.run(
        ["sh", "-c", f"{lines}\nexec {shlex.quote(sys.executable)} -c {shlex.quote(program)}"],
        env={"PATH": os.environ["PATH"], "AWS_PROFILE": "nobody"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert shell.stdout.strip() == endpoint.account


def test_the_endpoint_of_an_environment_has_its_account_and_region():
    options = _build_parser().parse_args(["start", "--env", "dev-trn2-3xlarge"])
    assert _select_location(options) == ("111122223333", "ap-southeast-4")
    assert _select_location(_build_parser().parse_args(["start"])) == ("000000000000", "us-east-2")
