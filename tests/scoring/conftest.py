"""A real tokenizer, trained in a moment, and a scripted engine."""

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from fault_server import Endpoint
from golden_inputs import CHATML, byte_level_bpe
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from refblend.rollout.base import Generation, GenerationRequest
from refblend.scoring.templates import ScoringTemplates, load_templates

CORPUS = [
    "Rate the answer.\nAnswer: [[6+3=9.\n#### 9]]\nQuestion: [[Tom has 6 eggs.]]",
    "Work it out. End with one \\box{x}.",
    "9;6+3=9:99+\\box{1.00}\n===\n8;12-5=7:78-\\box{0.05}",
    "How many eggs are there now? Then 5 get lost. How many are left?",
] * 4


def train(chat: bool, individual_digits: bool = True) -> PreTrainedTokenizerFast:
    return byte_level_bpe(CORPUS, 420, 2048, chat, ["<tool_call>", "[CLS]"], individual_digits)


@pytest.fixture(scope="session")
def chat_tokenizer() -> PreTrainedTokenizerFast:
    return train(chat=True)


@pytest.fixture(scope="session")
def plain_tokenizer() -> PreTrainedTokenizerFast:
    return train(chat=False, individual_digits=False)


def train_words() -> PreTrainedTokenizerFast:
    """Whole words, an unknown token, and a beginning-of-sequence token; no chat template."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(CORPUS, trainers.WordLevelTrainer(special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def train_unigram() -> PreTrainedTokenizerFast:
    """Sentence pieces with a space before every piece, as Llama's tokenizer has."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<unk>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
    )
    fast.chat_template = CHATML
    return fast


@pytest.fixture(scope="session")
def all_tokenizers(chat_tokenizer, plain_tokenizer) -> dict[str, PreTrainedTokenizerFast]:
    return {
        "chat": chat_tokenizer,
        "plain": plain_tokenizer,
        "words": train_words(),
        "unigram": train_unigram(),
    }


@pytest.fixture(scope="session")
def embedded() -> ScoringTemplates:
    return load_templates("embedded")


@pytest.fixture(scope="session")
def general() -> ScoringTemplates:
    return load_templates("default")


class ScriptedEngine:
    """Answers every prompt with the text that ``answer`` gives for it."""

    def __init__(self, tokenizer, answer: Callable[[str], str], max_model_len: int = 2048) -> None:
        self.tokenizer, self.answer, self.max_model_len = tokenizer, answer, max_model_len
        self.weight_version = 0
        self.calls: list[Sequence[GenerationRequest]] = []

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        self.calls.append(requests)
        answers = []
        for request in requests:
            text = self.answer(self.tokenizer.decode(list(request.prompt_ids)))
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            reason = "stop" if len(ids) <= request.max_new_tokens else "length"
            ids = ids[: request.max_new_tokens]
            answers.append(Generation(ids, [0.0] * len(ids), reason, 0))
        return answers

    def reset_prefix_cache(self) -> None:
        pass

    def load_weights(self, weights, version) -> None:
        raise NotImplementedError

    def shutdown(self) -> None:
        pass


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def scripted():
    return ScriptedEngine
