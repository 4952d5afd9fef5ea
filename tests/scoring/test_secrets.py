"""A key leaves the process in a request's header and in no other way.

For what a run records see also ``tests/trainer/test_rollout_dump.py``.
"""

import json
import logging
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from fault_server import MODEL, Endpoint, config, judge
from pydantic import ValidationError
from typer.testing import CliRunner

from refblend import secret
from refblend.cli.main import app
from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.loading import checked
from refblend.documents import shorten, show
from refblend.errors import ConfigError, RefblendError, ScoringError
from refblend.scoring.judge import Judge, check_judge
from refblend.scoring.result import JudgeResult
from refblend.secret import mask
from refblend.trainer.trackers import TRACKERS, Tracker, TrackerContext, Trackers

KEY = 'sk-01/"it\'s\\"+Zz9='
"""With all that is spelt in another way in JSON, in Python and in an address."""
SPELT = (KEY, json.dumps(KEY)[1:-1], repr(KEY)[1:-1], KEY[:12])


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret, "_named", set())
    monkeypatch.setenv("MY_JUDGE", KEY)


def clean(text: str) -> bool:
    return not any(spelling in text for spelling in SPELT)


ECHOES = ["key echoed in a refusal", "key echoed in a failure"]


def open_judge(endpoint: Endpoint) -> Judge:
    http = {"base_url": endpoint.url, "model": MODEL, "bearer_env": "MY_JUDGE", "max_retries": 0}
    return Judge.open(engine="http", templates="embedded", score_mode="text", http=http)


@pytest.mark.parametrize("fault", ECHOES)
def test_errors(endpoint: Endpoint, fault: str) -> None:
    """``Judge.open`` and ``check`` where the server quotes the key."""
    endpoint.fail(fault)
    with pytest.raises(ScoringError, match="no access with") as caught:
        open_judge(endpoint)
    assert f"Bearer {KEY}" in endpoint.keys
    error = caught.value
    assert clean(f"{error}{error!r}{error.reason}{error.remedy}")
    assert clean("".join(traceback.format_exception(error)))


