"""Kernel names as compilers, profilers and people write them, and which of them fit a pattern.

A name has several forms, from the longest to the shortest: mangled, demangled, without parameters, without
template arguments, without scopes. The longest form in which any name equals the pattern decides:

>>> names = ("_Z4gemmIfLi2EEvPf", "gemm_bias")  # the first one is gemm<float, 2>(float*)
>>> find_matching_names(names, "gemm"), find_matching_names(names, "gemm*")
([0], [0, 1])
"""

import difflib
import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache

from analyzer.text.demangling import demangle, strip_signature

# Nsight Compute's way to write template arguments: `f<float, (int)2>`.
_TEMPLATE_ARGUMENT_CAST = re.compile(r"(?<=[<,\s])\([a-z ]+\)(?=-?\d)")


_MAX_COMPARED_NAMES = 2000
_MAX_COMPARED_CHARS = 200
_MAX_LISTED_CHARS = 100


def find_matching_names(names: Sequence[str], pattern: str) -> list[int]:
    """Return the indices of the names that equal a pattern in some form, else of those that fit or hold it.

    pattern: a name as compiled or as people write it, with parameters, template arguments and scopes or
    without; else a glob or a part of a name.
    """
    if exact := [index for index, name in enumerate(names) if name == pattern]:
        return exact
    wanted = _strip_spaces(pattern)
    written = [_make_name_variants(name) for name in names]
    for form in range(len(_make_name_variants(""))):
        alike = (
            {wanted, _strip_spaces(_TEMPLATE_ARGUMENT_CAST.sub("", strip_signature(pattern)))}
            if form
            else {wanted}
        )
        if exact := [index for index, variants in enumerate(written) if variants[form] in alike]:
            return exact
    return [
        index
        for index, (name, (whole, *_)) in enumerate(zip(names, written, strict=True))
        if any(
            fnmatch.fnmatchcase(each, text) or text in each
            for each, text in ((name, pattern), (whole, wanted))
        )
    ]


def find_nearest_names(names: Sequence[str], pattern: str, n: int = 3) -> list[str]:
    """Return at most so many demangled names that a mistyped pattern may mean, the nearest first.

    Parameters, scopes and template arguments count only where the pattern has them; case never does.
    """
    wanted = _strip_spaces(pattern).lower()
    written: dict[str, str] = {}  # a form of a name in lower case -> the demangled name
    for name in list(dict.fromkeys(names))[:_MAX_COMPARED_NAMES]:
        for form in reversed(_make_name_variants(name)):
            if len(form) <= _MAX_COMPARED_CHARS:
                written.setdefault(form.lower(), demangle(name))
    near = difflib.get_close_matches(wanted, written, n=n * len(_make_name_variants("")), cutoff=0.6)
    return list(dict.fromkeys(written[form] for form in near))[:n]


def list_names_for_people(names: Sequence[str], n: int = 5) -> str:
    """Return the first demangled names, each shortened, and how many more there are."""
    shown = [demangle(name) for name in dict.fromkeys(names)]
    shorter = [name if len(name) <= _MAX_LISTED_CHARS else f"{name[:_MAX_LISTED_CHARS]}..." for name in shown]
    more = f" and {len(shown) - n:,} more" if len(shown) > n else ""
    return ", ".join(shorter[:n]) + more


@lru_cache(maxsize=1 << 14)
def _make_name_variants(name: str) -> tuple[str, str, str, str]:
    """Return the demangled name; then without parameters, without template arguments, without scopes."""
    whole = demangle(name)
    bare = strip_signature(whole)
    plain = re.sub(r"<.*", "", bare) or bare
    last = plain.rpartition("::")[2] or plain
    written = (_strip_spaces(text) for text in (whole, bare, plain, last))
    first, second, third, fourth = written
    return first, second, third, fourth


def _strip_spaces(text: str) -> str:
    """Drop blanks, which compilers and profilers set differently: `void f<float, 2>(float *)`."""
    return re.sub(r"\s+", "", text.removeprefix("void "))


def is_same_function(name: str, other: str) -> bool:
    """Return whether two names are of one function, parameters and the type of the result left out."""
    return name == other or _strip_parameters(name) == _strip_parameters(other)


def _strip_parameters(name: str) -> str:
    text = demangle(name).removeprefix("void ")
    depth, end = 0, len(text)
    for index, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and not depth and not text.startswith("(anonymous namespace)", index):
            end = index
            break
    return text[:end].replace(" ", "")
