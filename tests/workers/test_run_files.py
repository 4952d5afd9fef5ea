"""The driver's files on the nodes: absolute paths, and a question to every other node."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refblend.errors import ResourceError
from refblend.workers import run_files
from refblend.workers.placement import Node
from refblend.workers.run_files import check_sight, glance, located

HERE, THERE = Node("id-a", "10.0.0.1", 4.0), Node("id-b", "10.0.0.2", 4.0)
ADDRESS = "ray.address=10.0.0.1:6399"
JUDGE = "algorithm.ref_quality_score.scoring"


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``blind(folder)``: node b sees nothing below the folder; None: it does not answer."""

    def install(hidden: Path | None) -> None:
        def ask(nodes: list[Node], question: Any, paths: list[str], **_: Any) -> dict[str, Any]:
            assert nodes == [THERE], "the driver's own node is not asked, the others once"
            seen = {p: f for p, f in question(paths).items() if not p.startswith(str(hidden))}
            return {} if hidden is None else {"id-b": seen}

        monkeypatch.setattr(run_files, "ask", ask)

    return install


def test_a_run_of_its_own_cluster_keeps_its_configuration(tiny_config) -> None:
    config = tiny_config("trainer.default_local_dir=run")
    assert located(config) is config


def test_relative_paths_are_the_driver_s(tiny_config, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.yaml").write_text("header: of one's own")
    config = tiny_config(
        ADDRESS,
        "trainer.default_local_dir=run",
        "actor_rollout_ref.model.path=actor",
        f"{JUDGE}.model_path=judge",
        f"{JUDGE}.templates=prompts.yaml",
    )
    found = located(config)
    assert found.actor_rollout_ref.model.path == str(tmp_path / "actor")
    scoring = found.algorithm.ref_quality_score.scoring
    assert scoring.model_path == str(tmp_path / "judge")
    assert scoring.templates == str(tmp_path / "prompts.yaml")
    assert found.trainer.default_local_dir == str(tmp_path / "run")
    assert config.actor_rollout_ref.model.path == "actor"


def test_names_of_templates_stay_names(tiny_config) -> None:
    scoring = located(tiny_config(ADDRESS)).algorithm.ref_quality_score.scoring
    assert scoring.templates == tiny_config().algorithm.ref_quality_score.scoring.templates


def test_each_other_node_is_asked_what_it_sees(tiny_config, tmp_path: Path, blind) -> None:
    run = tmp_path / "run"
    run.mkdir()
    config = located(tiny_config(ADDRESS, f"trainer.default_local_dir={run}"))
    blind(tmp_path / "elsewhere")
    check_sight(config, [HERE, THERE, THERE], "id-a")
    blind(run)
    with pytest.raises(ResourceError) as caught:
        check_sight(config, [HERE, THERE, THERE], "id-a")
    assert caught.value.reason == f"node 10.0.0.2 does not see the same {run} as the driver"
    blind(Path(config.actor_rollout_ref.model.path))
    with pytest.raises(ResourceError, match="does not see the same") as caught:
        check_sight(config, [THERE], "id-a")
    assert config.actor_rollout_ref.model.path in caught.value.reason
    blind(None)
    with pytest.raises(ResourceError, match=r"node 10\.0\.0\.2 does not answer within"):
        check_sight(config, [THERE], "id-a")
    assert list(run.iterdir()) == []


def test_the_driver_s_own_machine_is_not_asked(tiny_config, monkeypatch) -> None:
    monkeypatch.setattr(run_files, "ask", lambda *_, **__: pytest.fail("asked"))
    check_sight(tiny_config(ADDRESS, "trainer.default_local_dir=none"), [HERE, HERE], "id-a")


def test_a_glance_sees_other_names_sizes_and_ends(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "more").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "more" / "weights").write_bytes(bytes(range(256)) * 3)
    seen = [glance([str(model), str(tmp_path / "none")])]
    assert list(seen[0]) == [str(model)]
    (model / "more" / "weights").write_bytes(bytes(range(256)) * 2 + bytes(256))
    seen.append(glance([str(model)]))
    (model / "more" / "weights").write_bytes(bytes(range(256)) * 2)
    seen.append(glance([str(model)]))
    (model / "config.json").rename(model / "config2.json")
    seen.append(glance([str(model)]))
    assert len({found[str(model)] for found in seen}) == 4
