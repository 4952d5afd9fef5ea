"""The identity of a run: configuration, data, models and code, and how two identities differ.

A directory's record is compared key by key with the requested run. There are three kinds of
difference: what only extends or observes a run, what determines its numbers, and the code.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from refblend.config import RefblendConfig
from refblend.config.scoring import SCORING_KEY
from refblend.documents import flatten, show
from refblend.files import read_json
from refblend.numeric_code import PACKAGE, code_hash
from refblend.ppo.weights import STRATEGIES
from refblend.provenance import InputHashes, git_state

IDENTITY_NAME = "identity.json"

_RANKS = ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic")
_ENGINES = ("actor_rollout_ref.rollout", SCORING_KEY)
_OF_RANKS = "fsdp_config.num_gpus_per_worker fsdp_config.num_threads node"
_OF_ENGINES = "gpu_memory_utilization kv_cache_memory_mb node num_engines num_gpus num_threads"
_OF_TRAINER = (
    "country_iso_code default_local_dir drift_guard energy experiment_name keep_best logger "
    "max_ckpt_to_keep max_restarts profile_steps project_name resume_from_path resume_mode "
    "rollout_dump_freq save_freq stop_grace_s strict_code test_freq total_epochs "
    "total_training_steps val_before_train worker_timeout_s"
)
OBSERVING = (
    *(f"{section}.{key}" for section in _RANKS for key in _OF_RANKS.split()),
    *(f"{section}.{key}" for section in _ENGINES for key in _OF_ENGINES.split()),
    *(f"trainer.{key}" for key in _OF_TRAINER.split()),
    "ray",
)
"""Keys, and sections, that leave the course of a run as it is up to rounding: how long it goes on,
what it records, and how much of the machine each process gets. The number of steps is compared on
its own (:attr:`RunIdentity.total_steps`)."""

BY_CONTENT = (
    "actor_rollout_ref.model.path",
    "algorithm.ref_quality_score.scoring.model_path",
    "algorithm.ref_quality_score.scoring.templates",
    "data.sanity_files",
    "data.train_files",
    "data.val_files",
)
"""Keys that name files: what these hold is compared, not where they lie."""

TOTAL_STEPS = "trainer.total_training_steps"


@dataclass(frozen=True)
class Difference:
    """One key whose values differ between a directory's record and the requested run."""

    key: str
    old: Any
    new: Any
    kind: Literal["observing", "determining", "code"]

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.old)} → {_shown(self.new)}"


