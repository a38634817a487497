"""Titles, explanations and pages of the rules that problems name.

Rules of advice explain themselves. Those of the gate are named by pattern: `cycles-regression`,
`max-registers`.
"""

from msgspec import Struct

from analyzer.advice.registry import find_rule, list_rule_names

SITE_URL = "https://warplens.dev"

# By name: title, explanation.
_NAMED_RULES = {
    "kernel-slower": ("kernel slower", "The predicted cycles of the kernel grew by more than is noise."),
    "kernel-faster": ("kernel faster", "The predicted cycles of the kernel fell by more than is noise."),
    "kernel-changed": ("kernel changed", "The work of the kernel changed by more than is noise."),
    "kernel-unclear": (
        "change unclear",
        "The code of the kernel changed, and what is known of both sides does not decide whether it matters.",
    ),
    "new-kernel": ("new kernel", "The old side, or the baseline, does not have the kernel."),
    "removed-kernel": (
        "removed kernel",
        "The old side, or the baseline, has the kernel; the new one has not.",
    ),
    "code-unknown": (
        "unknown code",
        "A part of the kernel's code is not in the input, such as a function of another file: its figures "
        "say nothing.",
    ),
    "assumed-launch-changed": (
        "assumed launch changed",
        "Nobody gives the launch of the kernel, and what is assumed of it follows its code, which changed.",
    ),
    "no-prediction": ("no prediction", "The kernel cannot run on the GPU, or it cannot be predicted."),
}
_DIFF_RULES = frozenset(name for name in _NAMED_RULES if name.startswith("kernel-"))
# By the beginning or the end of a name; {0} is the rest of it.
_PREFIXES = {
    "max-": ("{0} over budget", "The kernel's {0} are above the limit of the configuration."),
    "min-": ("{0} below budget", "The kernel's {0} are below the limit of the configuration."),
}
_SUFFIXES = {
    "-regression": (
        "{0} regression",
        "The kernel's {0} got worse than the baseline by more than the threshold.",
    ),
    "-improvement": ("{0} improvement", "The kernel's {0} got better by more than the threshold."),
}


class RuleText(Struct, frozen=True):
    """What a user reads of a rule."""

    title: str
    explanation: str
    page_url: str


def describe_rule(name: str) -> RuleText:
    """Return the texts of a rule; of an unknown one its name."""
    if name in list_rule_names():
        action = find_rule(name).action
        sentence = f"{action[:1].upper()}{action[1:].removesuffix('.')}."
        return RuleText(name.replace("-", " "), sentence, f"{SITE_URL}/rules/{name}.html")
    page = f"{SITE_URL}/{'diff' if name in _DIFF_RULES else 'check'}.html"
    title, explanation = _NAMED_RULES.get(name) or _describe_pattern(name)
    return RuleText(title, explanation, page)


def _describe_pattern(name: str) -> tuple[str, str]:
    for prefix, texts in _PREFIXES.items():
        if name.startswith(prefix):
            return _fill(texts, name.removeprefix(prefix))
    for suffix, texts in _SUFFIXES.items():
        if name.endswith(suffix):
            return _fill(texts, name.removesuffix(suffix))
    words = name.replace("-", " ")
    return words, f"{words}."


def _fill(texts: tuple[str, str], metric: str) -> tuple[str, str]:
    title, explanation = (text.replace("{0}", metric.replace("-", " ").replace("_", " ")) for text in texts)
    return title, explanation
