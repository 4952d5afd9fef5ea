"""The fixed corpus: labels that are true by construction, lengths that bite, clear errors."""

from pathlib import Path

import pytest

from refblend.data.schema import PromptRow
from refblend.embedded.judge_data import Pair, write_pairs
from refblend.embedded.problems import Difficulty, generate_problems
from refblend.errors import DataError
from refblend.scoring.measure.corpus import (
    KINDS,
    corpus_from_rows,
    read_corpus,
    read_responses,
    wrong_solution,
)
from refblend.seeding import derive_generator


def row(index: int, solution: str = "13-10=3. 3+38=41.\n#### 41", answer: str = "41") -> PromptRow:
    return PromptRow(index, "s", [], f"question {index}", answer, solution, {"n_steps": 2})


def test_every_problem_in_every_kind() -> None:
    corpus = corpus_from_rows([row(1), row(2), row(3, "The answer is \\boxed{41}.")])
    assert len(corpus) == 2 * len(KINDS)
    assert corpus["difficulty"].eq(2).all()
    for record in corpus.to_dict("records"):
        final = record["response"].rpartition("#### ")[2]
        assert (final == "41") == (record["label"] == 1)
    by_kind = corpus.groupby("kind")["response"].apply(lambda s: s.str.len().mean())
    assert by_kind["right"] < by_kind["right_long"] < by_kind["right_very_long"]
    assert by_kind["right_very_long"] > 4000


def test_wrong_answers_agree_with_their_last_equation() -> None:
    for seed in range(20):
        text = wrong_solution("1+1=2. 39+2=41.\n#### 41", "41", derive_generator(seed))
        other = text.rpartition("#### ")[2]
        assert other != "41"
        assert text == f"1+1=2. 39+2={other}.\n#### {other}"
    assert wrong_solution("", "none", derive_generator(0)) == "#### unknown"
    assert "#### 0" not in wrong_solution("#### 0", "0", derive_generator(1))


def test_judge_pairs_become_a_corpus(tmp_path: Path) -> None:
    problem = generate_problems("test", 1, 0, Difficulty(), 0.0)[0]
    pairs = [Pair(problem, problem.solution, "gold"), Pair(problem, "", "corruption")]
    write_pairs(tmp_path / "pairs.parquet", pairs)
    corpus = read_corpus(tmp_path / "pairs.parquet")
    assert corpus["label"].tolist() == [1, 0]
    assert corpus["target"].tolist() == [1.0, 0.05]
    assert corpus["worked"].tolist() == [True, False]
    assert corpus["difficulty"].tolist() == [len(problem.steps)] * 2
    assert corpus["source"].tolist() == ["gold", "corruption"]


def test_a_users_corpus(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "q", "response": "1+1=2", "label": true, "id": 7}')
    corpus = read_corpus(path)
    assert (corpus["label"].sum(), corpus["worked"].all(), corpus["id"][0]) == (1, True, 7)
    path.write_text('{"question": "q", "response": "a", "label": 0.7}')
    with pytest.raises(DataError, match=r"mine\.jsonl: label of row 0 is neither 0 nor 1"):
        read_corpus(path)


def test_every_column_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "q", "response": "a", "label": 2, "target": 1.5, "length": []}')
    with pytest.raises(DataError) as caught:
        read_corpus(path)
    for column in ("label", "target", "length"):
        assert f"{column} of row 0 is n" in str(caught.value)
    path.write_text('{"question": 1, "response": "a", "label": 1}')
    with pytest.raises(DataError, match="question of row 0 is n"):
        read_corpus(path)


def test_read_responses(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(
        '{"question": "q", "response": "a", "id": 7}\n\n{"question": "", "response": ""}'
    )
    frame = read_responses(path)
    assert frame["response"].tolist() == ["a", ""]
    frame.to_parquet(tmp_path / "r.parquet")
    assert read_responses(tmp_path / "r.parquet")["question"].tolist() == ["q", ""]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no rows"),
        ('{"question": "q"}', "missing response"),
        ('{"question": "q", "response": "a"}\n{"question": "q"}', "response of row 1 is not text"),
        ('{"question": "q"', "line 1 is not JSON"),
    ],
)
def test_unusable_files(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read_responses(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
