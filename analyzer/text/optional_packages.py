"""Packages that warplens does without, and the one check that those which a task needs are there.

The check looks for them and loads nothing, so it stands before the work: a missing package is known at once.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from msgspec import Struct

from analyzer.text.errors import ToolError


class PackageSet(Struct, frozen=True):
    """Packages that a task needs, by the names of their modules, and how to come by them."""

    modules: tuple[str, ...]
    hint: str


CHARTS = PackageSet(("plotly",), "pip install 'warplens[charts]'")
LEARNED_TREES = PackageSet(("sklearn",), "pip install 'warplens[learn]'")
LEARNED_NETWORKS = PackageSet(("sklearn", "torch"), "pip install 'warplens[learn]'")
DASK = PackageSet(("dask", "distributed"), "pip install 'warplens[cluster]'")
PROFILING = PackageSet(
    ("torch", "triton"),
    "pip install torch triton, on the machine with the GPU; all other steps need neither",
)
COMPILING = PackageSet(
    ("triton",), "pip install triton, or leave --compile out: facts of common GPUs are shipped"
)
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}


def check_packages(what: str, wanted: PackageSet) -> None:
    """Raise ToolError where a package is missing that `what`, such as an option, needs."""
    missing = find_missing(wanted.modules)
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        names = " and ".join(_DISTRIBUTIONS.get(name, name) for name in missing)
        raise ToolError(f"{what} needs {names}, which {verb} not installed", hint=wanted.hint)


def find_missing(modules: Sequence[str]) -> list[str]:
    """Return the modules that are not installed."""
    return [name for name in modules if not _is_installed(name)]


def _is_installed(module: str) -> bool:
    return sys.modules[module] is not None if module in sys.modules else find_spec(module) is not None
