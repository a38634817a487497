"""Prints a `PtxModule` as PTX, so that reading it again gives the same module, but for numbers of lines."""

import struct
from collections.abc import Iterator

from analyzer.frontend.ptx.statements import (
    PtxAddress,
    PtxBranchTargets,
    PtxFunction,
    PtxImmediate,
    PtxInstruction,
    PtxLabel,
    PtxModule,
    PtxOperand,
    PtxPair,
    PtxRegister,
    PtxStatement,
    PtxSymbol,
    PtxVariable,
    PtxVector,
)
from analyzer.ir.module import SourceLine

_FUNCTION_LABEL = "$L__info_string0"  # of the name that inlined functions get; it is not kept
_COMPONENTS = ("x", "y", "z", "w")


def format_ptx(module: PtxModule) -> str:
    """Return the text of a module."""
    return "\n".join(_module_lines(module)) + "\n"


def _module_lines(module: PtxModule) -> Iterator[str]:
    yield f".version {module.version}"
    yield f".target {', '.join((module.target, *module.target_options))}"
    yield f".address_size {module.address_bits}"
    for variable in module.variables:
        yield f"{'.extern ' * variable.is_extern}{format_variable(variable)};"
    files: dict[str, int] = {}
    for function in module.functions:
        yield from _function_lines(function, files)
    for first, second in module.aliases:
        yield f".alias {first}, {second};"
    for name, number in files.items():
        yield f'.file {number} "{name}"'
    yield f".section .debug_str {{ {_FUNCTION_LABEL}: .b8 102, 0 }}"


def format_variable(variable: PtxVariable) -> str:
    """Return the declaration of a variable, without what ends it."""
    parts = [f".{variable.space}"]
    if not variable.is_pointer and variable.space != "reg":
        parts.append(f".align {variable.alignment_bytes}")
    parts.append(f".{variable.type_name}")
    if variable.is_pointer:
        parts.append(".ptr" + f" .{variable.pointer_space}" * bool(variable.pointer_space))
        if variable.pointer_alignment_bytes:
            parts.append(f".align {variable.pointer_alignment_bytes}")
    size = "" if variable.n_elements == 1 else f"[{variable.n_elements or ''}]"
    values = "" if variable.initial is None else f" = {_format_initial(variable)}"
    return f"{' '.join(parts)} {variable.name}{size}{values}"


def _format_initial(variable: PtxVariable) -> str:
    assert variable.initial is not None
    size = len(variable.initial) if not variable.n_elements else variable.n_bytes // variable.n_elements
    references = {reference.position_bytes: reference for reference in variable.references}
    items = []
    for start in range(0, len(variable.initial), size):
        if reference := references.get(start):
            text = format_operand(reference.symbol)
            items.append(text if reference.mask is None else f"{reference.mask:#x}({text})")
        else:
            items.append(str(int.from_bytes(variable.initial[start : start + size], "little")))
            if variable.type_name in ("f32", "f64"):
                letter = "f" if size == 4 else "d"
                items[-1] = f"0{letter}{int(items[-1]):0{2 * size}X}"
    return items[0] if variable.n_elements == 1 else f"{{{', '.join(items)}}}"


def _function_lines(function: PtxFunction, files: dict[str, int]) -> Iterator[str]:
    yield format_head(function) + (";" if function.is_declaration else " {")
    if function.is_declaration:
        return
    yield from _register_lines(function)
    for variable in function.variables:
        yield f"{format_variable(variable)};"
    for prototype in function.prototypes:
        yield f"{prototype.name}: {format_head(prototype, is_prototype=True)};"
    source_line: SourceLine | None = None
    for statement in function.statements:
        if isinstance(statement, PtxInstruction):
            if statement.source_line != source_line:
                source_line = statement.source_line
                yield from _loc_lines(source_line, files)
            yield from (f'.pragma "{pragma}";' for pragma in statement.pragmas)
        yield format_statement(statement)
    yield "}"