@dataclass(frozen=True)
class RunIdentity:
    """The record of a run: everything that its numbers depend on."""

    config: dict[str, Any]
    """The resolved configuration as JSON values."""
    data: dict[str, str]
    models: dict[str, str]
    code: str
    """Hash of the code of training (:mod:`refblend.numeric_code`)."""
    commit: str | None
    total_steps: int
    fixed_length: bool
    """Whether numbers depend on the number of steps, which can then not be changed."""

    @classmethod
    def of(cls, config: RefblendConfig, inputs: InputHashes, total_steps: int) -> "RunIdentity":
        """The identity of the run that this configuration asks for."""
        return cls(
            config=config.resolved(),
            data=inputs.data,
            models=inputs.models,
            code=code_hash("train"),
            commit=_commit(),
            total_steps=total_steps,
            fixed_length=reads_total_steps(config),
        )

    @classmethod
    def from_record(cls, record: Any) -> "RunIdentity":
        """The identity in an ``identity.json``; ValueError if it is not one of ours."""
        try:
            values = {field.name: record[field.name] for field in fields(cls)}
            values |= {name: dict(map(_pair, values[name])) for name in ("data", "models")}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{error} is missing or of another type") from None
        wanted = {"config": dict, "code": str, "total_steps": int, "fixed_length": bool}
        for name, kind in wanted.items():
            if type(values[name]) is not kind:
                raise ValueError(f"{name} is missing or of another type")
        return cls(**values)

    def record(self) -> dict[str, Any]:
        """The content of ``identity.json``; files are pairs of path and hash, in order."""
        files = {"data": list(self.data.items()), "models": list(self.models.items())}
        return {"identity": self.digest, **asdict(self), **files}

    @property
    def digest(self) -> str:
        """One hash over what determines the run's numbers; paths and times do not count."""
        parts = {
            "config": self._determining(),
            "data": list(self.data.values()),
            "models": list(self.models.values()),
            "code": self.code,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def differences(self, wanted: "RunIdentity") -> list[Difference]:
        """The differences of the requested run; a key of only one takes its default."""
        found = [
            Difference(key, old, new, "observing" if _is_observing(key) else "determining")
            for key, old, new in _changed_leaves(self.config, wanted.config)
            if key not in BY_CONTENT and key != TOTAL_STEPS
        ]
        for old, new in ((self.data, wanted.data), (self.models, wanted.models)):
            if list(old.values()) != list(new.values()):
                found += _changed_files(old, new)
        if self.total_steps != wanted.total_steps:
            fixed = self.fixed_length or wanted.fixed_length
            kind: Literal["observing", "determining"] = "determining" if fixed else "observing"
            found.append(Difference(TOTAL_STEPS, self.total_steps, wanted.total_steps, kind))
        if self.code != wanted.code:
            old_code, new_code = (f"{r.code[:12]} (commit {r.commit})" for r in (self, wanted))
            found.append(Difference("code", old_code, new_code, "code"))
        return found

    def _determining(self) -> dict[str, Any]:
        leaves = {
            key: value
            for key, value in flatten(self.config).items()
            if not _is_observing(key) and key not in BY_CONTENT
        }
        return leaves | ({TOTAL_STEPS: self.total_steps} if self.fixed_length else {})


def reads_total_steps(config: RefblendConfig) -> bool:
    """Whether a step's numbers depend on how many steps the run has: a decaying learning rate, a
    blending strategy that follows the schedule, or replayed weights that are shuffled or averaged
    over the steps."""
    optimizers = [config.actor_rollout_ref.actor.optim]
    if config.use_critic:
        optimizers.append(config.critic.optim)
    quality = config.algorithm.ref_quality_score
    rearranged = quality.strategy == "replay" and quality.replay_order != "recorded"
    follows = quality.enable and (rearranged or STRATEGIES[quality.strategy].reads_total_steps)
    return follows or any(optim.lr_scheduler_type != "constant" for optim in optimizers)


def read_identity(path: Path) -> str | None:
    """Digest recorded in a run directory; None when it is absent or unreadable."""
    try:
        recorded = read_json(path / IDENTITY_NAME)["identity"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return recorded if isinstance(recorded, str) else None


def _pair(value: Any) -> tuple[str, str]:
    path, digest = value
    if not isinstance(path, str) or not isinstance(digest, str):
        raise TypeError("a file")
    return path, digest


def _commit() -> str | None:
    """The commit of the source, and whether it has changes since; None without git."""
    state = git_state(PACKAGE)
    return state["commit"] and f"{state['commit'][:10]}{' with changes' if state['dirty'] else ''}"


def _is_observing(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in OBSERVING)


def _changed_leaves(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterable[tuple[str, Any, Any]]:
    before, after = flatten(old), flatten(new)
    for key in sorted(before.keys() | after.keys()):
        # Another version of refblend may know more keys, or fewer.
        first, second = (leaves.get(key, _default(key)) for leaves in (before, after))
        if first != second:
            yield key, first, second


def _default(key: str) -> Any:
    """The configuration's default of a dotted key as a JSON value; None for an unknown one."""
    model: Any = RefblendConfig
    field = None
    for part in key.split("."):
        fields_of = model.model_fields if _is_section(model) else {}
        field = fields_of.get(part)
        model = field.annotation if field else None
    if field is None or field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return None
    return json.loads(json.dumps(value, default=str))


def _is_section(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)


def _changed_files(old: Mapping[str, str], new: Mapping[str, str]) -> list[Difference]:
    """Inputs whose content, name or number differs."""
    if list(old) != list(new):
        return [Difference("inputs", ", ".join(old), ", ".join(new), "determining")]
    return [
        Difference(f"content of {path}", f"sha256 {old[path][:12]}", new[path][:12], "determining")
        for path in old
        if old[path] != new[path]
    ]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else show(value)
