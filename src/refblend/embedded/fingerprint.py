"""One hash of everything a trained model depends on: old states never mix with new recipes."""

import hashlib
import json
from typing import Any

from refblend.embedded.recipe import EmbeddedConfig

_PARTS: dict[str, tuple[str, ...]] = {
    "actor_clean": ("data.difficulty", "data.long_share", "architecture", "actor.clean"),
    "actor": ("data.difficulty", "data.long_share", "architecture", "actor"),
    "judge": (
        "data.difficulty",
        "data.long_share",
        "architecture",
        "actor",
        "judge_data",
        "judge",
    ),
}


def fingerprint_of(recipe: EmbeddedConfig, tokenizer: Any, what: str, *more: str) -> str:
    """Hash of the tokenizer and of the recipe's parts that ``what`` is made from, and ``more``."""
    values = recipe.model_dump(mode="json")
    parts: dict[str, Any] = {"actor.seed": values["actor"]["seed"]}
    for name in _PARTS[what]:
        value: Any = values
        for key in name.split("."):
            value = value[key]
        parts[name] = value
    digest = hashlib.sha256(json.dumps([what, parts, more], sort_keys=True).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    return digest.hexdigest()[:32]