def format_head(function: PtxFunction, *, is_prototype: bool = False) -> str:
    """Return the head of a function."""
    kind = ".callprototype" if is_prototype else ".entry" if function.is_entry else ".func"
    parts = [f".{function.linkage}" * bool(function.linkage), kind]
    if function.results:
        parts.append(f"({', '.join(map(format_variable, function.results))})")
    parts.append("_" if is_prototype else function.name)
    parts.append(f"({', '.join(map(format_variable, function.parameters))})")
    for name, sizes in (
        ("maxntid", function.max_threads),
        ("reqntid", function.required_threads),
        ("reqnctapercluster", function.cluster_size),
        ("minnctapersm", (function.min_ctas_per_sm,)),
        ("maxnreg", (function.max_registers,)),
    ):
        if sizes and sizes[0] is not None:
            parts.append(f".{name} {', '.join(map(str, sizes))}")
    return " ".join(filter(None, parts))


def _register_lines(function: PtxFunction) -> Iterator[str]:
    vectors: dict[str, int] = {}
    parameters = {variable.name for variable in (*function.parameters, *function.results)}
    for name, type_name in function.register_types.items():
        base, _, component = name.partition(".")
        if component:
            vectors[base] = max(vectors.get(base, 0), _COMPONENTS.index(component) + 1)
        elif name not in parameters:
            yield f".reg .{type_name} {name};"
    for base, n_lanes in vectors.items():
        yield f".reg .v{n_lanes} .{function.register_types[f'{base}.x']} {base};"


def _loc_lines(line: SourceLine | None, files: dict[str, int]) -> Iterator[str]:
    """Yield `.loc` lines, those of callers first; columns tell equal lines with other callers apart."""
    chain = []
    while line is not None:
        chain.append(line)
        line = line.inlined_at
    if not chain:
        yield ".loc 99999 1 0"  # of a file that is not there: no source line
    for depth, place in enumerate(reversed(chain)):
        text = f".loc {files.setdefault(place.file, len(files) + 1)} {place.line} {depth}"
        if place.inlined_at is not None:
            caller = place.inlined_at
            text += f", function_name {_FUNCTION_LABEL}, inlined_at {files[caller.file]} {caller.line} {depth - 1}"
        yield text


def format_statement(statement: PtxStatement) -> str:
    """Return a statement."""
    if isinstance(statement, PtxLabel):
        return f"{statement.name}:"
    if isinstance(statement, PtxBranchTargets):
        return f"{statement.name}: .branchtargets {', '.join(statement.targets)};"
    guard = ""
    if statement.guard:
        guard = f"@{'!' * statement.guard.is_negated}{statement.guard.register} "
    is_double = "f64" in statement.modifiers
    opcode = ".".join((statement.name, *statement.modifiers))
    operands = [
        format_operand(operand, is_call=statement.name == "call", is_double=is_double)
        for operand in statement.operands
    ]
    return f"{guard}{opcode} {', '.join(operands)}".rstrip() + ";"


def format_operand(operand: PtxOperand, *, is_call: bool = False, is_double: bool = False) -> str:
    """Return an operand."""
    if isinstance(operand, PtxRegister):
        return (
            "!" * operand.is_negated
            + "-" * operand.is_minus
            + operand.name
            + f".{operand.part}" * bool(operand.part)
        )
    if isinstance(operand, PtxSymbol):
        name = f"generic({operand.name})" if operand.is_generic else operand.name
        return f"{name}+{operand.offset}" if operand.offset else name
    if isinstance(operand, PtxImmediate):
        return _format_constant(operand.value, is_double)
    if isinstance(operand, PtxPair):
        return f"{operand.first.name}|{operand.second.name}"
    if isinstance(operand, PtxVector):
        inner = ", ".join(format_operand(element, is_double=is_double) for element in operand.elements)
        return f"({inner})" if is_call else f"{{{inner}}}"
    return f"[{', '.join(_address_parts(operand))}]"


def _address_parts(address: PtxAddress) -> Iterator[str]:
    if address.base is None:
        yield str(address.offset)
    else:
        yield format_operand(address.base) + (f"+{address.offset}" if address.offset else "")
    if address.sampler is not None:
        yield format_operand(address.sampler)
    if address.coordinates:
        yield format_operand(PtxVector(address.coordinates))


def _format_constant(value: int | float, is_double: bool) -> str:
    if isinstance(value, int):
        return str(value)
    if not is_double:
        try:
            bits = struct.pack(">f", value)
            if value != value or struct.unpack(">f", bits)[0] == value:
                return f"0f{bits.hex().upper()}"
        except OverflowError:
            pass
    return f"0d{struct.pack('>d', value).hex().upper()}"
