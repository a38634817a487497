"""Names of architectures: of code that names none, and in lookups of data on a kernel."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeVar

from msgspec.structs import replace

from analyzer.frontend.sass_diagnostics import MIN_ARCH, is_unsupported_arch
from analyzer.ir.module import Module
from analyzer.text.demangling import demangle
from analyzer.text.errors import UsageError

T = TypeVar("T")
_ARCH = re.compile(r"(?:sm_?)?(\d{2,3}[af]?)", re.I)


def parse_arch(text: str) -> str:
    """Return `sm_90a` for `sm_90a`, `SM90a` or `90a`. Raises UsageError for what is none, or is too old."""
    match = _ARCH.fullmatch(text.strip())
    hint = "write the name as nvcc -arch takes it: --arch sm_90"
    if match is None:
        raise UsageError(f"--arch {text}: no architecture", hint=hint)
    arch = f"sm_{match[1].lower()}"
    if is_unsupported_arch(arch):
        raise UsageError(f"--arch {text}: encodings before sm_{MIN_ARCH} are not read", hint=hint)
    return arch


def set_missing_arch(module: Module, arch: str) -> Module:
    """Return the module with an architecture for the kernels that name none.

    Raises UsageError for a kernel that names another; its own name stays where only the suffix differs.
    """
    kernels = []
    for kernel in module.kernels:
        if kernel.arch and kernel.arch.rstrip("af") != arch.rstrip("af"):
            raise UsageError(
                f"--arch {arch}: {module.path} says that {kernel.name} is {kernel.arch} code",
                hint="leave --arch out: it is for code that names no architecture",
            )
        kernels.append(kernel if kernel.arch else replace(kernel, arch=arch))
    return replace(module, kernels=tuple(kernels))


def find_arch_entry(table: Mapping[tuple[str, str], T], arch: str, name: str) -> T | None:
    """Return a kernel's entry: for its architecture, for one of another suffix, or for none (`""`).

    The suffix may differ because cuobjdump disassembles an image of `arch = sm_100f` as sm_100.
    """
    base = arch.rstrip("af")
    archs = (arch, base, f"{base}a", f"{base}f", "")
    found = next((table[key, name] for key in archs if (key, name) in table), None)
    if found is not None or "(" not in name:
        return found
    names = [other for key, other in table if key in archs]
    compiled = find_compiled_name(names, name)
    return None if compiled == name else find_arch_entry(table, arch, compiled)


def find_compiled_name(names: Iterable[str], name: str) -> str:
    """Return the one of `names` that demangles to `name`, as in a dump through c++filt; else `name`."""
    if "(" not in name:
        return name
    wanted = name.replace(" ", "")
    found = {other for other in names if _demangle_cached(other).replace(" ", "") == wanted}
    return found.pop() if len(found) == 1 else name


_demangle_cached = lru_cache(maxsize=1 << 14)(demangle)
