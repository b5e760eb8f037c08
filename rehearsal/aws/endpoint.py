"""Starts and stops the local AWS endpoint, on 127.0.0.1 only, and gives its clients' settings."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import boto3
from botocore.config import Config

from rehearsal.aws.build_behavior import BuildBehavior
from rehearsal.aws.capacity_block import CapacityBlock
from rehearsal.aws.fleet_behavior import FleetBehavior
from rehearsal.aws.installation import ENVIRONMENT, PACKAGE_FOLDER, EndpointError, ensure_python
from rehearsal.aws.launcher import WORK_PREFIX, WORK_VARIABLE
from rehearsal.loopback import HOST, find_free_port, is_listening
from tandem.shell_command import quote_command

# A company's proxy cannot reach this machine's loopback address.
PROXY_VARIABLES = tuple(
    spelt for name in ("http_proxy", "https_proxy", "all_proxy") for spelt in (name, name.upper())
)
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
READY_S = 60.0  # 0.6 s on an idle machine; 15 s were seen on two busy cores
STOP_S = 10.0
# of the starter's variables
INHERITED_VARIABLES = ("PATH", "LANG", "HOME", "PYTHONDONTWRITEBYTECODE")


@dataclass(kw_only=True)
class AwsEndpoint:
    """One running endpoint.

    Args:
        account: the twelve digits that clients use as access key id; MiniStack takes them as the
            account.
        port: 0 takes a free one.
        state_dir: where state and objects survive a restart; without it all is in memory and gone
            at the stop.
        enforces_policies: whether policies bind. The account itself (`client`,
            `client_environment`) may do all; `doubles.aws_principal` makes other principals.
    """

    account: str = "000000000000"
    region: str = "us-east-2"
    port: int = 0
    state_dir: pathlib.Path | None = None
    enforces_policies: bool = False
    venv_dir: pathlib.Path = ENVIRONMENT
    report: Callable[[str], None] = print
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _work_dir: pathlib.Path | None = field(default=None, init=False)
    _clients: dict[tuple[str, ...], Any] = field(default_factory=dict, init=False)
    _blocks: dict[str, CapacityBlock] = field(default_factory=dict, init=False)

    @property
    def url(self) -> str:
        """The endpoint's address."""
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> pathlib.Path:
        """The file of the endpoint's output, until the stop."""
        assert self._work_dir is not None, "the endpoint was never started"
        return self._work_dir / "endpoint.log"

    @property
    def process_id(self) -> int:
        """The id of the endpoint's process, to watch it."""
        assert self._process is not None, "the endpoint was never started"
        return self._process.pid

    def start(self) -> Self:
        """Start the endpoint and wait until it answers.

        Raises:
            EndpointError: the endpoint ended or did not answer in time; the end of its log is in
                the message.
        """
        interpreter = ensure_python(self.venv_dir, self.report)
        self.port = self.port or find_free_port()
        if is_listening(self.port):
            raise EndpointError(f"port {self.port} of {HOST} is already in use")
        self._work_dir = pathlib.Path(tempfile.mkdtemp(prefix=WORK_PREFIX))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(interpreter), str(PACKAGE_FOLDER / "launcher.py")],
                cwd=self._work_dir,
                env=self._environment_variables(),
                # the launcher ends when this closes, so it never outlives its starter
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the starter, which stops it in its own time
            )
        self._wait_ready()
        if self._blocks:
            self.set_blocks(self._blocks)
        return self

    def _environment_variables(self) -> dict[str, str]:
        """Return variables of the endpoint and its Lambdas, not the caller's AWS settings."""
        assert self._work_dir is not None
        inherited_variables = {
            name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ
        }
        return {
            **inherited_variables,
            **self._state_variables(),
            "AUTH": str(self.enforces_policies).lower(),
            "GATEWAY_PORT": str(self.port),
            "BIND_HOST": HOST,
            "MINISTACK_HOST": HOST,
            "MINISTACK_REGION": self.region,
            # of a client whose access key is no account, such as test
            "MINISTACK_ACCOUNT_ID": self.account,
            "LAMBDA_EXECUTOR": "local",
            "TMPDIR": str(self._work_dir),
            WORK_VARIABLE: str(self._work_dir),
        }

    def _state_variables(self) -> dict[str, str]:
        if self.state_dir is None:
            return {}
        objects_dir = self.state_dir / "objects"
        state_variables = {"PERSIST_STATE": "1", "STATE_DIR": str(self.state_dir)}
        return {**state_variables, "S3_PERSIST": "1", "S3_DATA_DIR": str(objects_dir)}

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if self._answers():
                return
            time.sleep(0.05)
        exit_code = self._process.poll()
        log = self.log.read_text(errors="replace")[-2000:]
        self.stop()
        problem = (
            f"did not answer within {READY_S:.0f} s"
            if exit_code is None
            else f"ended with code {exit_code}"
        )
        raise EndpointError(f"the local AWS endpoint {problem}; log: {log.strip()}")

    def _answers(self) -> bool:
        try:
            self.list_custom_resources()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True

    def list_custom_resources(self) -> list[dict[str, Any]]:
        """Return every stack's custom resources with properties; recorded here, never run."""
        with _OPENER.open(f"{self.url}/_tandem/recorded", timeout=5) as response:
            resources: list[dict[str, Any]] = json.load(response)
        return resources

    def reset(self) -> None:
        """Forget all state."""
        request = urllib.request.Request(f"{self.url}/_ministack/reset", method="POST")  # noqa: S310  # its own address
        _OPENER.open(request, timeout=30).close()

    def set_fleet(self, behavior: FleetBehavior | None = None) -> None:
        """Set the knobs; None resets all. Actions due by their clock are done on return."""
        self.put_fleet(json.dumps(asdict(behavior or FleetBehavior())).encode())

    def put_fleet(self, body: bytes) -> None:
        """Set the knobs from a body in the endpoint's own format.

        Raises:
            urllib.error.HTTPError: the endpoint refuses the body; 400.
        """
        self._put("fleet", body)

    def _put(self, name: str, body: bytes) -> None:
        request = urllib.request.Request(f"{self.url}/_tandem/{name}", data=body, method="PUT")  # noqa: S310  # its own
        _OPENER.open(request, timeout=30).close()

    def set_blocks(self, blocks: Mapping[str, CapacityBlock]) -> None:
        """Replace all Capacity Blocks by reservation id, kept over restarts; do what is due."""
        self._blocks = dict(blocks)
        documents = {name: asdict(block) for name, block in blocks.items()}
        self._put("blocks", json.dumps(documents, default=datetime.isoformat).encode())

    def set_builds(self, behavior: BuildBehavior | None = None) -> None:
        """Set the quota and the length of builds; None resets both."""
        self._put("builds", json.dumps(asdict(behavior or BuildBehavior())).encode())

    def read_fleet(self) -> dict[str, Any]:
        """Return each knob by name, and `now`, seconds since the epoch by the endpoint's clock."""
        with _OPENER.open(f"{self.url}/_tandem/fleet", timeout=5) as response:
            fleet: dict[str, Any] = json.load(response)
        return fleet

    def now(self) -> datetime:
        """Return the time by the endpoint's clock, which `FleetBehavior.clock_offset_s` moves."""
        return datetime.fromtimestamp(self.read_fleet()["now"], tz=UTC)

    def wait(self) -> int:
        """Wait until the endpoint ends by itself; return its exit code."""
        assert self._process is not None, "the endpoint was never started"
        return self._process.wait()

    def stop(self) -> None:
        """Stop the endpoint, and remove its temporary directory; the state directory stays."""
        self._end()
        if self._work_dir is not None:
            shutil.rmtree(self._work_dir, ignore_errors=True)

    def _end(self) -> None:
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def client_environment(self, home: pathlib.Path) -> dict[str, str]:
        """Return variables with which the CDK CLI and boto3 use only this endpoint, and no proxy.

        Args:
            home: the CLI's own directory. The CLI caches access key -> account there, so one per
                endpoint.
        """
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": self.account,
            "AWS_SECRET_ACCESS_KEY": "local",  # any will do
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "CDK_HOME": str(home),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            **dict.fromkeys(PROXY_VARIABLES, ""),
        }

    def client(self, service: str, url: str = "") -> Any:
        """Return the endpoint's boto3 client by account and region, shared: making it takes 0.1 s.

        Args:
            service: as boto3 names it.
            url: of a proxy in front of the endpoint; the client then uses the proxy.
        """
        endpoint_url = url or self.url
        # the account may change between two calls
        key = (service, endpoint_url, self.account, self.region)
        if key not in self._clients:
            self._clients[key] = self._new_client(service, endpoint_url)
        return self._clients[key]

    def _new_client(self, service: str, url: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=url,
            region_name=self.region,
            aws_access_key_id=self.account,
            aws_secret_access_key="local",  # noqa: S106  # any will do
            config=Config(
                s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, proxies={}
            ),
        )


def list_exports(endpoint: AwsEndpoint) -> list[str]:
    """Return the shell lines after which commands use only the endpoint, as its account's user."""
    variables = endpoint.client_environment(
        pathlib.Path(tempfile.gettempdir()) / f"tandem-cdk-{endpoint.port}"
    )
    unset_command = quote_command("unset", "AWS_PROFILE", "AWS_SESSION_TOKEN", *PROXY_VARIABLES)
    return [
        unset_command,
        *(quote_command("export", f"{name}={value}") for name, value in variables.items() if value),
    ]


def run_endpoint(port: int, account: str, region: str, state_dir: pathlib.Path | None) -> int:
    """Run an endpoint in the foreground until it is interrupted."""
    with AwsEndpoint(port=port, account=account, region=region, state_dir=state_dir) as endpoint:
        try:
            print(f"local AWS endpoint of account {account} at {endpoint.url}; stop it with Ctrl-C")
            print("for a shell of yours, so that aws, cdk and tandem speak to it:")
            print("\n".join(list_exports(endpoint)), flush=True)
            return endpoint.wait()
        except KeyboardInterrupt:
            return 0
