"""The code keeps its limits on size, air and names, and what measures it counts right."""

from __future__ import annotations

import ast

import pytest
from house import count_nodes, is_participle, measure_house


def test_every_limit_holds():
    figures, _ = measure_house()

    assert [str(figure) for figure in figures if not figure.holds] == []


def test_a_docstring_is_no_size():
    with_docstring = ast.parse('def read(path):\n    """Read a file."""\n    return path')
    without_docstring = ast.parse("def read(path):\n    return path")

    assert count_nodes(with_docstring) == count_nodes(without_docstring)


@pytest.mark.parametrize("word", ["found", "measured", "_kept"])
def test_a_participle_is_known(word):
    assert is_participle(word)


@pytest.mark.parametrize("word", ["speed", "need", "shared", "seen_s"])
def test_another_word_is_no_participle(word):
    assert not is_participle(word)
