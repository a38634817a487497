"""Demangled C++ names, from the system's C++ library where there is one."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache

# CUTLASS has names of several thousand characters; a longer one was not made by a compiler.
_MAX_NAME_CHARS = 16_000
# C++ runtimes: of GNU, which numpy needs on Linux anyway, of LLVM, and of macOS.
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")


def demangle(name: str) -> str:
    """Return the demangled name; the name itself where it is not a C++ name or cannot be demangled."""
    if not name.startswith("_Z") or len(name) > _MAX_NAME_CHARS:
        return name
    convert = _load_demangler()
    return name if convert is None else convert(name)


def strip_signature(demangled: str) -> str:
    """Return a function's name with scopes and template arguments, without result type and parameters.

    >>> strip_signature("void ns::scale<float, 2>(float*, int)")
    'ns::scale<float, 2>'
    """
    end = len(demangled)
    if demangled.endswith(")"):
        depth = 0
        for at in range(len(demangled) - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(demangled[at], 0)
            if not depth:
                end = at
                break
    start = depth = 0
    for at, letter in enumerate(demangled[:end]):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == " " and not depth:
            start = at + 1
    return demangled[start:end]


def list_parameter_types(demangled: str) -> tuple[str, ...] | None:
    """Return the types in the parentheses that end a function's name; None if it has none.

    >>> list_parameter_types("void ns::scale<float, 2>(float*, unsigned int)")
    ('float*', 'unsigned int')
    """
    if not demangled.endswith(")"):
        return None
    found: list[str] = []
    depth, end = 0, len(demangled) - 1
    for at in range(end - 1, -1, -1):
        letter = demangled[at]
        if not depth and letter in ",(":
            found.append(demangled[at + 1 : end].strip())
            end = at
            if letter == "(":
                return () if found in ([""], ["void"]) else tuple(reversed(found))
        depth += (letter in ")>]}") - (letter in "(<[{")
    return None


@cache
def _load_demangler() -> Callable[[str], str] | None:
    import ctypes

    function = None
    for name in _LIBRARIES:
        with suppress(OSError, AttributeError):
            function = ctypes.CDLL(name).__cxa_demangle
            break
    if function is None:
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]

    def convert(name: str) -> str:
        status = ctypes.c_int()
        pointer = function(name.encode(), None, None, ctypes.byref(status))
        if status.value or not pointer:
            return name
        try:
            text = ctypes.cast(pointer, ctypes.c_char_p).value
        finally:
            free(pointer)
        return name if text is None else text.decode("utf-8", "replace")

    return convert
