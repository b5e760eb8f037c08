"""Writes checkpoints of real format and any size: random weights, and a tokenizer of words.

Invariant: the same shape and seed give the same bytes. A tensor's bytes depend only on its name and
the seed, not on the files that the checkpoint is cut into. Memory never holds more than a piece of
a tensor.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

BYTES_PER_VALUE = 2  # bfloat16
MIB = 1 << 20
_CHUNK_BYTES = MIB
# fewest layers for a size, so that one layer more or less changes it by under a tenth
_MIN_LAYERS = 16
_MAX_HIDDEN_SIZE = 2048
# The upper byte of a bfloat16 is the sign and seven bits of the exponent. These bytes give -2**-5
# to 2**-5, so no weight is a NaN or unbounded.
_UPPER_BYTES = bytes((0x3B, 0x3C, 0xBB, 0xBC)[index % 4] for index in range(256))

ModelFamily = Literal["qwen3", "llama"]
EmbeddingKind = Literal["untied", "tied"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomCheckpoint:
    """A checkpoint to write, with fields and tensors named as in the family's published ones.

    Args:
        family: model_type of the configuration.
        embeddings: `tied` has no output matrix; `untied` has its own.
        layers: decoder layers.
        hidden_size: of the residual stream.
        intermediate_size: of the MLP.
        attention_heads: query heads.
        kv_heads: key-value heads.
        head_dim: of a head.
        vocabulary: rows of the embedding.
        shard_bytes: bytes of tensors in a file, unless a single tensor has more.
        seed: of the weights.
    """

    family: ModelFamily = "qwen3"
    embeddings: EmbeddingKind = "untied"
    layers: int = 2
    hidden_size: int = 32
    intermediate_size: int = 96
    attention_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    vocabulary: int = 320
    shard_bytes: int = 30_000
    seed: int = 0

    @classmethod
    def from_size(cls, size: int, *, shards: int) -> Self:
        """Return a checkpoint of about this many bytes, in about this many files.

        Args:
            size: bytes of all tensors; exact to a tenth from 1 MiB on.
            shards: files.
        """
        hidden_size = 64
        while (
            hidden_size < _MAX_HIDDEN_SIZE
            and cls._from_hidden_size(2 * hidden_size, _MIN_LAYERS).size <= size
        ):
            hidden_size *= 2
        one_layer, two_layers = (cls._from_hidden_size(hidden_size, layers) for layers in (1, 2))
        checkpoint = replace(
            one_layer,
            layers=max(1, 1 + round((size - one_layer.size) / (two_layers.size - one_layer.size))),
        )
        largest = max(prod(shape) for shape in checkpoint.tensors().values()) * BYTES_PER_VALUE
        return replace(checkpoint, shard_bytes=-(-checkpoint.size // shards) + largest)

    @classmethod
    def _from_hidden_size(cls, hidden_size: int, layers: int) -> Self:
        return cls(
            layers=layers,
            hidden_size=hidden_size,
            intermediate_size=3 * hidden_size,
            attention_heads=hidden_size // 16,
            kv_heads=hidden_size // 32,
        )

    @property
    def size(self) -> int:
        """Bytes of all tensors, as the index counts them."""
        return sum(prod(shape) for shape in self.tensors().values()) * BYTES_PER_VALUE

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor, in the order of writing."""
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocabulary, self.hidden_size)
        }
        for layer in range(self.layers):
            shapes |= {
                f"model.layers.{layer}.{name}.weight": shape
                for name, shape in self._layer().items()
            }
        shapes["model.norm.weight"] = (self.hidden_size,)
        if self.embeddings != "tied":
            shapes["lm_head.weight"] = (self.vocabulary, self.hidden_size)
        return shapes

    def _layer(self) -> dict[str, tuple[int, ...]]:
        queries = self.attention_heads * self.head_dim
        keys = self.kv_heads * self.head_dim
        norms = {"self_attn.q_norm": (self.head_dim,), "self_attn.k_norm": (self.head_dim,)}
        return {
            "input_layernorm": (self.hidden_size,),
            "post_attention_layernorm": (self.hidden_size,),
            "self_attn.q_proj": (queries, self.hidden_size),
            "self_attn.k_proj": (keys, self.hidden_size),
            "self_attn.v_proj": (keys, self.hidden_size),
            "self_attn.o_proj": (self.hidden_size, queries),
            "mlp.gate_proj": (self.intermediate_size, self.hidden_size),
            "mlp.up_proj": (self.intermediate_size, self.hidden_size),
            "mlp.down_proj": (self.hidden_size, self.intermediate_size),
            **(norms if self.family == "qwen3" else {}),
        }

    def config(self) -> dict[str, Any]:
        """Return the content of config.json: of a published one's keys those that are read."""
        family_fields = {
            "qwen3": {
                "architectures": ["Qwen3ForCausalLM"],
                "rope_theta": 1000000,
                "rms_norm_eps": 1e-06,
            },
            "llama": {
                "architectures": ["LlamaForCausalLM"],
                "rope_theta": 500000.0,
                "rms_norm_eps": 1e-05,
            },
        }[self.family]
        return {
            **family_fields,
            "bos_token_id": _BOS_ID,
            "eos_token_id": _EOS_ID,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": 4096,
            "model_type": self.family,
            "num_attention_heads": self.attention_heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "tie_word_embeddings": self.embeddings != "untied",
            "torch_dtype": "bfloat16",
            "vocab_size": self.vocabulary,
        }

    def shards(self) -> list[dict[str, tuple[int, ...]]]:
        """Return the tensors of each file, filled in order."""
        files: list[dict[str, tuple[int, ...]]] = [{}]
        free_bytes = self.shard_bytes
        for name, shape in self.tensors().items():
            size = prod(shape) * BYTES_PER_VALUE
            if files[-1] and size > free_bytes:
                files.append({})
                free_bytes = self.shard_bytes
            files[-1][name] = shape
            free_bytes -= size
        return files

    def write(self, folder: Path) -> list[Path]:
        """Make the folder and write every file.

        Returns:
            The files, sorted by name. A checkpoint of one file has no index, as published ones have
                none.
        """
        folder.mkdir(parents=True, exist_ok=True)
        documents = {
            "config.json": self.config(),
            "generation_config.json": {"bos_token_id": _BOS_ID, "eos_token_id": [_EOS_ID]},
            # a token a word: whoever counts a text gets at least as many from a real one
            "tokenizer.json": {
                "version": "1.0",
                "pre_tokenizer": {"type": "WhitespaceSplit"},
                "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
            },
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
        }
        for name, document in documents.items():
            (folder / name).write_text(_format_json(document))
        shards = self.shards()
        names = [
            f"model-{number:05}-of-{len(shards):05}.safetensors"
            for number in range(1, len(shards) + 1)
        ]
        if len(shards) == 1:
            names = ["model.safetensors"]
        else:
            weights = {
                tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard
            }
            index = {
                "metadata": {"total_size": self.size},
                "weight_map": dict(sorted(weights.items())),
            }
            (folder / "model.safetensors.index.json").write_text(_format_json(index))
        for name, shard in zip(names, shards, strict=True):
            with (folder / name).open("wb") as file:
                self._write_shard(file, shard)
        return sorted(path for path in folder.iterdir() if path.is_file())

    def _write_shard(self, file: BinaryIO, shard: Mapping[str, tuple[int, ...]]) -> None:
        """Write https://github.com/huggingface/safetensors: head length, head, tensors."""
        header_fields: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, shape in shard.items():
            start = end
            end = end + prod(shape) * BYTES_PER_VALUE
            header_fields[name] = {
                "dtype": "BF16",
                "shape": list(shape),
                "data_offsets": [start, end],
            }
        header = json.dumps(header_fields, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        file.write(len(header).to_bytes(8, "little") + header)
        for name, shape in shard.items():
            file.writelines(_random_weights(f"{self.seed}/{name}", prod(shape) * BYTES_PER_VALUE))


def _random_weights(seed: str, remaining_bytes: int) -> Iterator[bytes]:
    rng = random.Random(seed)  # noqa: S311 - weights are no secret
    while remaining_bytes:
        piece = bytearray(rng.randbytes(min(remaining_bytes, _CHUNK_BYTES)))
        piece[1::2] = piece[1::2].translate(_UPPER_BYTES)
        remaining_bytes -= len(piece)
        yield bytes(piece)


_BOS_ID = 256
_EOS_ID = 257


def _format_json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
