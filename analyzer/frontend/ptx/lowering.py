"""Lowers PTX to kernels of a target architecture without ptxas: virtual SASS.

1. Cut the function into blocks, choose convergence barriers (`control_flow`).
2. Lower each instruction (`lowering_table`) to instructions of the target on virtual registers.
3. Remove what nothing reads, move down what is computed too early (`sinking`), number the registers
   (`register_allocation`).
4. Print the code as a listing and decode it as any other: the opcode table gives semantics and timing.

    ld.param.u64 %rd1, [p]             (folded)
    mad.wide.s32 %rd2, %r1, 4, %rd1    IMAD.WIDE R2, R4, 0x4, R6
    ld.global.f32 %f1, [%rd2]          LDG.E R5, [R2.64]

There are no control words, since nothing schedules the code: the demand package assumes them. Parameters
stand where ptxas puts them in constant bank 0, so that arguments are bound as for a cubin.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.instruction_decoder import FormDecoder
from analyzer.frontend.kernel_builder import KernelBuilder, TextInterner, build_kernel
from analyzer.frontend.ptx.calls import branch_around_products, inline_calls
from analyzer.frontend.ptx.control_flow import (
    EXIT_NAMES,
    Convergence,
    EdgeAction,
    FlowAnalysis,
    PtxBlock,
    build_blocks,
    find_defined_names,
    find_divergent_registers,
    list_register_names,
    plan_convergence,
)
from analyzer.frontend.ptx.lowering_context import (
    LoweringContext,
    Symbol,
    Target,
    UnsupportedPtxError,
    count_definitions,
)
from analyzer.frontend.ptx.lowering_table import lower_instruction
from analyzer.frontend.ptx.parser import parse_ptx
from analyzer.frontend.ptx.register_allocation import (
    Allocation,
    allocate_registers,
    is_crowded,
    remove_dead_code,
)
from analyzer.frontend.ptx.sinking import sink_instructions
from analyzer.frontend.ptx.statements import (
    PtxAddress,
    PtxFunction,
    PtxImmediate,
    PtxInstruction,
    PtxModule,
    PtxRegister,
    PtxSymbol,
    PtxVariable,
)
from analyzer.frontend.ptx.virtual_code import (
    TRUE,
    ConstantRef,
    PredicateRef,
    VirtualBlock,
    VirtualInstruction,
    WordRef,
    format_operand,
)
from analyzer.frontend.ptx_parameters import name_parameter_type
from analyzer.hardware.gpu_database import load_arch
from analyzer.ir.launch import Dim3
from analyzer.ir.module import (
    INSTRUCTION_BYTES,
    ConstantBank,
    FormTable,
    Kernel,
    KernelResources,
    Module,
    Parameter,
    Relocation,
    SourceFormat,
    SourceLine,
)
from analyzer.text.errors import InputError
from analyzer.text.source import Diagnostic, Location, Severity

CONSTANT_BANK, ADDRESS_BANK = 3, 4
_RESERVED_SHARED_BYTES, _FIRST_RESERVED = 1024, 90
_MAX_REGISTERS = 255
_REGISTER_STEP = 8
_POINTER_BYTES = 8
_SYSTEM_FUNCTIONS = {
    "vprintf": "printf of CUDA's device runtime",
    "__assertfail": "a failed assert of CUDA's device runtime",
    "malloc": "of CUDA's device runtime",
    "free": "of CUDA's device runtime",
    "by address": "a call by address, whose callee is not known",
}


def read_ptx_module(data: str | bytes, path: str, arch: str) -> Module:
    """Read PTX as kernels of an architecture such as `sm_90a`.

    Raises InputError if the text is no PTX, or holds no kernel.
    """
    ptx, warnings = parse_ptx(data, path)
    return lower_ptx_module(ptx, path, arch, warnings)


def lower_ptx_module(
    ptx: PtxModule, path: str, arch: str, warnings: Sequence[Diagnostic] = (), *, is_part: bool = False
) -> Module:
    """Lower all kernels of a PTX module; of a part of one, what it leaves in registers counts as used.

    Raises InputError if it has none.
    """
    target = find_target(arch)
    entries = [function for function in ptx.functions if function.is_entry and not function.is_declaration]
    if not entries:
        raise InputError(f"{path}: no kernel found", hint="PTX of a kernel has a function marked .entry")
    builder = _ModuleBuilder(ptx, path, target, is_part=is_part)
    kernels = builder.build(entries)
    return Module(
        path=path,
        source_format=SourceFormat.VIRTUAL_PTX,
        kernels=kernels,
        form_table=builder.form_table,
        diagnostics=(*warnings, *builder.make_diagnostics()),
        toolchain=f"PTX {ptx.version}, not assembled",
    )


def find_target(arch: str) -> Target:
    """Return what the lowering needs to know of an architecture. Raises HardwareError for an unknown one."""
    base = arch.rstrip("af")
    bank = load_arch(base).constant_bank
    return Target(
        name=arch,
        number=int(base.removeprefix("sm_")),
        parameter_base=int(bank.arguments.value),
        block_dim=int(bank.block_dim.value),
        grid_dim=int(bank.grid_dim.value),
        stack_pointer=int(bank.stack_pointer.value),
        argument_window=int(bank.argument_window.value),
        argument_window_start=int(bank.argument_window_start.value),
    )


class _LoweredFunction(Struct):
    """A kernel before its texts are interned."""

    function: PtxFunction
    lines: list[tuple[str, VirtualInstruction]]
    labels: list[tuple[str, int]]  # name, row
    allocation: Allocation
    shared_bytes: int
    parameters: tuple[Parameter, ...]


class _ModuleBuilder:
    """Lowers the kernels of one module to a common form table."""

    def __init__(self, ptx: PtxModule, path: str, target: Target, *, is_part: bool) -> None:
        self.ptx, self.path, self.target, self.is_part = ptx, path, target, is_part
        self.interner = TextInterner(FormDecoder())
        self.unknown: dict[str, tuple[int, int]] = {}  # name -> (line of the first, how many)
        self.external_calls: dict[str, tuple[int, int]] = {}
        self.notes: set[str] = set()
        self.source_lines: dict[SourceLine, int] = {}
        self.form_table: FormTable
        self.symbols, self.banks = _place_variables(ptx)

    def build(self, entries: Iterable[PtxFunction]) -> tuple[Kernel, ...]:
        """Lower the kernels."""
        lowered = [
            self._lower(branch_around_products(inline_calls(function, self.ptx))) for function in entries
        ]
        builders = [self._begin_kernel(each) for each in lowered]
        self.form_table = FormTable(
            texts=tuple(self.interner.texts),
            opcode_ids=np.array(self.interner.opcode_ids, dtype=np.int32),
            opcodes=tuple(self.interner.opcodes),
            decode=self.interner.decoder.decode,
        )
        lines = tuple(self.source_lines)
        return tuple(
            self._finish(each, build_kernel(builder, self.form_table, {}, lines, {}))
            for each, builder in zip(lowered, builders, strict=True)
        )

    def make_diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return what the reader should know: that the code is virtual, and what has no lowering."""
        found = [Diagnostic(Severity.NOTE, "virtual", note) for note in sorted(self.notes)]
        for name, (line, count) in sorted(self.unknown.items()):
            message = f"PTX instruction {name} is not known, nor are its results"
            place = Location(self.path, line, 1, "")
            found.append(Diagnostic(Severity.WARNING, "unknown-ptx", message, place, count=count))
        for name, (line, count) in sorted(self.external_calls.items()):
            known = _SYSTEM_FUNCTIONS.get(name)
            message = f"{name} is {known or 'of another file'}: what runs there is not counted"
            place = Location(self.path, line, 1, "")
            found.append(Diagnostic(Severity.WARNING, "external-call", message, place, count=count))
        return tuple(found)

    def _lower(self, function: PtxFunction) -> _LoweredFunction:
        symbols, shared_bytes = self._place_symbols(function)
        parameters, offsets = _lay_out_parameters(function, self.target.parameter_base)
        symbols |= {
            name: Symbol("param", self.target.parameter_base + offset) for name, offset in offsets.items()
        }
        ctx = LoweringContext(function, self.target, symbols)
        _find_constants(ctx)
        emitter = _BlockEmitter(ctx, build_blocks(function))
        emitter.emit_all()
        if self.is_part:
            _keep_results(ctx)
        remove_dead_code(ctx.code)
        if is_crowded(ctx.code):
            sink_instructions(ctx.code)
        allocation = allocate_registers(ctx.code)
        if allocation.stack_bytes:
            _set_stack_pointer(ctx, self.target)
        lines, labels = _print_code(ctx.code.blocks, allocation)
        for table, own in ((self.unknown, ctx.unknown), (self.external_calls, ctx.external_calls)):
            for name, (line, count) in own.items():
                first, others = table.get(name, (line, 0))
                table[name] = (first, others + count)
        self.notes |= ctx.notes
        if allocation.stack_bytes:
            self.notes.add(
                f"{function.name}: {allocation.stack_bytes} bytes of registers are kept in local memory, as "
                "the order of the PTX needs more than 255: ptxas may reorder"
            )
        return _LoweredFunction(function, lines, labels, allocation, shared_bytes, parameters)

    def _place_symbols(self, function: PtxFunction) -> tuple[dict[str, Symbol], int]:
        """Place shared and local variables of a kernel; those of unknown size last, at the same address."""
        start = _RESERVED_SHARED_BYTES if self.target.number >= _FIRST_RESERVED else 0
        places = dict(self.symbols)
        shared_end, local_end = start, 0
        variables = (*self.ptx.variables, *function.variables)
        for variable in variables:
            if variable.space == "shared" and not variable.is_extern:
                shared_end = _align(shared_end, variable.alignment_bytes)
                places[variable.name] = Symbol("shared", shared_end)
                shared_end += variable.n_bytes
            elif variable.space == "local":
                local_end = _align(local_end, variable.alignment_bytes)
                places[variable.name] = Symbol("local", local_end)
                local_end += variable.n_bytes
        for variable in variables:
            if variable.space == "shared" and variable.is_extern:
                places[variable.name] = Symbol(
                    "shared", _align(shared_end, max(16, variable.alignment_bytes))
                )
        return places, shared_end

    def _begin_kernel(self, lowered: _LoweredFunction) -> KernelBuilder:
        ids, marks, last = [], [], -1
        for row, (text, instruction) in enumerate(lowered.lines):
            ids.append(self.interner[text.encode()])
            line = instruction.source_line or SourceLine(self.path, instruction.line)
            number = self.source_lines.setdefault(line, len(self.source_lines))
            if number != last:
                marks.append((row, number))
                last = number
        n_rows = len(lowered.lines)
        return KernelBuilder(
            name=lowered.function.name,
            arch=self.target.name,
            line=lowered.function.line,
            text_ids=[np.array(ids, dtype=np.int32)],
            addresses=list(range(0, INSTRUCTION_BYTES * n_rows, INSTRUCTION_BYTES)),
            has_encodings=False,
            labels=[(name, INSTRUCTION_BYTES * row) for name, row in lowered.labels],
            source_line_marks=marks,
        )

    def _finish(self, lowered: _LoweredFunction, kernel: Kernel) -> Kernel:
        function = lowered.function
        threads = function.required_threads or function.max_threads
        block_threads = int(np.prod(threads)) if threads else None
        n_registers = min(
            -(-lowered.allocation.n_registers // _REGISTER_STEP) * _REGISTER_STEP, _MAX_REGISTERS
        )
        size = (*function.cluster_size, 1, 1)[:3] if function.cluster_size else None
        return replace(
            kernel,
            resources=KernelResources(
                registers=min(n_registers, function.max_registers or n_registers),
                shared_bytes=lowered.shared_bytes,
                local_bytes=lowered.allocation.stack_bytes or None,
                block_threads=block_threads,
                has_exact_block_threads=bool(function.required_threads),
            ),
            is_excerpt=self.is_part,
            parameters=lowered.parameters,
            parameter_base=self.target.parameter_base,
            constant_banks=self.banks,
            cluster=None if size is None else Dim3(*size),
            ptx_lines=np.array([instruction.line for _, instruction in lowered.lines], dtype=np.int64),
        )


def _keep_results(ctx: LoweringContext) -> None:
    """Keep what computes values that only their own instructions read, if any: what follows may do so."""
    read: set[str] = set()
    for statement in ctx.function.statements:
        if isinstance(statement, PtxInstruction):
            guard = [] if statement.guard is None else [statement.guard.register]
            read |= {*list_register_names(statement.operands), *guard} - {*find_defined_names(statement)}
    homes = {home.group for name, home in ctx.homes.items() if name not in read}
    bits = {number for name, number in ctx.predicates.items() if name not in read}
    for block in ctx.code.blocks:
        for instruction in block.code:
            defs = instruction.operands[: instruction.n_defs]
            instruction.has_effect |= any(
                each.group in homes
                if isinstance(each, WordRef)
                else isinstance(each, PredicateRef) and each.number in bits
                for each in defs
            )


def _set_stack_pointer(ctx: LoweringContext, target: Target) -> None:
    """Let the code begin with what sets R1: less than the frame, so that its slots lie below the top."""
    code = ctx.code.blocks[0].code
    first = next(instruction for block in ctx.code.blocks for instruction in block.code)
    top = f"c[0x0][{target.stack_pointer:#x}]"
    code.insert(0, VirtualInstruction("MOV", ("R1", top), 1, None, first.line, first.source_line, True))


def _align(position: int, alignment: int) -> int:
    return -(-position // max(alignment, 1)) * max(alignment, 1)


def _lay_out_parameters(function: PtxFunction, base: int) -> tuple[tuple[Parameter, ...], dict[str, int]]:
    """Place parameters one after the other, each at its alignment; return them and their offsets by name."""
    position, found, offsets = 0, [], {}
    for ordinal, variable in enumerate(function.parameters):
        position = _align(base + position, variable.alignment_bytes) - base
        size = max(variable.n_bytes, 1)
        offsets[variable.name] = position
        type_name = name_parameter_type(variable.type_name, is_scalar=variable.n_elements == 1)
        is_long = variable.n_elements == 1 and size == _POINTER_BYTES and type_name != "f64"
        found.append(
            Parameter(
                ordinal=ordinal,
                offset=position,
                size_bytes=size,
                is_pointer=True if variable.is_pointer else None if is_long else False,
                type_name="" if variable.is_pointer else type_name,
            )
        )
        position += size
    return tuple(found), offsets


def _place_variables(ptx: PtxModule) -> tuple[dict[str, Symbol], tuple[ConstantBank, ...]]:
    """Place constant variables in bank 3; global ones have their addresses in bank 4."""
    symbols: dict[str, Symbol] = {}
    contents, addresses = bytearray(), bytearray()
    relocations: list[Relocation] = []
    for variable in (*ptx.variables, *(v for f in ptx.functions for v in f.variables)):
        if variable.space == "const":
            start = _align(len(contents), variable.alignment_bytes)
            contents.extend(bytes(start - len(contents)))
            initial = variable.initial or b""
            contents.extend(initial.ljust(variable.n_bytes, b"\0")[: variable.n_bytes])
            symbols[variable.name] = Symbol("const", start)
        elif variable.space == "global":
            symbols[variable.name] = Symbol("global", len(addresses))
            relocations.append(_make_relocation(variable, len(addresses)))
            addresses.extend(bytes(_POINTER_BYTES))
    banks = []
    if contents:
        banks.append(ConstantBank(number=CONSTANT_BANK, contents=bytes(contents)))
    if relocations:
        banks.append(
            ConstantBank(number=ADDRESS_BANK, contents=bytes(addresses), relocations=tuple(relocations))
        )
    return symbols, tuple(banks)


def _make_relocation(variable: PtxVariable, offset: int) -> Relocation:
    return Relocation(
        offset=offset, size_bytes=_POINTER_BYTES, symbol=variable.name, object_bytes=variable.n_bytes or None
    )


def _find_constants(ctx: LoweringContext) -> None:
    """Find registers that are set once, to a number, the address of a variable, or a parameter."""
    counts = count_definitions(ctx.function)
    for statement in ctx.function.statements:
        if not isinstance(statement, PtxInstruction) or statement.guard is not None:
            continue
        target = statement.operands[0] if statement.operands else None
        if not isinstance(target, PtxRegister) or len(statement.operands) < 2 or counts.get(target.name) != 1:
            continue
        if statement.name == "mov" and target.name in ctx.predicates:
            source = statement.operands[1]
            if isinstance(source, PtxImmediate):
                ctx.predicate_constants[target.name] = bool(source.value)
            continue
        value = _find_constant_value(ctx, statement)
        if value is not None and ctx.count_words(target.name) in (1, 2):
            ctx.constants[target.name] = value


def _find_constant_value(ctx: LoweringContext, instruction: PtxInstruction) -> "int | ConstantRef | None":
    source = instruction.operands[1]
    if instruction.name == "mov" and isinstance(source, PtxImmediate | PtxSymbol | PtxRegister):
        if isinstance(source, PtxImmediate) and isinstance(source.value, float):
            return None
        return ctx.find_constant(source)
    if instruction.name == "cvta" and ("to" in instruction.modifiers and "global" in instruction.modifiers):
        found = ctx.find_constant(source)
        return found if isinstance(source, PtxRegister) else None
    is_parameter = instruction.name == "ld" and "param" in (w.split("::")[0] for w in instruction.modifiers)
    if not is_parameter or not isinstance(source, PtxAddress) or source.base is None:
        return None
    if instruction.modifiers[-1][1:] not in ("32", "64"):
        return None
    symbol = ctx.symbols.get(source.base.name)
    if symbol is None or symbol.space != "param":
        return None
    return ConstantRef(0, symbol.offset + source.offset)


class _BlockEmitter:
    """Emits the blocks of a function, with convergence barriers and branches."""

    def __init__(self, ctx: LoweringContext, blocks: list[PtxBlock]) -> None:
        self.ctx, self.blocks = ctx, blocks
        self.flow = FlowAnalysis(blocks)
        self.plan: Convergence = plan_convergence(self.flow, find_divergent_registers(self.flow))
        self.edge_labels: dict[tuple[int, int], str] = {}
        self.n_labels = 0

    def emit_all(self) -> None:
        """Emit all blocks that can be reached, in the order of the PTX."""
        reached = sorted(self.flow.reached)
        for place, block in enumerate(reached):
            before = reached[place - 1] if place else -1
            self._emit_edges(block, before)
            self._emit_block(block, reached[place + 1] if place + 1 < len(reached) else -1)
        self._link()

    # Edges: lanes that come to a block over an edge with an action pass through a block of their own.

    def _emit_edges(self, block: int, before: int) -> None:
        actions: dict[EdgeAction, list[int]] = {}
        for (source, target), action in self.plan.edges.items():
            if target == block:
                actions.setdefault(action, []).append(source)
        falls = before >= 0 and self.blocks[before].falls_through and before + 1 == block
        n_edges = sum(block in own for own in self.flow.successors) + (block == 0)
        is_common = len(actions) == 1 and len(next(iter(actions.values()))) == n_edges
        ordered = sorted(actions.items(), key=lambda item: before not in item[1])
        fall_action = next((action for action, sources in ordered if falls and before in sources), None)
        if falls and ordered and fall_action is None and not is_common:
            self._emit_jump(self._name(block))  # the lanes from above skip what others do
        for position, (action, sources) in enumerate(ordered):
            label = f".L_{block}_{position}"
            for source in sources:
                self.edge_labels[source, block] = label
            self._open_block(label)
            self._emit_action(action)
            if position + 1 < len(ordered):
                self._emit_jump(self._name(block))

    def _emit_action(self, action: EdgeAction) -> None:
        for barrier in action.closed:
            self._emit("BSYNC", f"B{barrier}")
        for barrier in action.opened:
            self._emit("BSSY", f"B{barrier}", f"`({self._name(self.plan.joins[barrier])})")

    def _emit_jump(self, label: str) -> None:
        self._emit("BRA", f"`({label})")

    def _emit(self, mnemonic: str, *operands: str) -> None:
        self.ctx.guard = None
        if self.ctx.current is None:
            first = next((i for b in self.blocks for i in (*b.body, b.end) if i is not None), None)
            self.ctx.current = first
        self.ctx.emit(mnemonic, *operands, n_defs=0)

    def _name(self, block: int) -> str:
        return f".L_{block}"

    def _open_block(self, label: str) -> None:
        block = VirtualBlock(label)
        self.ctx.code.blocks.append(block)
        self.ctx.begin_block(block.code)

    # Blocks

    def _emit_block(self, index: int, following: int) -> None:
        block = self.blocks[index]
        self._open_block(self._name(index))
        for instruction in block.body:
            lower_instruction(self.ctx, instruction)
        if block.end is not None:
            self.ctx.begin(block.end)
        for barrier in self.plan.opened_at_end.get(index, ()):
            guard = self.ctx.guard
            self._emit("BSSY", f"B{barrier}", f"`({self._name(self.plan.joins[barrier])})")
            self.ctx.guard = guard
        if block.end is not None:
            self._emit_end(index, block.end, block.taken)
        is_cut = not block.falls_through and block.end is None
        if is_cut or (block.falls_through and index + 1 != following):
            self._emit_exit()

    def _emit_exit(self) -> None:
        self._emit("EXIT")

    def _emit_end(self, index: int, end: PtxInstruction, taken: list[int]) -> None:
        self.ctx.begin(end)
        guard = self.ctx.guard
        if end.name in EXIT_NAMES:
            if end.name == "trap":
                self.ctx.emit("BPT.TRAP", "0x1", n_defs=0)
            self.ctx.emit("EXIT", n_defs=0)
        elif end.name == "brx":
            self._emit_table(index, end)
        elif not taken or (guard is not None and self._is_exit(index, taken[0])):
            self.ctx.emit("EXIT", n_defs=0)
        else:
            self._emit_branch(index, taken[0])

    def _is_exit(self, index: int, target: int) -> bool:
        """Return whether a branch leads to nothing but the end of the kernel."""
        block = self.blocks[target]
        ends = block.end is not None and block.end.name in ("ret", "exit") and block.end.guard is None
        return ends and not block.body and (index, target) not in self.plan.edges

    def _emit_branch(self, index: int, target: int) -> None:
        self.ctx.emit("BRA", f"@{index}@{target}", n_defs=0)

    def _emit_table(self, index: int, end: PtxInstruction) -> None:
        """Emit an indexed branch as a chain of compares."""
        from analyzer.frontend.ptx.control_flow import find_branch_table

        self.ctx.notes.add("an indexed branch is a chain of compares here")
        table = find_branch_table(self.ctx.function, end)
        numbers = {label: n for n, block in enumerate(self.blocks) for label in block.labels}
        try:
            selector = self.ctx.read_register(end.operands[0])
        except UnsupportedPtxError:
            self.ctx.note_unknown(end)
            selector = self.ctx.make_temporary()
            self.ctx.emit("PTX_UNKNOWN", selector, has_effect=True)
        for position, label in enumerate(table[:-1]):
            bit = self.ctx.make_predicate()
            value = f"{position:#x}" if position else "RZ"
            self.ctx.guard = None
            self.ctx.emit("ISETP.EQ.U32.AND", bit, TRUE, selector, value, TRUE, n_defs=2)
            self.ctx.guard = bit
            self._emit_branch(index, numbers[label])
        self.ctx.guard = None
        if table:
            self._emit_branch(index, numbers[table[-1]])

    # Targets are known once all edges have their labels.

    def _link(self) -> None:
        for block in self.ctx.code.blocks:
            for instruction in block.code:
                instruction.operands = tuple(
                    self._resolve(operand)
                    if isinstance(operand, str) and operand.startswith("@")
                    else operand
                    for operand in instruction.operands
                )
        places = {block.label: place for place, block in enumerate(self.ctx.code.blocks)}
        for place, block in enumerate(self.ctx.code.blocks):
            block.successors = _find_successors(block, place, len(self.ctx.code.blocks), places)

    def _resolve(self, text: str) -> str:
        _, source, target = text.split("@")
        edge = int(source), int(target)
        return f"`({self.edge_labels.get(edge, self._name(edge[1]))})"


def _find_successors(block: VirtualBlock, place: int, n_blocks: int, places: Mapping[str, int]) -> list[int]:
    """Return where control goes from a block of virtual code, which may branch more than once."""
    found = []
    falls_through = True
    for instruction in block.code:
        if instruction.mnemonic == "BRA":
            label = str(instruction.operands[0])[2:-1]
            found.append(places[label])
        if instruction.mnemonic in ("BRA", "EXIT") and instruction.guard is None:
            falls_through = False
    if falls_through and place + 1 < n_blocks:
        found.append(place + 1)
    return list(dict.fromkeys(found))


def _print_code(
    blocks: Sequence[VirtualBlock], allocation: Allocation
) -> tuple[list[tuple[str, VirtualInstruction]], list[tuple[str, int]]]:
    """Return the texts in order, and the row of each label."""
    lines: list[tuple[str, VirtualInstruction]] = []
    labels = []
    for block in blocks:
        labels.append((block.label, len(lines)))
        lines += [
            (_print_instruction(instruction, allocation), instruction)
            for instruction in block.code
            if not _is_empty_move(instruction, allocation)
        ]
    return lines, [(name, min(row, len(lines) - 1)) for name, row in labels]


def _is_empty_move(instruction: VirtualInstruction, allocation: Allocation) -> bool:
    """Return whether a copy is one of a register to itself."""
    if instruction.mnemonic != "MOV":
        return False
    texts = [format_operand(o, allocation.words, allocation.predicates) for o in instruction.operands]
    return texts[0] == texts[1]


def _print_instruction(instruction: VirtualInstruction, allocation: Allocation) -> str:
    operands = [format_operand(o, allocation.words, allocation.predicates) for o in instruction.operands]
    guard = ""
    if instruction.guard is not None:
        guard = "@" + format_operand(instruction.guard, allocation.words, allocation.predicates) + " "
    return f"{guard}{instruction.mnemonic} {', '.join(operands)}".rstrip()
