"""A model's name where only a label fits."""

from __future__ import annotations


def model_slug(model_id: str) -> str:
    """Return a model's name as a Kubernetes label: `Qwen/Qwen3-1.7B` is `qwen3-1-7b`."""
    name = model_id.rpartition("/")[2].lower()
    return "".join(character if character.isalnum() else "-" for character in name).strip("-")
