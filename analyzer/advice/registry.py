"""Rules of advice by name: the modules of `rules/`, listed by their file names."""

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from analyzer.advice.interface import Rule
from analyzer.text.errors import UsageError

_PACKAGE = "analyzer.advice.rules"


@cache
def list_rule_names() -> tuple[str, ...]:
    """Return the names of all rules, sorted."""
    folder = Path(__file__).parent / "rules"
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules([str(folder)])))


def find_rule(name: str) -> Rule:
    """Return a rule. Raises UsageError for an unknown name."""
    if name not in list_rule_names():
        raise UsageError(f"no rule is called {name}", hint=f"one of: {', '.join(list_rule_names())}")
    module = import_module(f"{_PACKAGE}.{name.replace('-', '_')}")
    return Rule(
        name=module.NAME,
        action=module.ACTION,
        find_sites=module.find_sites,
        remove_cause=module.remove_cause,
    )


def load_rules(names: Sequence[str] | None = None) -> tuple[Rule, ...]:
    """Return rules by name, all of them for None. Raises UsageError."""
    return tuple(map(find_rule, list_rule_names() if names is None else names))
