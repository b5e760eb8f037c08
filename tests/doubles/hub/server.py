"""The local hub: a folder of repositories behind the fault proxy, whose rules are its knobs and
whose log is its log.

Invariant: `url` stays the same over a stop and a start, so a client meets a hub that is down and
then up again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Self

from doubles import loopback
from doubles.fault_proxy.proxy import FaultProxy
from doubles.fault_proxy.request import ProxyRequest
from doubles.fault_proxy.rules import FaultRule
from rehearsal.hub.connection import LARGE_HOST, HubAccess, HubConnection
from rehearsal.hub.repositories import HubRepositories


class LocalHub:
    """A hub on 127.0.0.1.

    Args:
        folder: `<organisation>/<name>/<revision>/<files>`.
        rules: what goes wrong, as in front of the AWS endpoint; `path` is
            `/<id>/resolve/<revision>/<file>` for what is asked for, and `/cdn/<id>/<commit>/<file>`
            for the bytes of large files.
        access: who may read what; everybody everything by default.
    """

    def __init__(self, folder: Path, *rules: FaultRule, access: HubAccess | None = None) -> None:
        self.repositories = HubRepositories(folder=folder)
        handler = partial(HubConnection, self.repositories, access or HubAccess())
        self._server = loopback.LoopbackServer(handler)
        self._proxy = FaultProxy(self._server.url, *rules, is_aws=False)

    @property
    def url(self) -> str:
        """What HF_ENDPOINT names."""
        return self._proxy.url

    def start(self) -> Self:
        """Listen, on the same port as before."""
        self._server.start()
        self._proxy.upstream = (loopback.HOST, self._server.port)
        self._proxy.start()
        return self

    def stop(self) -> None:
        """Refuse connections, as a hub that is down."""
        self._proxy.stop()
        self._server.stop()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def use(self, *rules: FaultRule) -> None:
        """Put these rules in the place of all others; without any, nothing fails."""
        self._proxy.use(*rules)

    @property
    def log(self) -> tuple[ProxyRequest, ...]:
        """Every request since the start or the last `forget`, in the order of arrival."""
        return self._proxy.log

    def forget(self) -> None:
        """Empty the log."""
        self._proxy.forget()

    def count_file_bytes(self, file: str = "*") -> int:
        """Bytes that left as content of files whose name fits the fnmatch pattern."""
        requests = (
            *self._proxy.requests(path=f"/*/resolve/*/{file}"),
            *self._proxy.requests(path=f"/cdn/*/{file}"),
        )
        return sum(request.answer_bytes for request in requests if request.done)

    def client_environment(self, home: Path) -> dict[str, str]:
        """The variables that make the hub's client in another process speak to this hub and to
        nothing else.

        Args:
            home: the client's cache and tokens, one for each test.
        """
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **dict.fromkeys(("NO_PROXY", "no_proxy"), f"{loopback.HOST},{LARGE_HOST}"),
        }
