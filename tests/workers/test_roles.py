"""The table of roles: what it names exists, and what derives from it holds together."""

import importlib
from pathlib import Path

import pytest

from refblend.workers.roles import JUDGE, ROLES, Role, value_of, with_absolute_paths

SCORING = "algorithm.ref_quality_score.scoring"


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_the_worker_and_the_keys_of_a_role_exist(role: Role, tiny_config) -> None:
    module, name = role.worker.split(":")
    worker = getattr(importlib.import_module(module), name)
    assert callable(worker)
    tree = tiny_config().resolved()
    for key in (role.section, role.gpu_key, role.memory_key):
        value = tree
        for part in key.split("."):
            value = value[part]
    if role.learns:
        assert all(hasattr(worker, method) for method in ("save", "load"))
    if role.remembers:
        assert hasattr(worker, "begin_run")


def test_only_what_learns_is_saved_and_cannot_be_replaced() -> None:
    assert {name for name, role in ROLES.items() if role.learns} == {"actor", "critic"}


def test_the_judge_alone_can_have_a_deadline_of_its_own(tiny_config) -> None:
    config = tiny_config(f"{SCORING}.timeout_s=7")
    assert {name: role.deadline(config) for name, role in ROLES.items()} == {
        "actor": None,
        "rollout": None,
        "critic": None,
        "ref": None,
        "judge": 7,
    }
    assert JUDGE.deadline(tiny_config()) is None


def test_there_are_as_many_ranks_and_engines_as_asked_for(tiny_config) -> None:
    config = tiny_config(
        "actor_rollout_ref.actor.fsdp_config.world_size=3",
        "actor_rollout_ref.ref.fsdp_config.world_size=2",
        "actor_rollout_ref.rollout.num_engines=4",
    )
    sizes = {name: role.processes(config).count for name, role in ROLES.items()}
    assert sizes == {"actor": 3, "rollout": 4, "critic": 1, "ref": 2, "judge": 1}
    engines = [name for name, role in ROLES.items() if role.engine_model is not None]
    assert engines == ["rollout", "judge"]


def test_on_an_existing_cluster_relative_paths_are_the_driver_s(
    tiny_config, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.yaml").write_text("header: of one's own")
    relative = ["actor_rollout_ref.model.path=actor", "trainer.default_local_dir=run"]
    relative += [f"{SCORING}.model_path=judge", f"{SCORING}.templates=prompts.yaml"]
    own = tiny_config(*relative)
    assert with_absolute_paths(own) is own
    found = with_absolute_paths(tiny_config(*relative, "ray.address=10.0.0.1:6399"))
    for key in (override.partition("=")[0] for override in relative):
        assert value_of(found, key) == str(tmp_path / value_of(own, key))
