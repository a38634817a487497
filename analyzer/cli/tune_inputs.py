"""What several subcommands of `tune` read: one part of a profile, one artifact or profile to choose from."""

from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.tuning.samples import Samples


def select_part(path: Path, parts: "list[Samples]", kernel: str, gpu: str) -> "Samples":
    """Return the one part of a profile that is asked for. Raises UsageError for none or several."""
    found = [p for p in parts if kernel in ("", p.space.name) and gpu in ("", p.gpu)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{p.space.name} on {p.gpu}" for p in (found or parts))
    problem = "has several profiles" if found else "has no such profile"
    raise UsageError(f"{path} {problem}: {listed}", hint="name one with --kernel and --gpu")


def parse_sizes(option: str, text: str) -> tuple[int, ...]:
    """Return positive whole numbers separated by commas. Raises UsageError for anything else."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part[:12]) > 0 and len(part) < 12 for part in parts):
        raise UsageError(f"{option} {text}", hint=f"numbers separated by commas: {option} 1,16,256")
    return tuple(dict.fromkeys(int(part) for part in parts))
