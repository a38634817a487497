"""Types of kernel parameters in PTX, which the cubin that ptxas makes of it does not keep.

.entry scale(.param .u64 .ptr .align 1 scale_param_0, .param .f32 scale_param_1)
"""

import re

from msgspec.structs import replace

from analyzer.ir.module import Kernel, Module, Parameter

_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.S)
_ENTRY = re.compile(rb"\.entry\s+([\w$.]+)\s*\(([^()]*)\)")
_PARAMETER = re.compile(rb"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]+\d+)\b[^\[]*?(\[[^\]]*\])?\s*$")
# Compilers declare signed integers as unsigned ones, and pointers too; untyped bits may be anything.
_SIGNLESS = {"u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64"}
_DOUBLE = "f64"


def name_parameter_type(declared: str, *, is_scalar: bool) -> str:
    """Return the type of a parameter, as `f32` or `i32`; "" for what its declaration does not tell."""
    if not is_scalar or declared.startswith("b"):
        return ""
    return _SIGNLESS.get(declared, declared)


def add_parameter_types(module: Module, text: bytes) -> Module:
    """Return the module with the types that the entries of its PTX declare, where their numbers agree."""
    entries = {name.decode(): body for name, body in _ENTRY.findall(_COMMENT.sub(b"", text))}
    kernels = tuple(_add_types(kernel, entries.get(kernel.name, b"")) for kernel in module.kernels)
    return replace(module, kernels=kernels)


def _add_types(kernel: Kernel, body: bytes) -> Kernel:
    found = [_PARAMETER.search(part.strip()) for part in body.split(b",")] if body.strip() else []
    if kernel.parameters is None or len(found) != len(kernel.parameters):
        return kernel
    names = ["" if m is None else name_parameter_type(m[1].decode(), is_scalar=m[2] is None) for m in found]
    return replace(kernel, parameters=tuple(map(_set_type, kernel.parameters, names)))


def _set_type(parameter: Parameter, name: str) -> Parameter:
    if not name or parameter.type_name or parameter.size_bytes * 8 != int(name[1:]):
        return parameter
    return replace(parameter, type_name=name, is_pointer=False if name == _DOUBLE else parameter.is_pointer)
