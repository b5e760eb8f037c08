"""Quantities as Kubernetes stores them, so that what is rendered equals what is read back.

Source: apimachinery pkg/api/resource/quantity.go, 1.36: no fraction, and the largest suffix that
loses nothing. An apply of another spelling reports a change for ever.
"""

from __future__ import annotations

_BINARY_SUFFIXES = ("Mi", "Gi", "Ti", "Pi")
_DECIMAL_SUFFIXES = ("m", "", "k", "M", "G")


def spell_mib(mib: int) -> str:
    """Return a size of `mib` MiB."""
    return _spell(mib, 1024, _BINARY_SUFFIXES)


def spell_gib(gib: int) -> str:
    """Return a size of `gib` GiB."""
    return spell_mib(gib * 1024)


def spell_thousandths(thousandths: int) -> str:
    """Return a number of processors, or of anything else that is counted, from its thousandths."""
    return _spell(thousandths, 1000, _DECIMAL_SUFFIXES)


def spell_count(count: int) -> str:
    """Return a whole number."""
    return spell_thousandths(count * 1000)


def _spell(value: int, base: int, suffixes: tuple[str, ...]) -> str:
    if value == 0:
        return "0"
    power = 0
    while value % base == 0 and power < len(suffixes) - 1:
        value //= base
        power += 1
    return f"{value}{suffixes[power]}"
