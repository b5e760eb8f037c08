"""Rows of a table in groups, and texts of its rows as codes into a tuple of names."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.bench.figures.columns import IntArray
from tandem.bench.figures.quantiles import Values

NO_NAME = -1  # the code of None
Key = TypeVar("Key")
NewKey = TypeVar("NewKey")


@dataclass(frozen=True)
class RowGroups(Generic[Key]):
    """Requests in groups, e.g. by turn or by load.

    Args:
        keys: one for each group.
        codes: of each request, the index of its key.
    """

    keys: Sequence[Key]
    codes: IntArray

    def rename(self, names: Iterable[NewKey]) -> RowGroups[NewKey]:
        """Return the groups under other names, one a present key; join those with equal names."""
        places: dict[NewKey, int] = {}
        codes = [places.setdefault(name, len(places)) for name in names]
        return RowGroups(list(places), np.array(codes, np.intp)[self.codes])

    def sum(self, column: NDArray[Any]) -> Values:
        """Return the sum of a column of requests for each group."""
        sums: Values = np.bincount(self.codes, column, minlength=len(self.keys)).astype(float)
        return sums

    def split(self, values: Values, rows: IntArray | None = None) -> Iterator[tuple[Key, Values]]:
        """Yield the values of each group, without NaN.

        Args:
            values: of the requests.
            rows: of each value, the row of its request; None if each request has one value.
        """
        codes = self.codes if rows is None else self.codes[rows]
        # numpy sorts 16 bits and fewer by radix
        small_codes = codes.astype(np.min_scalar_type(len(self.keys)))
        ends = np.cumsum(np.bincount(codes, minlength=len(self.keys)))
        parts = np.split(values[np.argsort(small_codes, kind="stable")], ends[:-1])
        for key, part in zip(self.keys, parts, strict=False):
            yield key, part[~np.isnan(part)]


class NameCodes:
    """Names of a column, numbered as they come."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = defaultdict(count().__next__)
        self._column = array("i")

    def extend(self, names: Iterable[Any]) -> None:
        """Append the names of further rows."""
        self._column.extend(map(self._numbers.__getitem__, names))

    def sort(
        self, first_names: Sequence[Any] = (), required_names: Sequence[Any] = ()
    ) -> tuple[tuple[Any, ...], IntArray]:
        """Return the names, `first_names` first and the others sorted, and the code of each row.

        Names in `required_names`, a part of `first_names`, need no row: an arm without a record is
        still the baseline or a variant. None is no name: its code is NO_NAME. In a tuple, None is
        sorted last.
        """
        leading_names = dict.fromkeys(
            name for name in first_names if name in self._numbers or name in required_names
        )
        others = [name for name in self._numbers if name is not None and name not in leading_names]
        names = (*leading_names, *sorted(others, key=_sort_key))

        places = {name: place for place, name in enumerate(names)}
        codes = np.array([places.get(name, NO_NAME) for name in self._numbers], np.intp)
        return names, codes[np.array(self._column, np.intp)]


def encode_names(
    names: Iterable[Any], first_names: Sequence[Any] = (), required_names: Sequence[Any] = ()
) -> tuple[tuple[Any, ...], IntArray]:
    """Return the names and the code of each entry; arguments and order as for `NameCodes.sort`."""
    codes = NameCodes()
    codes.extend(names)
    return codes.sort(first_names, required_names)


def _sort_key(name: Any) -> Any:
    return [(part is None, part) for part in name] if isinstance(name, tuple) else name
