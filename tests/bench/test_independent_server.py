"""The second server shares no code with what it checks."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("independent_server.py")


def test_it_imports_the_standard_library_alone():
    imports = [
        node
        for node in ast.walk(ast.parse(PROGRAM.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {
        getattr(node, "module", None) or alias.name for node in imports for alias in node.names
    }

    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == set()
