"""Kernel names without what compilers add to keep names apart.

Compilers put hashes of paths and contents into names of internal functions, and mark their own copies:

    _ZN34_GLOBAL__N__5c82b24c_4_a_cu__Z1fPf5scaleEPffi    an anonymous namespace of nvcc
    __nv_static_23__5c82b24c_4_a_cu__Z1fPf__Z2stPf        a static function of nvcc
    matmul_0d1d2d3de                                      Triton's specializations
    gemm.constprop.0, gemm.part.3                         copies of a compiler
    f[abi:cxx11](int)                                     ABI tags
    cub::CUB_300100_SM_900::f, cuda::std::__4::f          versions of a library

Names are compared in forms from the closest to the loosest: without all these; without parameters; without
template arguments; without the numbers that code generators count up. Two kernels are paired in the closest
form in which their names are equal.
"""

import re
from functools import lru_cache

from analyzer.text.demangling import demangle, strip_signature

_LENGTH_OF_HASHED = re.compile(r"(\d+)(?=_GLOBAL__N__|_INTERNAL_[0-9a-f]{8})")
_STATIC = re.compile(r"__nv_static_(\d+)_")
_HASHED_NAMESPACE = re.compile(r"\b_(?:GLOBAL__N__|INTERNAL_(?=[0-9a-f]{8}))\w*")
_ANONYMOUS = "(anonymous namespace)"
_NOISE = (
    re.compile(r"\[abi:[^\]]*\]"),
    re.compile(r"\s*\[clone [^\]]*\]"),
    re.compile(r"\.(?:constprop|part|isra|cold|lto_priv|llvm|clone)(?:\.\w+)*"),
    # Inline namespaces that carry a version and the architectures that a library was built for.
    re.compile(r"\b(?:CUB_|THRUST_|_V_)\d\w*::"),
    re.compile(r"(?<=::)__\d+::"),
    re.compile(r"_[0-9](?:\d|[cde](?=\d|$|_))*[cde]+[0-9cde]*$"),  # Triton before 3.0: `_0d1d2d3de`
    re.compile(r"_[0-9a-f]{16,}$"),
)
_TEMPLATE = re.compile(r"<.*")
_NUMBERS = re.compile(r"_?\d+$")
_MAX_NAME_CHARS = 16_000
N_FORMS = 4


def strip_file_hashes(symbol: str) -> str:
    """Return a mangled symbol without the hashes that nvcc makes of files.

    >>> strip_file_hashes("_ZN34_GLOBAL__N__5c82b24c_4_a_cu__Z1fPf5scaleEPffi")
    '_ZN12_GLOBAL__N_15scaleEPffi'
    """
    if found := _STATIC.match(symbol):
        symbol = symbol[found.end() + min(int(found[1][:6]), _MAX_NAME_CHARS) + 1 :] or symbol
    parts, position = [], 0
    for found in _LENGTH_OF_HASHED.finditer(symbol):
        end = found.end() + int(found[1][:6])
        if found.start() < position or end > len(symbol):
            continue
        parts += [symbol[position : found.start()], "12_GLOBAL__N_1"]
        position = end
    return "".join((*parts, symbol[position:]))


@lru_cache(maxsize=1 << 14)
def list_name_forms(name: str) -> tuple[str, ...]:
    """Return the forms of a name, [N_FORMS], the closest first."""
    if len(name) > _MAX_NAME_CHARS:
        return (name,) * N_FORMS
    whole = _HASHED_NAMESPACE.sub(_ANONYMOUS, demangle(strip_file_hashes(name)))
    for pattern in _NOISE:
        whole = pattern.sub("", whole) or whole
    whole = re.sub(r"\s+", "", whole.removeprefix("void "))
    bare = strip_signature(whole)
    plain = _TEMPLATE.sub("", bare) or bare
    return (whole, bare, plain, _NUMBERS.sub("", plain) or plain)
