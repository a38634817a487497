"""Rules of the user for branches that neither the launch nor the code decides (`--taken`)."""

import re

from msgspec import Struct

from analyzer.text.errors import UsageError

_HINT = "write --taken 0x370=yes, --taken 0x370=no, or a share of the warps as in --taken 0x370=0.25"
_NAMED_SHARES = {"yes": 1.0, "no": 0.0}
_ADDRESS_PATTERN = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,8})")
_SHARE_PATTERN = re.compile(r"[0-9]{0,9}\.?[0-9]{0,17}(?:[eE]-?[0-9]{1,2})?%?")


class BranchTakenRule(Struct, frozen=True):
    """Share of the warps that take the branch at one address."""

    address: int
    share: float  # from 0 (never taken) to 1 (always taken)

    def __str__(self) -> str:
        share = {1.0: "yes", 0.0: "no"}.get(self.share, f"{self.share:g}")
        return f"{self.address:#x}={share}"


def parse_taken_rule(text: str) -> BranchTakenRule:
    """Parse `0x370=yes`, `0370=no`, `0x370=0.25` or `0x370=25%`; addresses are hexadecimal.

    Raises UsageError.
    """
    where, _, how = text.partition("=")
    address = _ADDRESS_PATTERN.fullmatch(where.strip())
    if address is None:
        raise UsageError(f"--taken {text}: {where!r} is not an address", hint=_HINT)
    share = _parse_share(how.strip().lower())
    if share is None or not 0.0 <= share <= 1.0:
        raise UsageError(f"--taken {text}: {how!r} is neither yes, no nor a share from 0 to 1", hint=_HINT)
    return BranchTakenRule(int(address[1], 16), share)


def _parse_share(text: str) -> float | None:
    if text in _NAMED_SHARES:
        return _NAMED_SHARES[text]
    if not _SHARE_PATTERN.fullmatch(text):
        return None
    try:
        return float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        return None
