"""Where rendered manifests are synced from, and which experiments are hosted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from urllib.parse import SplitResult, urlsplit

from tandem.rules.rule import Finding, Rule
from tandem.rules.subjects import Stamp
from tandem.spec.environment import GitopsDelivery

RESERVED = ("example", "example.com", "example.net", "example.org", "invalid", "test")  # RFC 2606


def _url(stamp: Stamp) -> SplitResult | None:
    """Return the repository's URL; None where there is none, or where another rule refuses it."""
    delivery = stamp.environment.delivery
    try:
        return urlsplit(delivery.repo_url) if isinstance(delivery, GitopsDelivery) else None
    except ValueError:
        return None


def _readable(stamp: Stamp) -> Iterable[Finding]:
    delivery, url = stamp.environment.delivery, _url(stamp)
    if isinstance(delivery, GitopsDelivery) and (url is None or not url.hostname):
        yield Finding(
            path="delivery.repo_url", got=repr(delivery.repo_url), allowed="a URL with a host",
            change="write the clone URL",
        )  # fmt: skip


def _placeholder(stamp: Stamp) -> Iterable[Finding]:
    url = _url(stamp)
    host = (url.hostname or "") if url else ""
    if any(host == name or host.endswith(f".{name}") for name in RESERVED):
        yield Finding(
            path="delivery.repo_url", got=f"the placeholder host {host}", allowed="your repository",
            change="write its URL: the controller will find nothing there",
        )  # fmt: skip


def _secret(stamp: Stamp) -> Iterable[Finding]:
    url = _url(stamp)
    if url is not None and (url.password is not None or (url.scheme == "https" and url.username is not None)):
        yield Finding(
            path="delivery.repo_url", got="a user name or password in the URL", allowed="a URL without credentials",
            change="delete them, and give the controller a secret of its own: manifests are committed",
        )  # fmt: skip


def _own_path(stamp: Stamp) -> Iterable[Finding]:
    mine = stamp.environment.delivery
    if not isinstance(mine, GitopsDelivery):
        return
    place = (mine.repo_url, mine.revision, mine.path)
    for other in stamp.others:
        theirs = other.delivery
        if isinstance(theirs, GitopsDelivery) and place == (theirs.repo_url, theirs.revision, theirs.path):
            yield Finding(
                path="delivery.path", got=f"{mine.path}, as in environment {other.name}",
                allowed="a folder of its own", change=f"write manifests/{stamp.environment.name}",
            )  # fmt: skip


def _rendered_path(stamp: Stamp) -> Iterable[Finding]:
    delivery, name = stamp.environment.delivery, stamp.environment.name
    if isinstance(delivery, GitopsDelivery) and delivery.path.rpartition("/")[2] != name:
        yield Finding(
            path="delivery.path", got=delivery.path, allowed=f"a folder named {name}, as `tandem render` writes it",
            change=f"write manifests/{name}, or copy what is rendered to {delivery.path} with every commit",
        )  # fmt: skip


def _hosted_once(stamp: Stamp) -> Iterable[Finding]:
    seen: set[str] = set()
    for index, name in enumerate(stamp.environment.experiments):
        if name in seen:
            yield Finding(path=f"experiments[{index}]", got=f"{name!r} again", allowed="each once", change="delete one")
        seen.add(name)


RULES: tuple[Rule[Stamp], ...] = (
    Rule(
        id="repository-readable", of=Stamp, severity="refusal", find=_readable,
        sentence="the repository's URL has a host", source="RFC 3986", date=date(2005, 1, 1),
    ),
    Rule(
        id="repository-real", of=Stamp, severity="warning", find=_placeholder,
        sentence="the repository's host is not one reserved for examples", source="RFC 2606", date=date(1999, 6, 1),
    ),
    Rule(
        id="repository-secret", of=Stamp, severity="refusal", find=_secret,
        sentence="the repository's URL carries no credentials", source="RFC 3986, section 3.2.1", date=date(2005, 1, 1),
    ),
    Rule(
        id="path-own", of=Stamp, severity="refusal", find=_own_path,
        sentence="no two environments sync the same folder",
        source="Tandem's own: each cluster would apply the other's manifests", date=date(2026, 11, 21),
    ),
    Rule(
        id="path-rendered", of=Stamp, severity="warning", find=_rendered_path,
        sentence="the folder that is synced is the one that is rendered: its last part is the environment's name",
        source="charts/tree.py: manifests/<environment>", date=date(2026, 11, 21),
    ),
    Rule(
        id="hosted-once", of=Stamp, severity="refusal", find=_hosted_once,
        sentence="an environment hosts each experiment once",
        source="Tandem's own: an experiment is one namespace", date=date(2026, 11, 21),
    ),
)  # fmt: skip
