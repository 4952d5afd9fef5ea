"""What the record of a run holds, and the kinds of difference between two records."""

from dataclasses import replace
from pathlib import Path

import pytest

from refblend.config import RefblendConfig, load_config
from refblend.documents import flatten
from refblend.identity import BY_CONTENT, OBSERVING, RunIdentity, reads_total_steps
from refblend.provenance import InputHashes

ROOT = Path(__file__).parents[1]
INPUTS = InputHashes(
    {"data/train.parquet": "aa", "data/sanity.parquet": "bb"}, {"models/actor": "cc"}
)


def config_of(*overrides: str) -> RefblendConfig:
    given = ["actor_rollout_ref.model.path=models/actor", "trainer.total_training_steps=10"]
    given += ["data.train_files=[data/train.parquet]", "data.val_files=[data/sanity.parquet]"]
    given += ["algorithm.ref_quality_score.scoring.model_path=models/judge"]
    return load_config([ROOT / "params" / "ppo.yaml"], [*given, *overrides])


def identity_of(*overrides: str, inputs: InputHashes = INPUTS) -> RunIdentity:
    config = config_of(*overrides)
    steps = config.trainer.total_training_steps or 1
    return RunIdentity.of(config, inputs, steps, "prompts", {"judge.parse": 1, "train": 1})


BASE = identity_of()


def changes(wanted: RunIdentity, base: RunIdentity = BASE) -> list[tuple[str, str]]:
    return [(difference.kind, str(difference)) for difference in base.differences(wanted)]


def test_the_same_run_has_no_difference() -> None:
    again = identity_of()
    assert again.digest == BASE.digest
    assert changes(again) == []
    assert list(BASE.data) != sorted(BASE.data), "their order must survive the file"
    assert RunIdentity.from_record(BASE.record()) == BASE


def test_every_key_of_the_lists_exists() -> None:
    tree = config_of().resolved()
    keys = set(flatten(tree))
    for name in (*OBSERVING, *BY_CONTENT):
        assert name in keys or any(key.startswith(f"{name}.") for key in keys), name


@pytest.mark.parametrize(
    ("key", "old", "new", "kind"),
    [
        ("trainer.test_freq", 5, 2, "observing"),
        ("trainer.drift_guard.max_drop", 0.2, 0.1, "observing"),
        ("trainer.total_training_steps", 10, 20, "observing"),
        ("ray.num_cpus", None, 8, "observing"),
        ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", 8192, 4096, "observing"),
        ("trainer.seed", 1, 2, "determining"),
        ("algorithm.gamma", 1.0, 0.9, "determining"),
        ("actor_rollout_ref.actor.fsdp_config.world_size", 1, 2, "determining"),
        ("actor_rollout_ref.rollout.val_kwargs.n", 4, 1, "determining"),
    ],
)
def test_what_determines_numbers_makes_another_run(key, old, new, kind) -> None:
    """And what only extends or observes a run leaves its identity."""
    wanted = identity_of(f"{key}={new}")
    assert changes(wanted) == [(kind, f"{key}: {old} → {new}")]
    assert (wanted.digest != BASE.digest) == (kind == "determining")


REPLAY = "algorithm.ref_quality_score={{strategy: replay, replay_file: w, replay_order: {}}}"


@pytest.mark.parametrize(
    ("override", "fixed"),
    [
        ("trainer.seed=2", False),
        ("actor_rollout_ref.actor.optim.lr_warmup_steps=5", False),
        ("actor_rollout_ref.actor.optim.lr_scheduler_type=cosine", True),
        ("critic.optim.lr_scheduler_type=cosine", False),  # no critic under GRPO
        ("algorithm.ref_quality_score.strategy=schedule", True),
        ("algorithm.ref_quality_score.strategy=cosine", False),
        (REPLAY.format("recorded"), False),
        (REPLAY.format("shuffled"), True),
        (REPLAY.format("mean"), True),
    ],
)
def test_the_number_of_steps_is_free_where_nothing_reads_it(override: str, fixed: bool) -> None:
    assert reads_total_steps(config_of(override)) == fixed
    first = identity_of(override)
    second = identity_of(override, "trainer.total_training_steps=20")
    kind = "determining" if fixed else "observing"
    assert changes(second, first) == [(kind, "trainer.total_training_steps: 10 → 20")]
    assert (first.digest == second.digest) != fixed


