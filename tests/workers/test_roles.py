"""The table of roles: what it names exists, and what derives from it holds together."""

import importlib
from pathlib import Path

import pytest

from refblend.workers.roles import JUDGE, ROLES, value_of, with_absolute_paths

SCORING = "algorithm.ref_quality_score.scoring"


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_the_worker_and_the_keys_of_a_role_exist(role, tiny_config):
    module, name = role.worker.split(":")
    worker = getattr(importlib.import_module(module), name)
    assert callable(worker)
    tree = tiny_config().resolved()
    to_lower = [word.strip(",;") for word in role.lower.split() if "." in word]
    assert to_lower
    for key in (role.section, role.gpu_key, role.memory_key, *to_lower):
        value = tree
        for part in key.split("."):
            value = value[part]
    if role.learns:
        assert all(hasattr(worker, method) for method in ("save", "load"))
    if role.remembers:
        assert hasattr(worker, "begin_run")


def test_the_judge_alone_can_have_a_deadline_of_its_own(tiny_config):
    config = tiny_config(f"{SCORING}.timeout_s=7")
    deadlines = {name: role.deadline(config) for name, role in ROLES.items()}
    assert deadlines == dict.fromkeys(ROLES) | {"judge": 7}
    assert JUDGE.deadline(tiny_config()) is None


def test_on_an_existing_cluster_relative_paths_are_the_driver_s(tiny_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("prompts.yaml").write_text("header: of one's own")
    relative = ["actor_rollout_ref.model.path=actor", "trainer.default_local_dir=run"]
    relative += [f"{SCORING}.model_path=judge", f"{SCORING}.templates=prompts.yaml"]
    own = tiny_config(*relative)
    assert with_absolute_paths(own) is own
    found = with_absolute_paths(tiny_config(*relative, "ray.address=10.0.0.1:6399"))
    for key in (override.partition("=")[0] for override in relative):
        assert value_of(found, key) == str(tmp_path / value_of(own, key))


def test_the_path_of_an_idle_judge_stays_the_actor_s(tiny_config, tmp_path, monkeypatch):
    """With ``kind: reference`` the two must be the same."""
    monkeypatch.chdir(tmp_path)
    actor = ["actor_rollout_ref.model.path=actor", "ray.address=10.0.0.1:6399"]
    judge = [f"{SCORING}.kind=reference", f"{SCORING}.model_path=null"]
    for idle in ("algorithm.ref_quality_score.enable=false", f"{SCORING}.control=random"):
        found = with_absolute_paths(tiny_config(*actor, *judge, idle))
        assert value_of(found, f"{SCORING}.model_path") == str(tmp_path / "actor")
