"""Functions that a user names in the configuration as ``package.module:function``."""

import importlib
from collections.abc import Callable
from typing import Any

from refblend.errors import ConfigError
from refblend.ppo import estimators


def load_function(name: str, key: str) -> Callable[..., Any]:
    """Import the function that ``name`` (``package.module:function``) stands for.

    Args:
        name: module path and function, separated by one colon.
        key: the configuration key it came from, named in errors.

    Raises:
        ConfigError: the name has another form, or there is no such module or function.
            What the module itself raises while it is imported is passed on.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise ConfigError(
            f"{key}={name!r} is neither a known name nor of the form module:function",
            "Check the spelling, or write e.g. my_package.my_module:my_function.",
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{key}={name!r}: {error}",
            "Install the module, or put its folder on PYTHONPATH.",
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(
            f"{key}={name!r}: module {module_name} has no function {function_name}",
            "Define it at the top level of the module, or correct the name.",
        )
    return function


def get_advantage(name: str) -> estimators.AdvantageEstimator:
    """The estimator registered under ``name``, or the user's function ``module:function``.

    Raises:
        ConfigError: there is no such estimator, module or function.
    """
    if name in estimators.ESTIMATORS:
        return estimators.ESTIMATORS[name]
    return estimators.estimator_of(load_function(name, "algorithm.adv_estimator"), name)
