"""Turn a GGUF file into a folder that vLLM serves. Runs inside vLLM's own environment; it imports nothing of `tandem`.

Invariant: the folder is whole or not there; it is written beside its place and moved there at the end.

    python convert.py PACKAGE OUT         PACKAGE is an installed package that holds one *.gguf file

transformers refuses to save what it loaded from a GGUF file ("quantized with GGUF ... not serializable"), so the
de-quantized weights go into a model of the same shape that never was quantized, and that one is saved.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import torch  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM  # type: ignore[import-not-found]


def main(package: str, out: Path) -> None:
    """Write config, tokenizer and safetensors."""
    file = source(package)
    where = {"gguf_file": file.name, "local_files_only": True}
    quantized = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.bfloat16, **where)
    config = quantized.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = LlamaForCausalLM(config).to(torch.bfloat16)
    plain.load_state_dict(quantized.state_dict())
    beside = out.with_name(f"{out.name}.making")
    shutil.rmtree(beside, ignore_errors=True)
    plain.save_pretrained(beside)
    AutoTokenizer.from_pretrained(file.parent, **where).save_pretrained(beside)
    shutil.rmtree(out, ignore_errors=True)
    beside.rename(out)


def source(package: str) -> Path:
    """The one GGUF file of a package; the package itself is not imported, it wants others that are not installed."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        sys.exit(f"the package {package} is not installed in {sys.prefix}")
    files = sorted(Path(found.origin).parent.rglob("*.gguf"))
    if len(files) != 1:
        sys.exit(f"{package} holds {len(files)} GGUF files, expected one")
    return files[0]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
