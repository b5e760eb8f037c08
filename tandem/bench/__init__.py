"""The benchmark: one record per request; everything else is derived from records.

Invariant: the package knows neither AWS nor Kubernetes; every stored figure can be computed again
from the records.

`__all__` is the public surface, which docs/library.md describes; every other module of this package
is internal. A name is loaded when it is first used, so that a command which
measures nothing loads no numpy and no HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem.bench.figures.request_table import RequestTable, read_request_table
    from tandem.bench.measurement import measure_servers, measure_servers_async
    from tandem.bench.plan.run_options import RunOptions
else:

    def __getattr__(name: str) -> Any:
        """Load a public name (PEP 562); a type checker reads the imports above instead."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "RequestTable",
    "RunOptions",
    "measure_servers",
    "measure_servers_async",
    "read_request_table",
]

_MODULES = {
    "RequestTable": "figures.request_table",
    "RunOptions": "plan.run_options",
    "measure_servers": "measurement",
    "measure_servers_async": "measurement",
    "read_request_table": "figures.request_table",
}


def __dir__() -> list[str]:
    """Return the public names for `dir`."""
    return __all__