def test_warnings(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    endpoint.answer = lambda _: (200, {"choices": [{"message": {"content": f"no score, {KEY}"}}]})
    with caplog.at_level(logging.WARNING):
        open_judge(endpoint)
    assert "no score" in caplog.text
    assert clean(caplog.text)


@pytest.mark.parametrize("fault", [*ECHOES, "key echoed in an answer"])
def test_results(endpoint: Endpoint, fault: str, tmp_path: Path) -> None:
    """What goes to rollouts, tables of trackers and ``refblend score``."""
    endpoint.fail(fault)
    settings = {"bearer_env": "MY_JUDGE", "max_retries": 0}
    (result,) = judge(endpoint, settings).score(["q"], ["a"])
    assert "Bearer ***" in result.raw
    assert clean(f"{result}")
    assert (result.valid, result.score) == ((True, 0.75) if "answer" in fault else (False, 0.4))
    own = JudgeResult(0.5, True, "text", f"a judge of one's own that quotes {KEY}")
    assert clean(own.raw)
    rows, scores = tmp_path / "rows.jsonl", tmp_path / "scores.csv"
    rows.write_text(json.dumps({"question": "q", "response": "a"}))
    command = ["score", "--input", str(rows), "--output", str(scores), "--kind", "http"]
    command += ["--templates", "embedded", "--set", "score_mode=text"]
    http = (f"base_url={endpoint.url}", f"model={MODEL}", "bearer_env=MY_JUDGE", "max_retries=0")
    command += [f"--set=http.{setting}" for setting in http]
    done = CliRunner().invoke(app, command)
    assert clean(done.output + str(done.exception))
    assert ("answer" in fault) == scores.exists()
    assert not scores.exists() or clean(scores.read_text())


def test_a_tracker_whose_service_quotes_its_key(monkeypatch, tmp_path) -> None:
    class Away(Tracker):
        def __init__(self, context: TrackerContext) -> None:
            raise PermissionError(f"{KEY} is no key for https://me:hunter2@host/path")

    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setitem(TRACKERS, "away", Away)
    with pytest.raises(RefblendError, match=r"https://\*\*\*@host/path") as caught:
        Trackers(["away"], TrackerContext(tmp_path, 3))
    assert clean(str(caught.value))


def test_logs_and_tracebacks_of_a_command() -> None:
    program = (
        "import logging, os\n"
        "from refblend.secret import mask_output, read_secret\n"
        "mask_output('%(levelname)s: %(message)s'); key = read_secret('MY_JUDGE')\n"
        "logging.warning('it is %s or %r', key, key)\n"
        "raise RuntimeError(f'a bug that quotes {key}') from ValueError(key)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "WARNING: it is *** or '***'" in done.stderr
    assert "RuntimeError: a bug that quotes ***" in done.stderr
    assert clean(done.stderr + done.stdout)


@pytest.mark.parametrize("around", ["\n", "\r\n", " ", "\t"])
def test_blanks_around_a_key_are_dropped(endpoint, monkeypatch, around) -> None:
    monkeypatch.setenv("MY_JUDGE", f"{around}{KEY}{around}")
    open_judge(endpoint)
    assert endpoint.keys == {f"Bearer {KEY}"}


@pytest.mark.parametrize("within", ["\n", "\r\nX-Other: 1", " ", "\x7f", "ü"])
def test_what_cannot_be_a_key_is_refused_unseen(endpoint, monkeypatch, within) -> None:
    monkeypatch.setenv("MY_JUDGE", f"{KEY}{within}{KEY}")
    with pytest.raises(ConfigError, match=r"the key in MY_JUDGE .*holds a blank") as caught:
        open_judge(endpoint)
    assert clean("".join(traceback.format_exception(caught.value)))
    assert endpoint.bodies == []


@pytest.mark.parametrize("given", [KEY, "hf_abcdefgh12345678"])
def test_a_key_where_its_variable_belongs_is_not_repeated(given: str) -> None:
    tree = {"scoring": {"kind": "http", "http": {"base_url": "http://a/v1", "model": "m"}}}
    tree["scoring"]["http"]["bearer_env"] = given  # type: ignore[index]
    with pytest.raises(ConfigError, match="variable") as told:
        check_judge(checked(RefQualityScoreConfig, tree))
    assert given not in str(told.value)


@pytest.mark.parametrize("query", ["?api_key=hunter2", "?x=1"])
def test_an_address_with_a_query_is_refused(query: str) -> None:
    with pytest.raises(ValidationError, match="a query"):
        config(f"http://localhost:1/v1{query}")


def test_a_text_is_masked_before_it_is_cut() -> None:
    secret.read_secret("MY_JUDGE")
    assert shorten("x" * 20 + KEY, 30) == "x" * 20 + "***"
    assert clean(show("x" * 70 + KEY))
    for number in range(40):
        assert KEY[:8] not in shorten("x" * number + KEY * 3, 40)


def test_what_counts_as_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that the configuration names, and those whose names say so, if long enough."""
    monkeypatch.setenv("SOME_API_TOKEN", "0123456789ab")
    monkeypatch.setenv("OTHER_TOKEN", "12")
    monkeypatch.setenv("SOME_PATH", "/a/path/to/it")
    monkeypatch.setenv("NAMED", "abcd")
    text = "0123456789ab 12 /a/path/to/it abcd http://me:pw@host/x http://host/x"
    assert mask(text) == "*** 12 /a/path/to/it abcd http://***@host/x http://host/x"
    secret.read_secret("NAMED")
    assert "abcd" not in mask(text)
    assert mask(mask(text)) == mask(text)
    assert secret.read_secret("NOT_SET_ANYWHERE") == ""
    assert "NOT_SET_ANYWHERE" not in os.environ
