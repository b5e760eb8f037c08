"""An experiment of one variant: what `tandem simulate` does whatever it serves, it does with one
server too."""

from __future__ import annotations

from pathlib import Path

import yaml
from bucket_specs import folders

ROOT = Path(__file__).resolve().parents[2]
VARIANT = "qwen-vllm"


def lone(folder: Path) -> list[str]:
    """Declare it below a folder; the flags that name it."""
    for name in ("environments", "experiments"):
        (folder / name).mkdir()
    document = yaml.safe_load((ROOT / "experiments" / "post.yaml").read_text())
    document["variants"] = [
        variant for variant in document["variants"] if variant["name"] == VARIANT
    ]
    (folder / "experiments" / "lone.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return ["--experiment", "lone", *folders(folder)]
