"""Keep what a page computes on disk, under a digest of all that it follows from."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from analyzer.fingerprint import compute_model_fingerprint
from groundtruth.records import CODE

_Value = TypeVar("_Value")


def find_or_make(
    files: Iterable[Path], facts: object, kind: type[_Value], make: Callable[[], _Value]
) -> _Value:
    """Return a value of this kind from disk, or make and keep it.

    files: whose contents it follows from, beside the sources and tables of warplens.
    facts: what else it follows from; encoded as JSON.
    """
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    facts_text = msgspec.json.encode([compute_model_fingerprint(), digests, facts], enc_hook=repr)
    digest = hashlib.sha256(facts_text).hexdigest()
    path = CODE / "results" / digest[:2] / f"{digest[2:]}.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=kind)
    value = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".partial").write_bytes(msgspec.json.encode(value))
    path.with_suffix(".partial").rename(path)
    return value
