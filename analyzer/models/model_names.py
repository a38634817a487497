"""Names of our own models: the modules of `predictors/`, and those of `operators/`. Loads none of them."""

import pkgutil
from functools import cache
from pathlib import Path

DEFAULT_OPERATOR_MODEL = "ours"
_OPERATOR_HELPERS = frozenset({"interface", "registry", "served"})


@cache
def list_own_models() -> tuple[str, ...]:
    """Return the names of our models of compiled code, sorted."""
    return tuple(sorted(_list_modules("predictors")))


@cache
def list_operator_models() -> tuple[str, ...]:
    """Return the names of all operator models, the default one first."""
    names = sorted(set(_list_modules("operators")) - _OPERATOR_HELPERS)
    return tuple(sorted(names, key=lambda name: name != DEFAULT_OPERATOR_MODEL))


def _list_modules(folder: str) -> list[str]:
    return [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / folder)])]
