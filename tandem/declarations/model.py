"""A model: the figures of its published configuration, each with its source."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tandem.declarations.figure import DataFigure, DataFile

BYTES_PER_VALUE = 2  # of the KV cache, bfloat16 and float16
ModelKind = Literal["causal-lm", "eagle-head", "eagle3-head", "medusa-heads"]


class ModelConfig(DataFile):
    """A target, a draft or a speculation head.

    Shapes: `attention_heads * head_dim` need not equal `hidden_size` (Qwen3). `bytes` counts the
    safetensors.
    """

    id: str = Field(description="organisation/name on the hub")
    kind: DataFigure[ModelKind] = Field(description="what it can serve as")
    head_of: str | None = Field(description="for a head, the id of the target it was trained for")
    revision: DataFigure[str | None] = Field(
        description="commit of the hub repository; null until pinned"
    )
    family: DataFigure[str] = Field(
        description="architecture family, the configuration's model_type"
    )
    layers: DataFigure[int] = Field(description="decoder layers")
    attention_heads: DataFigure[int | None] = Field(description="query heads")
    kv_heads: DataFigure[int | None] = Field(description="key-value heads")
    head_dim: DataFigure[int | None] = Field(description="dimension of a head")
    hidden_size: DataFigure[int] = Field(description="hidden dimension")
    intermediate_size: DataFigure[int | None] = Field(description="MLP dimension")
    vocabulary: DataFigure[int] = Field(description="rows of the embedding")
    draft_vocabulary: DataFigure[int | None] | None = Field(
        default=None, description="rows of a head's own output"
    )
    max_position_embeddings: DataFigure[int | None] = Field(
        description="longest sequence it was made for, in tokens"
    )
    tokenizer: DataFigure[str] = Field(description="name shared by models with the same tokenizer")
    dtype: DataFigure[str | None] = Field(description="type of the published weights")
    bytes: DataFigure[int | None] = Field(description="size of the published weights, in bytes")
    gated: DataFigure[bool | None] = Field(description="the hub asks for a token")

    def count_kv_bytes(self, ranks: int = 1) -> int | None:
        """Return a token's bytes in the KV cache, over all layers; None where a figure is unknown.

        Args:
            ranks: that share the cache. More ranks than KV heads hold copies of them (NxD Inference
                modules/attention/gqa.py, REPLICATE_TO_TP_DEGREE).
        """
        heads = self.kv_heads.value
        dim = self.head_dim.value
        if heads is None or dim is None:
            return None
        return 2 * self.layers.value * max(heads, ranks) * dim * BYTES_PER_VALUE

    def revision_or_main(self) -> str:
        """Return the pinned commit, or `main`, which moves, until one is pinned."""
        return self.revision.value or "main"

    def full_id(self) -> str:
        """Return id@revision."""
        return f"{self.id}@{self.revision_or_main()}"

    def prefix(self) -> str:
        """Return the S3 prefix and mount path of this snapshot, without slashes at its ends."""
        return f"models/{self.id}/{self.revision_or_main()}"
