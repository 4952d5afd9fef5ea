"""The configuration tree, its loading from YAML and dotted overrides, and its JSON schema."""

from refblend.config.loading import load_config, parse_override
from refblend.config.root import RefblendConfig

__all__ = ["RefblendConfig", "load_config", "parse_override"]
