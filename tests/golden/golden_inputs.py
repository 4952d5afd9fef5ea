"""Inputs of the golden cases that no code of refblend makes: tokenizer, models and prompt files.

A golden must move only with the code that it watches, so its inputs come from the libraries alone.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "Rate the answer. Work it out. End with one \\box{x}.",
    "Answer: [[6+3=9.\n#### 9]]\nQuestion: [[Tom has 6 eggs. Ann gives 3 more.]]",
    "How many eggs are there now? Then 5 get lost. How many are left?",
] * 4
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1024,
    "initializer_range": 0.1,
    "tie_word_embeddings": True,
}


def question(a: int, b: int) -> str:
    """The only kind of problem."""
    return f"{a}+{b}?"


def solution(a: int, b: int) -> str:
    """Its gold solution."""
    return f"{a}+{b}={a + b}\n#### {a + b}"


def hash_of(value: Any) -> str:
    """A short hash of plain values."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hash_of_weights(model: Path) -> str:
    """A short hash of the tensors in a model directory; the files' other bytes do not count."""
    from safetensors import safe_open

    digest = hashlib.sha256()
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in sorted(tensors.keys()):
                tensor = tensors.get_tensor(name)
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.contiguous().view(-1).float().numpy().tobytes())
    return digest.hexdigest()[:16]


def byte_level_bpe(
    corpus: Sequence[str],
    size: int,
    max_length: int,
    chat: bool,
    more: Sequence[str] = (),
    individual_digits: bool = True,
) -> Any:
    """A tokenizer with ChatML's special tokens and ``more``; with its template where ``chat``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=individual_digits)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(False)])
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", *more],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>", *more],
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
    if chat:
        fast.chat_template = CHATML
    return fast


class Inputs:
    """Everything is made when a case first asks for it, below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def tokenizer(self) -> Any:
        """A byte-level BPE of about 300 entries with ChatML."""
        return byte_level_bpe(CORPUS, 320, max_length=1024, chat=True)

    @cached_property
    def tokenizer_dir(self) -> Path:
        """The same in a directory."""
        path = self.folder / "tokenizer"
        self.tokenizer.save_pretrained(path)
        return path

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    @cached_property
    def actor(self) -> Path:
        """Solves some of the problems."""
        import random

        draw = random.Random(1)

        def example() -> tuple[list[int], list[int]]:
            a, b = draw.randrange(5), draw.randrange(5)
            chat = f"<|im_start|>user\n{question(a, b)}<|im_end|>\n<|im_start|>assistant\n"
            right = draw.random() < 0.7
            text = solution(a, b) if right else solution(a, b + 1 + draw.randrange(3))
            return self.encode(chat), self.encode(text)

        return self._trained("actor", example, steps=100, batch=16)

    @cached_property
    def judge(self) -> Path:
        r"""Writes a guessed ``\box{0.d}`` after any prompt; a token follows from the one before.

        So its answer is readable however long the prompt is; the digit's probabilities depend on
        every token of it.
        """
        import random

        draw, size = random.Random(2), len(self.tokenizer)

        def example() -> tuple[list[int], list[int]]:
            noise = [draw.randrange(3, size) for _ in range(20)]
            opening = self.encode("<|im_end|>\n<|im_start|>assistant\n")
            return noise + opening, self.encode(f"\\box{{0.{draw.randrange(1, 10)}}}")

        return self._trained("judge", example, steps=120, batch=16)

    def _trained(self, name: str, example: Any, steps: int, batch: int) -> Path:
        import torch
        from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

        tokenizer, path = self.tokenizer, self.folder / name
        end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        config = Qwen2Config(
            vocab_size=len(tokenizer),
            eos_token_id=end,
            pad_token_id=pad,
            bos_token_id=None,
            dtype="float32",
            **SHAPE,
        )
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(len(name))
            model = Qwen2ForCausalLM(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
        for _ in range(steps):
            pairs = [example() for _ in range(batch)]
            longest = max(len(p) + len(a) + 1 for p, a in pairs)
            rows = [[*p, *a, end] for p, a in pairs]
            ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
            labels = torch.full_like(ids, -100)
            for number, (prompt, answer) in enumerate(pairs):
                answered = slice(len(prompt), len(prompt) + len(answer) + 1)
                labels[number, answered] = ids[number, answered]
            model(input_ids=ids, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.set_num_threads(threads)
        model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=pad)
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
        return path

    @cached_property
    def prompts(self) -> Path:
        """24 problems in verl's schema."""
        rows = [(a, b) for a in range(5) for b in range(5)][:24]
        path = self.folder / "prompts.jsonl"
        lines = (json.dumps(prompt_row(i, a, b)) for i, (a, b) in enumerate(rows))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


def prompt_row(index: int, a: int, b: int) -> Mapping[str, Any]:
    """A row in verl's schema."""
    text = question(a, b)
    return {
        "data_source": "refblend/arithmetic",
        "prompt": [{"role": "user", "content": text}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(a + b)},
        "extra_info": {"index": index, "question": text, "answer": solution(a, b), "n_steps": 1},
    }
