"""The proxy between this machine and a server.

HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY name it, in capitals or not.

Invariant: a server on this machine is never reached through a proxy; a server's key and headers go
through a proxy only inside TLS, which the proxy cannot read.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from tandem.errors import InputError

_SCHEMES = ("http", "https")


def find_proxy(url: str, *, has_secret: bool) -> str | None:
    """Return the URL of the proxy to a server; None for a direct connection.

    Args:
        url: of the server.
        has_secret: whether requests carry a key, or a header that the user gave.

    Raises:
        InputError: the proxy is no HTTP proxy, or it would read the key.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _is_direct(host, parts.netloc, proxies):
        return None

    proxy = proxy if "://" in proxy else f"http://{proxy}"
    direct = f"connect directly: export NO_PROXY={host}"
    if urlsplit(proxy).scheme not in _SCHEMES:
        problem = f"the proxy {name_proxy(proxy)} is no HTTP proxy"
        raise InputError(problem, where=url, change=f"name one that is, or {direct}")
    if has_secret and parts.scheme == "http":
        problem = f"the proxy {name_proxy(proxy)} of HTTP_PROXY would read the key or the headers"
        raise InputError(problem, where=url, change=f"use https://, or {direct}")
    return proxy


def name_proxy(proxy: str) -> str:
    """Return a proxy's URL without user and password."""
    parts = urlsplit(proxy)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def describe_proxy(arm: str, proxy: str) -> str:
    """Return the note of a run whose server is behind a proxy of the environment."""
    return (
        f"{arm} is reached through the proxy {name_proxy(proxy)}, so its times include the proxy's;"
        " NO_PROXY names hosts that are connected directly"
    )


def _is_direct(host: str, netloc: str, proxies: dict[str, str]) -> bool:
    """Return whether a host is on this machine, or NO_PROXY names it or its network."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    if proxy_bypass_environment(netloc, proxies):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(
        address in network for network in _list_networks(proxies.get("no", ""))
    )


def _list_networks(names: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Return the networks among the names of NO_PROXY, such as 10.0.0.0/8."""
    networks = []
    for name in names.split(","):
        try:
            networks.append(ipaddress.ip_network(name.strip(), strict=False))
        except ValueError:
            continue
    return networks
