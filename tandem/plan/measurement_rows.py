"""What others measured of speculation on Neuron: a row a pair and window, with its source.

Invariant: a row without a known or assumed acceptance fits nothing, and says why it is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from tandem.declarations.figure import DataFigure, DataFile, read_data_file
from tandem.declarations.record import SpecRecord
from tandem.plan.step_tokens import CommitLaw, count_drafted

PUBLISHED_FILE = Path(__file__).parent / "data" / "published.yaml"

TargetKind = Literal["dense", "mixture of experts"]
Implementation = Literal["fused", "native", "other"]
DraftingKind = Literal["sequential", "parallel"]


class RowKind(NamedTuple):
    """Rows of one kind are fitted together and left out in turn.

    Args:
        target: whether verified tokens load experts of their own.
        drafting: one forward a drafted token, or one for all of them.
        is_served: by what Tandem deploys: fused by NxD Inference, or native in vLLM Neuron.
    """

    target: TargetKind
    drafting: DraftingKind
    is_served: bool

    @property
    def words(self) -> str:
        """Return the kind as a sentence calls it."""
        implementation = "fused or native" if self.is_served else "another implementation"
        return f"{self.target}, {self.drafting} drafts, {implementation}"


SERVED_DENSE = RowKind("dense", "sequential", is_served=True)


class PublishedRow(SpecRecord):
    """Two servers that differ in speculation alone, as somebody measured them."""

    name: str = Field(description="of the row")
    pair: str = Field(description="of the two servers: rows of one pair are left out together")
    target: TargetKind = Field(description="kind of the target model")
    implementation: Implementation = Field(description="`other` is not one that Tandem deploys")
    drafting: DraftingKind = Field(description="one forward a drafted token, or one for all")
    setup: str = Field(description="models, mode, TP degree, machine, load")
    tokens_per_step: CommitLaw = Field(description="most tokens that a step of window k commits")
    window: int = Field(ge=1, description="num_speculative_tokens")
    concurrency: int = Field(ge=1, description="requests at once")
    tokens: float | None = Field(description="mean tokens of a step; null where no source says it")
    assumed: str | None = Field(
        None, description="why `tokens` is taken as it is, where it was not measured"
    )
    baseline_tpot_ms: DataFigure[float] = Field(description="without speculation")
    speculative_tpot_ms: DataFigure[float] = Field(description="with it")
    left_out: str | None = Field(None, description="why the row is not used")

    @model_validator(mode="after")
    def _require_reason(self) -> PublishedRow:
        if (self.tokens is None) != (self.left_out is not None):
            raise ValueError("a row has either `tokens` or the reason why it is left out")
        return self

    @property
    def kind(self) -> RowKind:
        """Return what the row is fitted with."""
        return RowKind(self.target, self.drafting, self.implementation != "other")

    @property
    def speed_up(self) -> float:
        """Return how many times as fast a token comes with speculation."""
        return self.baseline_tpot_ms.value / self.speculative_tpot_ms.value

    @property
    def step_cost(self) -> float:
        """Return how many plain steps a speculative step took."""
        assert self.tokens is not None, "a row that is left out implies nothing"
        return self.tokens / self.speed_up

    @property
    def forwards(self) -> int:
        """Return how many draft forwards a step pays one after the other."""
        return self.window if self.drafting == "sequential" else 1

    @property
    def verified(self) -> int:
        """Return how many drafted tokens a step verifies, over all requests."""
        return count_drafted(self.tokens_per_step, self.window) * self.concurrency


class PublishedRows(DataFile):
    """Every published row that was found."""

    rows: tuple[PublishedRow, ...] = Field(min_length=1, description="the rows")


def load_published(path: Path = PUBLISHED_FILE) -> tuple[PublishedRow, ...]:
    """Return every published row, those that are left out too.

    Args:
        path: of the data file.

    Raises:
        SpecError: the file is malformed, or cites a source that it does not list.
    """
    return read_data_file(PublishedRows, path).rows