def test_files_count_by_what_they_hold_and_not_by_their_place() -> None:
    moved = InputHashes({"/elsewhere/a.parquet": "aa", "/elsewhere/b.parquet": "bb"}, INPUTS.models)
    wanted = identity_of("data.train_files=[/elsewhere/a.parquet]", inputs=moved)
    assert changes(wanted) == []
    assert wanted.digest == BASE.digest
    other = InputHashes(INPUTS.data | {"data/train.parquet": "dd"}, {"models/actor": "ee"})
    wanted = identity_of(inputs=other)
    assert changes(wanted) == [
        ("determining", "content of data/train.parquet: sha256 aa → dd"),
        ("determining", "content of models/actor: sha256 cc → ee"),
    ]
    assert wanted.digest != BASE.digest


def test_other_prompts_make_another_run() -> None:
    """As a chat template with a date gives them; files of other content have others anyway."""
    wanted = replace(BASE, prompts="tomorrow")
    ((kind, told),) = changes(wanted)
    assert kind == "determining"
    assert "chat template" in told
    assert wanted.digest != BASE.digest
    assert changes(wanted, replace(BASE, prompts=None)) == [], "earlier records have none"
    other = replace(wanted, data=INPUTS.data | {"data/train.parquet": "dd"})
    assert [told for _, told in changes(other)] == ["content of data/train.parquet: sha256 aa → dd"]


def test_only_the_input_that_changed_is_named() -> None:
    rewarded = [
        identity_of(inputs=InputHashes(INPUTS.data | {name: digest}, INPUTS.models))
        for name, digest in (("a.py", "11"), ("b.py", "22"), ("b.py", "11"))
    ]
    assert changes(rewarded[1], rewarded[0]) == [
        ("determining", "content of a.py: sha256 11 → 22, b.py")
    ]
    assert changes(rewarded[2], rewarded[0]) == [], "a name is no content"
    assert changes(rewarded[0]) == [("determining", "inputs: none → a.py")]
    assert changes(BASE, rewarded[0]) == [("determining", "inputs: a.py → none")]


def test_numbers_libraries_and_the_source_differ_in_their_own_ways() -> None:
    newer = replace(BASE, numerics={"judge.parse": 2, "train": 1})
    assert changes(newer) == [("numerics", "numerics judge.parse: 1 → 2")]
    assert changes(newer, replace(BASE, numerics={})) == [
        ("numerics", "numerics judge.parse: 1 → 2")
    ]
    upgraded = replace(BASE, libraries=BASE.libraries | {"torch": "9.9"})
    ((kind, told),) = changes(upgraded)
    assert (kind, told.endswith("→ 9.9")) == ("library", True)
    assert changes(upgraded, replace(BASE, libraries={})) == [], "nobody recorded them"
    edited = replace(BASE, segments=(replace(BASE.segments[0], changes="abc"),))
    assert [kind for kind, _ in changes(edited)] == ["tree"]
    assert (newer.digest != BASE.digest, upgraded.digest != BASE.digest) == (True, True)
    assert edited.digest == BASE.digest


def test_a_key_that_an_older_version_did_not_know_has_its_default() -> None:
    def without(name: str) -> RunIdentity:
        trainer = {key: value for key, value in BASE.config["trainer"].items() if key != name}
        algorithm = {key: value for key, value in BASE.config["algorithm"].items() if key != name}
        return replace(BASE, config=BASE.config | {"trainer": trainer, "algorithm": algorithm})

    assert changes(BASE, without("gamma")) == []
    told = changes(identity_of("algorithm.gamma=0.9"), without("gamma"))
    assert told == [("determining", "algorithm.gamma: 1.0 → 0.9")]
