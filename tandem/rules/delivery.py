"""Where rendered manifests are synced from, and which experiments are hosted."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from tandem.rules.contexts import EnvironmentContext
from tandem.rules.rule import RuleFinding, RuleList
from tandem.spec.environment import GitopsDelivery

EXAMPLE_DOMAINS = ("example", "example.com", "example.net", "example.org", "invalid", "test")  # RFC 2606

RULES = RuleList()


def _parse_repo_url(context: EnvironmentContext) -> SplitResult | None:
    """Return the repository's URL; None where there is none, or where another rule refuses it."""
    delivery = context.environment.delivery
    try:
        return urlsplit(delivery.repo_url) if isinstance(delivery, GitopsDelivery) else None
    except ValueError:
        return None


@RULES.refuse("repository-readable", "RFC 3986", "2005-01-01")
def _find_unreadable_url(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The repository's URL has a host."""
    delivery, url = context.environment.delivery, _parse_repo_url(context)
    if isinstance(delivery, GitopsDelivery) and (url is None or not url.hostname):
        yield RuleFinding(
            path="delivery.repo_url", got=repr(delivery.repo_url), allowed="a URL with a host",
            change="write the clone URL",
        )  # fmt: skip


@RULES.warn("repository-real", "RFC 2606", "1999-06-01")
def _find_placeholder_host(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The repository's host is not one reserved for examples."""
    url = _parse_repo_url(context)
    host = (url.hostname or "") if url else ""
    if any(host == name or host.endswith(f".{name}") for name in EXAMPLE_DOMAINS):
        yield RuleFinding(
            path="delivery.repo_url", got=f"the placeholder host {host}", allowed="your repository",
            change="write its URL: the controller will find nothing there",
        )  # fmt: skip


@RULES.refuse("repository-secret", "RFC 3986, section 3.2.1", "2005-01-01")
def _find_url_credentials(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The repository's URL carries no credentials."""
    url = _parse_repo_url(context)
    if url is not None and (url.password is not None or (url.scheme == "https" and url.username is not None)):
        yield RuleFinding(
            path="delivery.repo_url", got="a user name or password in the URL", allowed="a URL without credentials",
            change="delete them, and give the controller a secret of its own: manifests are committed",
        )  # fmt: skip


@RULES.refuse("path-own", "Tandem's own: each cluster would apply the other's manifests", "2026-11-21")
def _find_shared_path(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No two environments sync the same folder."""
    delivery = context.environment.delivery
    if not isinstance(delivery, GitopsDelivery):
        return
    sync_source = (delivery.repo_url, delivery.revision, delivery.path)
    for other_environment in context.other_environments:
        other_delivery = other_environment.delivery
        if isinstance(other_delivery, GitopsDelivery) and sync_source == (
            other_delivery.repo_url,
            other_delivery.revision,
            other_delivery.path,
        ):
            yield RuleFinding(
                path="delivery.path", got=f"{delivery.path}, as in environment {other_environment.name}",
                allowed="a folder of its own", change=f"write manifests/{context.environment.name}",
            )  # fmt: skip


@RULES.warn("path-rendered", "charts/tree.py: manifests/<environment>", "2026-11-21")
def _find_unrendered_path(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The folder that is synced is the one that is rendered: its last part is the environment's name."""
    delivery, name = context.environment.delivery, context.environment.name
    if isinstance(delivery, GitopsDelivery) and delivery.path.rpartition("/")[2] != name:
        yield RuleFinding(
            path="delivery.path", got=delivery.path, allowed=f"a folder named {name}, as `tandem render` writes it",
            change=f"write manifests/{name}, or copy what is rendered to {delivery.path} with every commit",
        )  # fmt: skip


@RULES.refuse("hosted-once", "Tandem's own: an experiment is one namespace", "2026-11-21")
def _find_repeated_experiments(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """An environment hosts each experiment once."""
    earlier_names: set[str] = set()
    for index, name in enumerate(context.environment.experiments):
        if name in earlier_names:
            yield RuleFinding(
                path=f"experiments[{index}]", got=f"{name!r} again", allowed="each once", change="delete one"
            )
        earlier_names.add(name)
