r"""The embedded tokenizer: byte-level BPE with single digits and ChatML, for transformers and vLLM.

Digits and arithmetic signs are separate tokens, so an equation is always read symbol by symbol;
``\box{`` is a single token for the same reason. Every byte is in the alphabet, so any text encodes.
"""

import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from refblend.documents import shorten
from refblend.errors import ModelError
from refblend.files import how_to_get, read_object

PAD, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_PIECES = r"\\box\{|\p{N}|[+\-*/=:]| ?\p{L}+| ?[^\s\p{L}\p{N}+\-*/=:\\]+|\\|\s+(?!\S)|\s+"
"""The box, single digits, signs, words with their space, other runs of signs, white space."""
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(
    corpus: Iterable[str], vocab_size: int, model_max_length: int, pieces: str = _PIECES
) -> PreTrainedTokenizerFast:
    """Train on texts, to ``vocab_size`` entries at most; ``pieces`` are cut off before merging."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, IM_START, IM_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=IM_END,
        additional_special_tokens=[IM_START],
        model_max_length=model_max_length,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def load_tokenizer(path: str | os.PathLike[str]) -> Any:
    """Load a tokenizer directory with transformers; ModelError if there is none."""
    path = Path(path)
    if not path.is_dir():
        raise ModelError(
            f"tokenizer directory {path} does not exist",
            how_to_get(path, "Give the directory of a model or of its tokenizer."),
        )
    try:
        if _is_plain(path):
            # AutoTokenizer would take the class of config.json's model_type (Qwen2Tokenizer), whose
            # pre-tokeniser cuts the same text into other tokens. It also takes seconds to import.
            return PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # the tokenizers library raises no narrower class
        reason = shorten(" ".join(str(error).split()), 300) or type(error).__name__
        raise ModelError(
            f"{path} has no usable tokenizer ({reason})",
            "Give a directory with tokenizer.json and tokenizer_config.json.",
        ) from error


def _is_plain(directory: Path) -> bool:
    """Whether the tokenizer declares that it needs no class of its own."""
    config = directory / "tokenizer_config.json"
    names = ("PreTrainedTokenizerFast", "TokenizersBackend")
    return (
        config.is_file()
        and (directory / "tokenizer.json").is_file()
        and read_object(config).get("tokenizer_class") in names
    )


def decode_response(tokenizer: Any, token_ids: list[int], keep_special: bool = False) -> str:
    """A response's text, with or without special tokens; never with the token that ended it."""
    if keep_special and token_ids:
        ends = tokenizer.convert_tokens_to_ids(_marks(tokenizer))
        token_ids = token_ids[: len(token_ids) - (token_ids[-1] in ends)]
    return str(tokenizer.decode(token_ids, skip_special_tokens=not keep_special))


def encode_chat(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    """Token ids of a conversation with the generation prompt; plain text without a template.

    Special tokens that a message spells out are broken up (``< |im_end|>``), so that a message
    cannot close its own turn. ModelError: the template is invalid or refuses the messages.
    """
    harmless = _without_special(tokenizer, messages)
    if getattr(tokenizer, "chat_template", None):
        try:
            encoded = tokenizer.apply_chat_template(
                harmless, tokenize=True, add_generation_prompt=True, return_dict=True
            )
        except Exception as error:  # a template is a program written by the model's authors
            reason = shorten(" ".join(str(error).split()), 300) or type(error).__name__
            raise ModelError(
                f"the chat template of {tokenizer.name_or_path} refuses the messages ({reason})",
                "Use roles and an order that it knows, or fix the tokenizer's chat_template.",
            ) from error
        return list(encoded["input_ids"])
    return _encode_plain(tokenizer, "\n".join(message["content"] for message in harmless))


def _encode_plain(tokenizer: Any, text: str) -> list[int]:
    """Ids of a text and what the tokenizer puts before it, such as a token for the beginning.

    What it puts after a text, such as an end token, would end the prompt before the response.
    """
    whole = list(tokenizer(text)["input_ids"])
    plain = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : (end := start + len(plain))] == plain:
            return whole[:end]
    raise ModelError(
        f"the tokenizer of {tokenizer.name_or_path} puts special tokens inside a text",
        "Give it a chat_template that says how a prompt is written.",
    )


def _without_special(tokenizer: Any, messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """The messages with a space after the first character of each mark that they spell out."""
    harmless = []
    for message in messages:
        content = message["content"]
        for token in _marks(tokenizer):
            if len(token) > 1:
                content = content.replace(token, f"{token[0]} {token[1:]}")
        harmless.append({**message, "content": content})
    return harmless


@functools.lru_cache  # some models have thousands of added tokens
def _marks(tokenizer: Any) -> list[str]:
    """The end token and the special tokens in brackets, those first that have a role.

    Others, such as ``!`` as padding or ``####``, are words of ordinary text.
    """
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    special = [str(token) for token in added if token.special]
    return [
        token
        for token in dict.fromkeys([*tokenizer.all_special_tokens, *special])
        if token == tokenizer.eos_token or (token[0] in "<[{(" and token[-1] in ">]})")
    ]
