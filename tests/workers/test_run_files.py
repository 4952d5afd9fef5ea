"""The driver's files on the nodes: absolute paths, a question to every other node, what is sent.

What is sent lies in a folder per node here, and is moved without Ray.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refblend.errors import ResourceError
from refblend.workers import run_files
from refblend.workers.placement import Node
from refblend.workers.run_files import RunFiles, glance, located

HERE, THERE = Node("id-a", "10.0.0.1", 4.0), Node("id-b", "10.0.0.2", 4.0)
ADDRESS = "ray.address=10.0.0.1:6399"
JUDGE = "algorithm.ref_quality_score.scoring"


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``blind(folder)``: node b sees nothing below the folder; None: it does not answer."""

    def install(hidden: Path | None) -> None:
        def ask(nodes: list[Node], question: Any, paths: list[str], **_: Any) -> dict[str, Any]:
            assert nodes == [THERE], "the driver's own node is not asked, the others once"
            if hidden is None:
                return {}
            seen = {p: f for p, f in question(paths).items() if not p.startswith(str(hidden))}
            return {"id-b": seen}

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


@pytest.fixture
def disk_of_b(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where node b keeps what is sent to it."""
    disk = tmp_path / "b"

    def send(path: Path, node: Node) -> str:
        assert node is THERE
        target = disk / glance([str(path)])[str(path)]
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)
        else:
            target.mkdir(parents=True)
            shutil.copy(path, target)
        return str(target)

    def outgoing(node: Node) -> str:
        assert node is THERE
        (disk / "out").mkdir(parents=True)
        return str(disk / "out")

    monkeypatch.setattr(run_files, "send", send)
    monkeypatch.setattr(run_files, "outgoing", outgoing)
    monkeypatch.setattr(run_files, "fetch", lambda there, _, to: shutil.move(there, to))
    monkeypatch.setattr(run_files, "forget", lambda there, _: shutil.rmtree(there))
    return disk


def test_a_node_that_sees_everything_gets_nothing(tiny_config, tmp_path: Path, blind) -> None:
    config = tiny_config(ADDRESS, f"trainer.default_local_dir={tmp_path}")
    blind(tmp_path / "elsewhere")
    files = RunFiles(config, [HERE, THERE, THERE], "id-a")
    assert files.config_for(THERE) == files.config_for(HERE) == located(config)
    assert files.outbox(THERE, tmp_path / "actor") == str(tmp_path / "actor")
    with files.inboxes([THERE, HERE], tmp_path) as boxes:
        assert boxes == [str(tmp_path)] * 2
    assert not list(tmp_path.glob(".refblend-*")), "the probe is gone"


def test_every_node_gets_the_paths_that_it_can_read(
    tiny_config, tmp_path: Path, blind, disk_of_b: Path
) -> None:
    run, prompts = tmp_path / "run", tmp_path / "prompts.yaml"
    run.mkdir()
    prompts.write_text("header: of one's own")
    config = tiny_config(
        ADDRESS, f"trainer.default_local_dir={run}", f"{JUDGE}.templates={prompts}"
    )
    model = Path(config.actor_rollout_ref.model.path)
    blind(model)
    there = RunFiles(config, [HERE, THERE], "id-a").config_for(THERE)
    sent = Path(there.actor_rollout_ref.model.path)
    assert sent.is_relative_to(disk_of_b)
    assert glance([str(sent)])[str(sent)] == glance([str(model)])[str(model)]
    assert there.algorithm.ref_quality_score.scoring.templates == str(prompts)
    blind(prompts)
    files = RunFiles(config, [HERE, THERE], "id-a")
    there = files.config_for(THERE)
    assert there.actor_rollout_ref.model.path == str(model)
    templates = Path(there.algorithm.ref_quality_score.scoring.templates)
    assert templates.is_relative_to(disk_of_b)
    assert templates.read_text() == "header: of one's own"
    assert files.config_for(HERE) == located(config)
    assert list(run.iterdir()) == []


def test_a_checkpoint_comes_back_and_goes_there(
    tiny_config, tmp_path: Path, blind, disk_of_b: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    config = tiny_config(ADDRESS, f"trainer.default_local_dir={run}")
    blind(run)
    files = RunFiles(config, [HERE, THERE], "id-a")
    assert files.outbox(HERE, run / "critic") == str(run / "critic")
    outbox = files.outbox(THERE, run / "actor")
    assert Path(outbox).is_relative_to(disk_of_b)
    (Path(outbox) / "model").write_text("weights")
    files.collect(THERE, outbox, run / "actor")
    assert (run / "actor" / "model").read_text() == "weights"
    with files.inboxes([THERE, HERE, THERE], run / "actor") as boxes:
        assert boxes[1] == str(run / "actor")
        assert boxes[0] == boxes[2]
        assert Path(boxes[0]).is_relative_to(disk_of_b)
        assert (Path(boxes[0]) / "model").read_text() == "weights"
    assert not Path(boxes[0]).exists()
    with pytest.raises(OSError, match="unreadable"), files.inboxes([THERE], run / "actor") as boxes:
        raise OSError("unreadable")
    assert not Path(boxes[0]).exists(), "removed there, too, where loading fails"


def test_with_a_shared_file_system_every_node_must_see_everything(
    tiny_config, tmp_path: Path, blind
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shared = "ray.shared_filesystem=true"
    config = tiny_config(ADDRESS, shared, f"trainer.default_local_dir={run}")
    blind(tmp_path / "elsewhere")
    RunFiles(config, [HERE, THERE], "id-a")
    blind(run)
    with pytest.raises(ResourceError, match="does not see the same") as caught:
        RunFiles(config, [HERE, THERE], "id-a")
    assert f"node 10.0.0.2 does not see the same {run} as the driver" in caught.value.reason
    blind(Path(config.actor_rollout_ref.model.path))
    with pytest.raises(ResourceError, match="does not see the same") as caught:
        RunFiles(config, [THERE], "id-a")
    assert config.actor_rollout_ref.model.path in caught.value.reason


def test_a_node_that_does_not_answer_is_named(tiny_config, tmp_path: Path, blind) -> None:
    blind(None)
    with pytest.raises(ResourceError, match=r"node 10\.0\.0\.2 does not answer within"):
        RunFiles(tiny_config(ADDRESS, f"trainer.default_local_dir={tmp_path}"), [THERE], "id-a")


def test_the_driver_s_own_machine_is_not_asked(tiny_config, monkeypatch) -> None:
    monkeypatch.setattr(run_files, "ask", lambda *_, **__: pytest.fail("asked"))
    config = tiny_config(ADDRESS, "trainer.default_local_dir=none")
    files = RunFiles(config, [HERE, HERE], "id-a")
    assert files.config_for(HERE) == located(config)


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
