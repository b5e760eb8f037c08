"""Turns a GGUF file into a folder for vLLM, in vLLM's environment; imports nothing of `tandem`.

Invariant: the folder is whole or not there. The program writes it next to its place and moves it
there at the end.

    python convert.py PACKAGE OUT         PACKAGE is an installed package that holds one *.gguf file

transformers refuses to save a model from a GGUF file ("quantized with GGUF ... not serializable").
So the program puts the de-quantized weights into a model of the same shape that never was
quantized, and saves that one.
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
    gguf_file = find_gguf_file(package)
    load_options = {"gguf_file": gguf_file.name, "local_files_only": True}
    quantized_model = AutoModelForCausalLM.from_pretrained(
        gguf_file.parent, dtype=torch.bfloat16, **load_options
    )
    config = quantized_model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    unquantized_model = LlamaForCausalLM(config).to(torch.bfloat16)
    unquantized_model.load_state_dict(quantized_model.state_dict())
    temporary_folder = out.with_name(f"{out.name}.making")
    shutil.rmtree(temporary_folder, ignore_errors=True)
    unquantized_model.save_pretrained(temporary_folder)
    AutoTokenizer.from_pretrained(gguf_file.parent, **load_options).save_pretrained(
        temporary_folder
    )
    shutil.rmtree(out, ignore_errors=True)
    temporary_folder.rename(out)


def find_gguf_file(package: str) -> Path:
    """Return a package's one GGUF file, without an import, which needs uninstalled packages."""
    package_spec = importlib.util.find_spec(package)
    if package_spec is None or package_spec.origin is None:
        sys.exit(f"the package {package} is not installed in {sys.prefix}")
    files = sorted(Path(package_spec.origin).parent.rglob("*.gguf"))
    if len(files) != 1:
        sys.exit(f"{package} holds {len(files)} GGUF files, expected one")
    return files[0]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
