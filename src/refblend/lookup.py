"""Functions that a user names in the configuration; errors name the ``key`` that names them.

``package.module:function`` names an importable one; a reward function may also be in a Python file,
as with verl's ``custom_reward_function.path``.
"""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from refblend.config import RefblendConfig
from refblend.errors import ConfigError
from refblend.ppo.choices import ADVANTAGES
from refblend.ppo.weights import STRATEGIES, StepContext, Strategy, WeightParams
from refblend.provenance import PACKAGE

STRATEGY_KEY = "algorithm.ref_quality_score.strategy"
ADVANTAGE_KEY = "algorithm.adv_estimator"

if TYPE_CHECKING:
    from torch import Tensor

    from refblend.ppo.estimators import AdvantageEstimator, AdvantageInputs


def load_function(name: str, key: str) -> Callable[..., Any]:
    """Import the function named by ``name`` (``package.module:function``), or ConfigError."""
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise ConfigError(
            f"{key}={name!r} is neither a known name nor of the form module:function",
            "Check the spelling, or write e.g. my_package.my_module:my_function.",
        )
    return _function_of(import_module(module_name, f"{key}={name!r}"), function_name, key)


def load_function_of_file(path: str, name: str, key: str) -> Callable[..., Any]:
    """The function ``name`` of a file or of ``pkg://module``; as :func:`load_function`."""
    if path.startswith("pkg://"):
        module = import_module(path.removeprefix("pkg://"), f"{key}.path={path}")
        return _function_of(module, name, key)
    file = Path(path)
    if not file.is_file():
        raise ConfigError(
            f"{key}.path={path}: there is no such file",
            "Give the path of a Python file, or pkg://package.module.",
        )
    # One module per file, whoever asks for it: loading a function twice gives the same object.
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()
    module_name = f"refblend_user_{file.stem}_{digest[:12]}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, file)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{key}.path={path} is not a Python file", "Name it <module>.py.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[module_name]
            if not isinstance(error, Exception):
                raise
            raise _failed_import(error, f"{key}.path={path}", path) from error
    return _function_of(sys.modules[module_name], name, key)


def user_files(config: RefblendConfig, reward_only: bool = False) -> list[Path]:
    """Files of the functions and classes that a run, or its reward, calls, if they are the user's.

    Those of ours have a version in ``numerics.json``.
    """
    reward, quality = config.reward.custom_reward_function, config.algorithm.ref_quality_score
    named = [("reward.custom_reward_function.path", reward.path or "")]
    named.append((ADVANTAGE_KEY, config.algorithm.adv_estimator))
    if config.use_judge:
        named.append(("algorithm.ref_quality_score.scoring.kind", quality.scoring.kind))
    if quality.enable:
        named.append((STRATEGY_KEY, quality.strategy))
    modules = [
        import_module(name.removeprefix("pkg://").partition(":")[0], f"{key}={name!r}")
        for key, name in named
        if name.startswith("pkg://") or (":" in name and not (reward_only or "reward." in key))
    ]
    files = [module.__file__ for module in modules]  # None: a module without one
    if reward.path and not reward.path.startswith("pkg://"):
        files.append(reward.path)
    return [Path(file) for file in files if file and not Path(file).is_relative_to(PACKAGE)]


def import_module(name: str, setting: str) -> ModuleType:
    """Import a user's module, or ConfigError; ``setting`` is the ``key=value`` that names it."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"{setting}: {name!r} is not the name of a module", "Write it as in package.module."
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        remedy = "Install the module, or put its folder on PYTHONPATH."
        remedy = "Write the module without .py." if name.endswith(".py") else remedy
        raise ConfigError(f"{setting}: {error}", remedy) from error
    except Exception as error:
        raise _failed_import(error, setting, name) from error


def _failed_import(error: Exception, setting: str, module: str) -> ConfigError:
    """What a user's module raised while it was imported, with the place."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file, line = place.filename, place.lineno
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    return ConfigError(
        f"{setting}: {module} cannot be imported: {type(error).__name__}: {error} "
        f"({file}, line {line})",
        "Correct the module, or install what it imports.",
    )


def _failed_call(
    error: Exception, setting: str, function: Callable[..., Any], takes: str
) -> ConfigError:
    """What a user's function raised, with the place in its file if it got that far."""
    own = getattr(getattr(function, "__code__", None), "co_filename", "")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    place = f" ({own}, line {frames[-1].lineno})" if frames else ""
    return ConfigError(
        f"{setting} failed: {type(error).__name__}: {error}{place}",
        f"Correct the function: it takes {takes}.",
    )


def _function_of(module: ModuleType, name: str, key: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        where = getattr(module, "__file__", None) or module.__name__
        raise ConfigError(
            f"{key}: {where} defines no {name}",
            "Define it at the top level of the module, or correct the name.",
        )
    return function


def get_strategy(name: str) -> Strategy:
    """The blending strategy of that name, or the user's function ``module:function``.

    The user's is called with the entropy, :class:`WeightParams` and :class:`StepContext`; whatever
    it raises, or gives instead of a weight, is a ConfigError.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    function = load_function(name, STRATEGY_KEY)

    def weight(entropy: float, params: WeightParams, at: StepContext) -> float:
        try:
            given = float(function(entropy, params, at))
        except Exception as error:  # the user's own code may raise anything
            takes = "(entropy, params, at) and gives a number"
            raise _failed_call(error, f"{STRATEGY_KEY}={name}", function, takes) from error
        if not 0.0 <= given <= params.max_weight:
            raise ConfigError(
                f"{STRATEGY_KEY}={name} gave {given} for an entropy of {entropy} nats",
                f"Return a weight from 0 to max_weight, {params.max_weight}.",
            )
        return given

    # It may read anything.
    return Strategy(name, weight, (), reads_entropy=False, reads_total_steps=True)


def get_advantage(name: str) -> "AdvantageEstimator":
    """The registered estimator, or the user's function ``module:function``, or ConfigError."""
    if name not in ADVANTAGES and "refblend.ppo.estimators" not in sys.modules:
        # Nothing else can be registered yet, and a refusal does not wait for torch.
        load_function(name, ADVANTAGE_KEY)
    from refblend.ppo import estimators

    if name in estimators.ESTIMATORS:
        return estimators.ESTIMATORS[name]
    return estimators.estimator_of(load_function(name, ADVANTAGE_KEY), name)


def call_advantage(
    estimator: "AdvantageEstimator", inputs: "AdvantageInputs"
) -> "tuple[Tensor, Tensor]":
    """Call an estimator; ConfigError for whatever a user's function raises or gives instead."""
    try:
        return estimator(inputs)
    except Exception as error:  # the user's own code may raise anything
        if estimator.name in ADVANTAGES:
            raise
        setting = f"{ADVANTAGE_KEY}={estimator.name}"
        takes = "AdvantageInputs and gives (advantages, returns)"
        raise _failed_call(error, setting, estimator.compute, takes) from error
