"""A scalar interpreter of SASS: each lane on Python ints, with the control flow of whole warps.

It is the reference for the counts of abstract execution, so it shares only the parsed operands with the
analyzer. Each instruction is compiled once to a small Python function that runs it for the active lanes:

    IADD3 R1, R2, 0x5, RZ  ->  for i in lanes: R = w.R[i]; x = (R[2] + 5 + 0) & M; R[1] = x & M

Lanes of a warp that are at the same instruction (a `LaneGroup`) execute together. They are split at a
divergent branch and are merged again only at BSYNC and WARPSYNC, as on Volta and later. A convergence
barrier has a mask per lane, a uniform register one value per warp. Groups of a warp run one after the
other, each until it waits or exits; then CTA barriers are released. The order does not change the counts of
a kernel without data races.

Only the opcodes of `kernels/control.cu` are known; any other raises `NotImplementedError`.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from analyzer.ir.module import InstructionForm, Kernel
from analyzer.ir.operand import (
    Address,
    BarrierRegister,
    ConstantBankOperand,
    DescriptorOperand,
    Immediate,
    Operand,
    Predicate,
    PredicateFile,
    Register,
    RegisterFile,
    SpecialOperand,
)

M = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF
LANES = 32
_SHARED_WINDOW = 0xFFFFFF

# Offsets in constant bank 0 of block size, grid size and stack pointer: up to sm_90, and from sm_100 on.
_OLD_BANK = (0x0, 0xC, 0x28)
_NEW_BANK = (0x360, 0x370, 0x37C)

Dim = tuple[int, int, int]


class DeadlockError(Exception):
    """Lanes wait for each other forever, or too many steps were executed."""


# ---- launch --------------------------------------------------------------------------------------


@dataclass
class AccessCounts:
    """Executions of one memory instruction over the grid."""

    requests: int = 0
    lanes: int = 0
    width: int = 0  # bytes of a lane
    starts: set[int] = field(default_factory=set)  # addresses of lanes

    @property
    def unique_bytes(self) -> int:
        return len({start + byte for start in self.starts for byte in range(self.width)})


@dataclass
class OracleResult:
    """Counts of a launch."""

    warps: list[tuple[list[int], list[int]]]  # by warp of the grid: executions by row, active lanes by row
    memory: dict[tuple[int, str], AccessCounts]  # by row and memory space


class Oracle:
    """One launch of one kernel.

    arguments: bytes of the parameter area of constant bank 0.
    buffers: (address, contents) of global memory; other addresses read 0.
    """

    def __init__(
        self,
        kernel: Kernel,
        arch: int,
        grid: Dim,
        block: Dim,
        arguments: bytes,
        buffers: Sequence[tuple[int, bytes]] = (),
        max_steps: int = 300_000,
    ) -> None:
        self.kernel, self.grid, self.block, self.max_steps = kernel, grid, block, max_steps
        self.steps = 0
        sizes, extents, stack = _NEW_BANK if arch >= 100 else _OLD_BANK
        bank = bytearray(4096)
        struct.pack_into("<3I", bank, sizes, *block)
        struct.pack_into("<3I", bank, extents, *grid)
        struct.pack_into("<I", bank, stack, 0xFFF000)
        base = 0x380 if arch >= 100 else 0x210 if arch >= 90 else 0x160
        bank[base : base + len(arguments)] = arguments
        self.banks: dict[int, bytes] = {0: bytes(bank)}
        for other in kernel.constant_banks or ():
            self.banks[other.number] = bytes(other.contents)
        self.buffers = [(start, bytearray(data)) for start, data in buffers]
        self.rows = {int(address): row for row, address in enumerate(kernel.addresses)}
        self.codes: list[Code | None] = [None] * len(kernel)
        self.memory: dict[tuple[int, str], AccessCounts] = {}

    def run(self) -> OracleResult:
        outcomes = []
        n_threads = self.block[0] * self.block[1] * self.block[2]
        for z in range(self.grid[2]):
            for y in range(self.grid[1]):
                for x in range(self.grid[0]):
                    cta = Cta(self, (x, y, z), n_threads)
                    cta.run()
                    outcomes += [(warp.runs, warp.lanes) for warp in cta.warps]
        return OracleResult(outcomes, self.memory)

    def code(self, row: int) -> "Code":
        found = self.codes[row]
        if found is None:
            found = self.codes[row] = Code(self.kernel.decode_form(row), row, int(self.kernel.addresses[row]))
        return found

    def constant(self, bank: int, offset: int, size: int = 4) -> int:
        data = self.banks[bank][offset & M : (offset & M) + size]
        return int.from_bytes(data, "little")

    def record_access(self, row: int, space: str, width: int, starts: list[int]) -> None:
        found = self.memory.setdefault((row, space), AccessCounts(width=width))
        found.requests += 1
        found.lanes += len(starts)
        found.starts.update(starts)

    def load_global(self, address: int, size: int) -> int:
        for start, data in self.buffers:
            if start <= address <= start + len(data) - size:
                return int.from_bytes(data[address - start : address - start + size], "little")
        return 0

    def store_global(self, address: int, size: int, value: int) -> None:
        for start, data in self.buffers:
            if start <= address <= start + len(data) - size:
                data[address - start : address - start + size] = value.to_bytes(size, "little")


# ---- lanes, warps and CTAs -----------------------------------------------------------------------


@dataclass
class LaneGroup:
    """Lanes of one warp that are at the same instruction and execute together."""

    row: int
    lanes: list[int]


class Cta:
    def __init__(self, oracle: Oracle, place: Dim, n_threads: int) -> None:
        self.oracle, self.place, self.n_threads = oracle, place, n_threads
        self.shared = bytearray(1 << 18)
        self.warps = [Warp(self, first) for first in range(0, n_threads, LANES)]

    def run(self) -> None:
        while any(warp.live for warp in self.warps):
            for warp in self.warps:
                warp.run()
            if any(warp.live for warp in self.warps) and not self._release_barriers():
                raise DeadlockError("a barrier that not all come to")

    def _release_barriers(self) -> bool:
        """Release threads at barriers where enough have arrived; return whether any was released."""
        released = False
        for number in {number for warp in self.warps for number, _, _ in warp.at_barrier}:
            waiting = [entry for warp in self.warps for entry in warp.at_barrier if entry[0] == number]
            arrived = sum(len(group.lanes) for _, _, group in waiting)
            wanted = waiting[0][1] or sum(len(warp.live) for warp in self.warps)
            if arrived < wanted:
                continue
            released = True
            for warp in self.warps:
                ready = [entry[2] for entry in warp.at_barrier if entry[0] == number]
                warp.at_barrier = [entry for entry in warp.at_barrier if entry[0] != number]
                warp.ready += [LaneGroup(f.row + 1, f.lanes) for f in ready]
        return released


class Warp:
    """Registers and positions of 32 lanes.

    R, P, B: general registers, predicates (P[7] is PT) and masks of convergence barriers, by lane.
    U, V: uniform registers and predicates.
    runs, lanes: executions and active lanes, by row.
    """

    def __init__(self, cta: Cta, first: int) -> None:
        self.cta, self.oracle = cta, cta.oracle
        n_rows = len(self.oracle.kernel)
        self.R = [[0] * 260 for _ in range(LANES)]
        self.P = [[False] * 7 + [True] for _ in range(LANES)]
        self.B = [[0] * 16 for _ in range(LANES)]
        self.local: list[dict[int, int]] = [{} for _ in range(LANES)]
        self.U, self.V = [0] * 130, [False] * 7 + [True]
        self.runs, self.lanes = [0] * n_rows, [0] * n_rows
        self.live = set(range(min(LANES, cta.n_threads - first)))
        self.ready = [LaneGroup(0, sorted(self.live))]
        self.at_convergence_barrier: dict[int, tuple[int, int]] = {}  # lane: (row of its BSYNC, barrier)
        self.at_warp_sync: dict[int, tuple[int, int]] = {}  # lane: (row, mask)
        self.at_barrier: list[tuple[int, int, LaneGroup]] = []  # (number, threads wanted, group)
        self.special = [self._special(first + lane) for lane in range(LANES)]

    def _special(self, thread: int) -> dict[str, int]:
        (x, y, _), place = self.oracle.block, self.cta.place
        lane = thread % LANES
        return {
            "SR_TID.X": thread % x,
            "SR_TID.Y": thread // x % y,
            "SR_TID.Z": thread // (x * y),
            "SR_CTAID.X": place[0],
            "SR_CTAID.Y": place[1],
            "SR_CTAID.Z": place[2],
            "SR_LANEID": lane,
            "SR_LTMASK": (1 << lane) - 1,
            "SR_CgaCtaId": 0,
            "SRZ": 0,
        }

    def run(self) -> None:
        """Execute until no lane of the warp can continue."""
        while self.ready:
            group = self.ready.pop()
            while group is not None:
                group = self.step(group)  # type: ignore[assignment]

    def step(self, group: LaneGroup) -> LaneGroup | None:
        """Execute one instruction; return the group that continues, while others become ready or wait."""
        oracle, row = self.oracle, group.row
        oracle.steps += 1
        if oracle.steps > oracle.max_steps:
            raise DeadlockError("too many steps")
        self.runs[row] += 1
        self.lanes[row] += len(group.lanes)
        code = oracle.code(row)
        active = code.active(self, group.lanes)
        if code.flow is None:
            if active:
                code.run(self, active)
            return LaneGroup(row + 1, group.lanes)
        return code.flow(self, group, active)

    def split(self, places: dict[int, list[int]]) -> LaneGroup | None:
        """Make a group of the lanes of each row; return the first one, the others become ready."""
        found = [LaneGroup(row, lanes) for row, lanes in sorted(places.items()) if lanes]
        self.ready += found[1:]
        return found[0] if found else None

    def release_waiting_lanes(self) -> None:
        """Release lanes at BSYNC and WARPSYNC whose partners have all arrived or exited.

        Partners have the same row and the same mask: in a recursion, lanes of an outer call may wait at the
        same BSYNC with another mask.
        """
        live = sum(1 << lane for lane in self.live)
        for waiting, is_sync in ((self.at_convergence_barrier, False), (self.at_warp_sync, True)):
            wanted = {
                lane: (row, (what if is_sync else self.B[lane][what]) & live | 1 << lane)
                for lane, (row, what) in waiting.items()
            }
            for lane, place in sorted(wanted.items()):
                partners = [other for other in range(LANES) if place[1] >> other & 1]
                if lane in waiting and all(other in waiting and wanted[other] == place for other in partners):
                    for other in partners:
                        del waiting[other]
                    self.ready.append(LaneGroup(place[0] + 1, partners))


# ---- instructions as functions -------------------------------------------------------------------


Flow = Callable[[Warp, LaneGroup, list[int]], LaneGroup | None]


class Code:
    """One instruction; `flow` is None if it is not a control-flow instruction."""

    def __init__(self, form: InstructionForm, row: int, address: int) -> None:
        self.form, self.row, self.address = form, row, address
        self.name, self.words = form.opcode.name, form.opcode.modifiers
        guard = form.guard
        self.guard: Callable[[Warp, int], bool] | None = None
        if guard is not None and (guard.index is not None or guard.is_negated):
            self.guard = _function(f"lambda w, i: {_predicate_text(guard, 'w.P[i]', 'w.V')}")
        self.flow: Flow | None = getattr(self, "_flow_" + self.name.lower(), None)
        self.run: Callable[[Warp, list[int]], None] = _nothing
        if self.flow is None and self.name not in _IDLE and not form.is_never_executed:
            self.run = self._compiled()

    def active(self, warp: Warp, lanes: list[int]) -> list[int]:
        return lanes if self.guard is None else [lane for lane in lanes if self.guard(warp, lane)]

    def _compiled(self) -> Callable[[Warp, list[int]], None]:
        if self.name in _WARP_WIDE:
            return _WARP_WIDE[self.name](self)
        if self.name in _MEMORY:
            return _MEMORY[self.name](self)
        operands = list(self.form.operands)
        results, sources = _split(self.name, operands)
        if self.name not in _RULES and self.name.removeprefix("U") not in _RULES:
            raise NotImplementedError(self.form.text)
        rule = _RULES.get(self.name) or _RULES[self.name.removeprefix("U")]
        values = rule(Sources(self.words, sources, self.form.text))
        lines = ["def run(w, lanes):", "    U, V, C = w.U, w.V, w.oracle.constant"]
        once = any(isinstance(r, Register) and r.file is RegisterFile.UNIFORM for r in results) or any(
            isinstance(r, Predicate) and r.file is PredicateFile.UNIFORM for r in results
        )
        lines.append("    for i in lanes[:1]:" if once else "    for i in lanes:")
        lines.append("        R, P, S = w.R[i], w.P[i], w.special[i]")
        lines += [f"        {line}" for line in _assignments(results, values, self.form.text)]
        namespace = dict(globals())
        exec("\n".join(lines), namespace)
        found: Callable[[Warp, list[int]], None] = namespace["run"]
        return found

    # ---- flow ----

    def _target(self, oracle: Oracle) -> int:
        value = next(o.value for o in reversed(self.form.operands) if isinstance(o, Immediate))
        return oracle.rows[int(value)]

    def _conditions(self, warp: Warp, lanes: list[int]) -> list[int]:
        for operand in self.form.operands:
            if isinstance(operand, Predicate):
                lanes = [lane for lane in lanes if _is_predicate_true(warp, operand, lane)]
        return lanes

    def _branch_to(self, warp: Warp, group: LaneGroup, taken: list[int]) -> LaneGroup | None:
        chosen = set(taken)
        stays = [lane for lane in group.lanes if lane not in chosen]
        target = self._target(warp.oracle)
        if target == self.row + 1:
            return LaneGroup(target, group.lanes)
        return warp.split({self.row + 1: stays, target: taken})

    def _flow_bra(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        if self.words in (("DIV",), ("CONV",)):
            return self._branch_to(warp, group, active if self._is_divergent(warp, group) else [])
        if not set(self.words) <= {"U"}:
            raise NotImplementedError(self.form.text)
        return self._branch_to(warp, group, self._conditions(warp, active))

    def _is_divergent(self, warp: Warp, group: LaneGroup) -> bool:
        """Return whether BRA.DIV (lanes of its mask are at another row) or BRA.CONV (none is) is taken."""
        mask = M
        for operand in self.form.operands:
            if isinstance(operand, Register) and not operand.is_inverted:
                registers = warp.U if operand.file is RegisterFile.UNIFORM else warp.R[group.lanes[0]]
                mask = M if operand.index is None else registers[operand.index]
        missing = any(mask >> lane & 1 for lane in warp.live - set(group.lanes))
        return missing if "DIV" in self.words else not missing

    def _flow_call(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        return self._branch_to(warp, group, active)

    def _indirect(self, warp: Warp, group: LaneGroup, active: list[int], base: int) -> LaneGroup | None:
        register = next(o for o in self.form.operands if isinstance(o, Register))
        places: dict[int, list[int]] = {}
        for lane in group.lanes:
            row = self.row + 1
            if lane in active:
                row = warp.oracle.rows[_signed(warp.R[lane][register.index or 0]) + base]
            places.setdefault(row, []).append(lane)
        return warp.split(places)

    def _flow_ret(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        return self._indirect(warp, group, active, 0)

    def _flow_brx(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        offset = next(int(o.value) for o in self.form.operands if isinstance(o, Immediate))
        return self._indirect(warp, group, active, self.address + 16 + offset)

    def _flow_exit(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        exiting = set(self._conditions(warp, active))
        warp.live -= exiting
        warp.release_waiting_lanes()
        return warp.split({self.row + 1: [lane for lane in group.lanes if lane not in exiting]})

    def _flow_bssy(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        mask = sum(1 << lane for lane in active)
        for lane in active:
            warp.B[lane][self._barrier] = mask
        return LaneGroup(self.row + 1, group.lanes)

    def _flow_bsync(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        for lane in active:
            warp.at_convergence_barrier[lane] = (self.row, self._barrier)
        warp.release_waiting_lanes()
        chosen = set(active)
        return warp.split({self.row + 1: [lane for lane in group.lanes if lane not in chosen]})

    def _flow_break(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        leaving = self._conditions(warp, active)
        mask = ~sum(1 << lane for lane in leaving)
        members = {lane for one in leaving for lane in range(LANES) if warp.B[one][self._barrier] >> lane & 1}
        for lane in members:
            warp.B[lane][self._barrier] &= mask
        warp.release_waiting_lanes()
        return LaneGroup(self.row + 1, group.lanes)

    def _flow_bmov(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        first, second = self.form.operands
        for lane in active:
            if isinstance(first, BarrierRegister):
                assert isinstance(second, Register)
                warp.B[lane][first.index] = 0 if second.index is None else warp.R[lane][second.index]
            else:
                assert isinstance(first, Register)
                assert isinstance(second, BarrierRegister)
                if first.index is not None:
                    warp.R[lane][first.index] = warp.B[lane][second.index]
                if "CLEAR" in self.words:
                    warp.B[lane][second.index] = 0
        return LaneGroup(self.row + 1, group.lanes)

    def _flow_warpsync(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        operand = self.form.operands[0] if self.form.operands else None
        for lane in active:
            mask = M
            if isinstance(operand, Immediate):
                mask = int(operand.value) & M
            elif isinstance(operand, Register):
                mask = warp.R[lane][operand.index or 0]
            warp.at_warp_sync[lane] = (self.row, mask)
        warp.release_waiting_lanes()
        chosen = set(active)
        return warp.split({self.row + 1: [lane for lane in group.lanes if lane not in chosen]})

    def _flow_bar(self, warp: Warp, group: LaneGroup, active: list[int]) -> LaneGroup | None:
        if "SYNC" not in self.words:
            raise NotImplementedError(self.form.text)
        numbers = [int(o.value) for o in self.form.operands if isinstance(o, Immediate)]
        if active:
            wanted = numbers[1] if len(numbers) > 1 else 0
            warp.at_barrier.append((numbers[0], wanted, LaneGroup(self.row, active)))
        chosen = set(active)
        return warp.split({self.row + 1: [lane for lane in group.lanes if lane not in chosen]})

    @property
    def _barrier(self) -> int:
        return next(o.index for o in self.form.operands if isinstance(o, BarrierRegister))


def _nothing(warp: Warp, lanes: list[int]) -> None:
    pass


_IDLE = frozenset({"NOP", "DEPBAR", "MEMBAR", "ERRBAR", "CCTL", "YIELD"})


# ---- operands as text ----------------------------------------------------------------------------


def _function(text: str) -> Any:
    return eval(text, globals())


def _predicate_text(operand: Operand, lane: str = "P", uniform: str = "V") -> str:
    assert isinstance(operand, Predicate)
    where = uniform if operand.file is PredicateFile.UNIFORM else lane
    text = f"{where}[{7 if operand.index is None else operand.index}]"
    return f"(not {text})" if operand.is_negated else text


def _is_predicate_true(warp: Warp, operand: Predicate, lane: int) -> bool:
    where = warp.V if operand.file is PredicateFile.UNIFORM else warp.P[lane]
    return where[7 if operand.index is None else operand.index] is not operand.is_negated


def _register_text(register: Register, more: int = 0) -> str:
    if register.index is None:
        return "0"
    return f"{'U' if register.file is RegisterFile.UNIFORM else 'R'}[{register.index + more}]"


def _apply_modifiers(operand: Register | ConstantBankOperand, text: str, mask: str) -> str:
    if operand.is_absolute:
        raise NotImplementedError(str(operand))
    if operand.is_inverted:
        text = f"(~{text} & {mask})"
    return f"(-{text} & {mask})" if operand.is_negated else text


def _word_text(operand: Operand) -> str:
    match operand:
        case Register():
            return _apply_modifiers(operand, _register_text(operand), "M")
        case ConstantBankOperand(bank=bank, offset=offset, base=base):
            at = str(offset) if base is None else f"{_register_text(base)} + {offset}"
            return _apply_modifiers(operand, f"C({bank}, {at})", "M")
        case Immediate(value=int(value)):
            return str(value & M)
        case Immediate(value=float(value)):
            return str(struct.unpack("<I", struct.pack("<f", value))[0])
        case SpecialOperand(name=name):
            return f"S[{name!r}]"
        case _:
            raise NotImplementedError(str(operand))


def _pair_text(operand: Operand) -> str:
    match operand:
        case Register(index=None):
            return "0"
        case Register():
            return _apply_modifiers(
                operand, f"({_register_text(operand)} | {_register_text(operand, 1)} << 32)", "M64"
            )
        case ConstantBankOperand(bank=bank, offset=offset, base=None):
            return _apply_modifiers(operand, f"C({bank}, {offset}, 8)", "M64")
        case Immediate(value=int(value)):
            return str(_signed(value & M) & M64 if value < 1 << 32 else value)
        case _:
            raise NotImplementedError(str(operand))


def _address_text(operand: Operand, wide: bool) -> str:
    if isinstance(operand, DescriptorOperand):
        assert operand.address is not None
        operand = operand.address
    assert isinstance(operand, Address)
    terms = [str(operand.offset)]
    for base in operand.bases:
        scale = next((int(s[1:]) for s in base.suffixes if s in ("X4", "X8", "X16")), 1)
        is_pair = wide and "U32" not in base.suffixes
        plain = Register(base.file, base.index)
        terms.append(f"{_pair_text(plain) if is_pair else _word_text(plain)} * {scale}")
    return f"({' + '.join(terms)}) & {'M64' if wide else 'M'}"


def _split(name: str, operands: list[Operand]) -> tuple[list[Operand], list[Operand]]:
    """Split operands into results and sources; results are predicates, a register, predicates, mostly."""
    plain = name.removeprefix("U")
    if plain in ("ISETP", "PLOP3"):
        return operands[:2], operands[2:]
    place = 0
    while isinstance(operands[place], Predicate):
        place += 1
    place += 1
    while plain not in ("SEL",) and place < len(operands) and isinstance(operands[place], Predicate):
        place += 1
    return operands[:place], operands[place:]


def _assignments(results: list[Operand], values: "Values", text: str) -> Iterator[str]:
    predicates = [r for r in results if isinstance(r, Predicate)]
    wanted = [r for r in predicates if r.index is not None]
    if len(wanted) > len(values.predicates):
        raise NotImplementedError(text)
    targets, sources = [], []
    for register in results:
        if isinstance(register, Register) and register.index is not None:
            yield f"x = {values.word}"
            targets.append(_register_text(register))
            sources.append("x & M")
            for more in range(1, values.n_words):
                targets.append(_register_text(register, more))
                sources.append(f"x >> {32 * more} & M")
    for predicate, value in zip(predicates, values.predicates, strict=False):
        if predicate.index is not None:
            targets.append(_predicate_text(Predicate(predicate.file, predicate.index)))
            sources.append(f"bool({value})")
    yield f"{', '.join(targets)} = {', '.join(sources)}" if targets else "pass"


@dataclass
class Values:
    """Results of an instruction, as Python expressions."""

    word: str = "0"
    predicates: tuple[str, ...] = ()
    n_words: int = 1


class Sources:
    """Source operands of an instruction, predicates apart."""

    def __init__(self, words: tuple[str, ...], operands: list[Operand], text: str) -> None:
        self.words, self.text = words, text
        self.operands = [o for o in operands if not isinstance(o, Predicate)]
        self.predicates = [_predicate_text(o) for o in operands if isinstance(o, Predicate)]

    def word(self, place: int) -> str:
        return _word_text(self.operands[place])

    def signed(self, place: int) -> str:
        return f"_signed({self.word(place)})"

    def pair(self, place: int) -> str:
        return _pair_text(self.operands[place])

    def number(self, place: int) -> int:
        operand = self.operands[place]
        assert isinstance(operand, Immediate)
        return int(operand.value)

    def has(self, *words: str) -> bool:
        return any(word in self.words for word in words)


# ---- semantics of opcodes ------------------------------------------------------------------------


def _signed(value: int, bits: int = 32) -> int:
    return value - (value >> (bits - 1) << bits)


def _add3(s: Sources) -> Values:
    if s.has("64"):
        return Values(" + ".join(s.pair(n) for n in range(len(s.operands))) + " & M64", n_words=2)
    total = " + ".join(s.word(n) for n in range(len(s.operands)))
    # The carry of -b is that of 2**32 - b, also for b = 0.
    extra = "".join(
        f" + ({s.word(n)} == 0) * (M + 1)"
        for n, o in enumerate(s.operands)
        if isinstance(o, Register | ConstantBankOperand) and o.is_negated
    )
    if s.has("X"):
        total += "".join(f" + {p}" for p in s.predicates)
        extra = ""
    return Values(f"({total}) & M", (f"({total}{extra}) >> 32", f"({total}{extra}) >> 33 | 0"))


def _mad(s: Sources) -> Values:
    a, b = (s.word(0), s.word(1)) if s.has("U32") else (s.signed(0), s.signed(1))
    if s.has("WIDE"):
        carry = f" + {s.predicates[0]}" if s.has("X") else ""
        total = f"({a} * {b} & M64) + {s.pair(2)}{carry}"
        return Values(f"({total}) & M64", (f"({total}) >> 64",), n_words=2)
    if s.has("HI"):
        total = f"({a} * {b} & M64) + {s.pair(2)}"
        return Values(f"({total}) >> 32 & M", (f"({total}) >> 64",))
    carry = f" + {s.predicates[0]}" if s.has("X") else ""
    return Values(f"({s.word(0)} * {s.word(1)} + {s.word(2)}{carry}) & M")


_COMPARE = {"LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!="}
_JOIN = {"AND": "and", "OR": "or", "XOR": "!="}


def _compare(s: Sources) -> Values:
    sign = _COMPARE[next(w for w in s.words if w in _COMPARE)]
    join = _JOIN[next(w for w in s.words if w in _JOIN)]
    if s.has("S64"):
        a, b = f"_signed({s.pair(0)}, 64)", f"_signed({s.pair(1)}, 64)"
    elif s.has("U64"):
        a, b = s.pair(0), s.pair(1)
    else:
        a, b = (s.word(0), s.word(1)) if s.has("U32") else (s.signed(0), s.signed(1))
    result = f"({a} {sign} {b})"
    if s.has("EX"):
        low = s.predicates[1]
        strict = {"<=": "<", ">=": ">", "<": "<", ">": ">", "==": None, "!=": "!="}[sign]
        result = f"(({a} {strict} {b}) or " if strict else "("
        result += f"({a} == {b} and {low}))"
    other = f"bool({s.predicates[0]})"
    return Values(predicates=(f"({result}) {join} {other}", f"(not {result}) {join} {other}"))


def _table3(table: int, a: int, b: int, c: int) -> int:
    found = 0
    for place in range(8):
        if table >> place & 1:
            found |= (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
    return found & M


def _logic(s: Sources) -> Values:
    value = f"_table3({s.number(3)}, {s.word(0)}, {s.word(1)}, {s.word(2)})"
    return Values(value, (f"{value} != 0 or {s.predicates[0]}",))


def _predicate_logic(s: Sources) -> Values:
    a, b, c = s.predicates
    return Values(predicates=tuple(f"_table3({s.number(n)}, -{a}, -{b}, -{c}) & 1" for n in range(2)))


def _select(s: Sources) -> Values:
    read = s.pair if s.has("64") else s.word
    return Values(f"{read(0)} if {s.predicates[0]} else {read(1)}", n_words=2 if s.has("64") else 1)


def _min_max(s: Sources) -> Values:
    return _least(s, s.word(0) if s.has("U32") else s.signed(0), 1)


def _add_min_max(s: Sources) -> Values:
    total = f"({s.word(0)} + {s.word(1)} & M)"
    return _least(s, total if s.has("U32") else f"_signed({total})", 2)


def _least(s: Sources, first: str, second: int) -> Values:
    if s.has("S64"):
        a, b = f"_signed({s.pair(0)}, 64)", f"_signed({s.pair(1)}, 64)"
        return Values(f"(min if {s.predicates[0]} else max)({a}, {b}) & M64", n_words=2)
    other = s.word(second) if s.has("U32") else s.signed(second)
    return Values(f"(min if {s.predicates[-1]} else max)({first}, {other}) & M")


def _shift_add(s: Sources) -> Values:
    """LEA: (a << n) + b; with HI, a is a pair and b is added to the high word of the shifted pair."""
    carry = f" + {s.predicates[0]}" if s.has("X") else ""
    if not s.has("HI"):
        total = f"({s.word(0)} << {s.number(2)} & M) + {s.word(1)}{carry}"
        return Values(f"({total}) & M", (f"({total}) >> 32",))
    if s.has("SX32"):
        high = f"({s.signed(0)} << {s.number(2)} >> 32)"
    else:
        high = f"(({s.word(0)} | {s.word(2)} << 32) << {s.number(3)} >> 32)"
    total = f"({high} & M) + {s.word(1)}{carry}"
    return Values(f"({total}) & M", (f"({total}) >> 32",))


def _shift(s: Sources) -> Values:
    if s.has("W"):
        raise NotImplementedError(s.text)
    low, by, high = s.word(0), s.word(1), s.word(2)
    both = f"({low} | {high} << 32)"
    if s.has("L"):
        shifted = f"{both} << {by}"
        return Values(f"({shifted}) >> 32 & M" if s.has("HI") else f"({low} << {by}) & M")
    if s.has("HI"):
        return Values(f"({'_signed(' + high + ')' if s.has('S32') else high}) >> {by} & M")
    return Values(f"{both} >> {by} & M")


def _permuted(a: int, selector: int, b: int) -> int:
    data = (a | b << 32).to_bytes(8, "little")
    found = 0
    for place in range(4):
        nibble = selector >> 4 * place & 15
        byte = data[nibble & 7]
        if nibble & 8:
            byte = 255 if byte & 128 else 0
        found |= byte << 8 * place
    return found


def _half_constant(s: Sources) -> Values:
    """HFMA2 R, -RZ, RZ, high, low: a constant of two halves."""
    if not all(isinstance(o, Register) and o.index is None for o in s.operands[:2]):
        raise NotImplementedError(s.text)
    high, low = (float(o.value) for o in s.operands[2:] if isinstance(o, Immediate))
    return Values(str(int.from_bytes(struct.pack("<ee", low, high), "little")))


def _constant_load(s: Sources) -> Values:
    operand = s.operands[0]
    assert isinstance(operand, ConstantBankOperand)
    size = next((int(w[1:]) // 8 for w in s.words if w in ("U8", "U16")), 8 if s.has("64") else 4)
    size = 16 if s.has("128") else size
    at = str(operand.offset) if operand.base is None else f"{_register_text(operand.base)} + {operand.offset}"
    return Values(f"C({operand.bank}, {at}, {size})", n_words=max(1, size // 4))


def _of_word(text: str) -> Callable[[Sources], Values]:
    return lambda s: Values(text.format(s.word(0)))


def _leading(s: Sources) -> Values:
    found = f"({s.word(0)}).bit_length()"
    return Values(f"(32 - {found} if {found} else M)" if s.has("SH") else f"({found} - 1) & M")


def _rounded_up(value: int) -> int:
    """Return the bits of the least float that is not below an integer."""
    found = np.float32(value)
    while int(found) < value:
        found = np.nextafter(found, np.float32(np.inf))
    while int(np.nextafter(found, np.float32(-np.inf))) >= value:
        found = np.nextafter(found, np.float32(-np.inf))
    return int(found.view(np.uint32)) if value else 0


def _to_float(s: Sources) -> Values:
    if not s.has("RP"):
        raise NotImplementedError(s.text)
    value = s.pair(0) if s.has("U64") else s.word(0) if s.has("U32") else s.signed(0)
    return Values(f"_rounded_up({value})")


def _float(word: int) -> float:
    found: float = struct.unpack("<f", struct.pack("<I", word))[0]
    return found


def _truncated(word: int, bits: int) -> int:
    value = _float(word)
    if value != value:
        return 0
    if value >= 1 << bits:
        return (1 << bits) - 1
    return max(0, int(value))


def _to_int(s: Sources) -> Values:
    if not s.has("U32", "U64"):
        raise NotImplementedError(s.text)
    wide = s.has("U64")
    return Values(f"_truncated({s.word(0)}, {64 if wide else 32})", n_words=2 if wide else 1)


def _reciprocal(word: int) -> int:
    value = _float(word)
    found = inf if value == 0 else 1 / value
    return int.from_bytes(struct.pack("<f", found), "little")


def _function_of(s: Sources) -> Values:
    if s.words != ("RCP",):
        raise NotImplementedError(s.text)
    return Values(f"_reciprocal({s.word(0)})")


def _move(s: Sources) -> Values:
    return Values(s.pair(0) if s.has("64") else s.word(0), n_words=2 if s.has("64") else 1)


_RULES: dict[str, Callable[[Sources], Values]] = {
    "IADD3": _add3,
    "IADD": _add3,
    "VIADD": _add3,
    "IMAD": _mad,
    "ISETP": _compare,
    "LOP3": _logic,
    "PLOP3": _predicate_logic,
    "SEL": _select,
    "IMNMX": _min_max,
    "VIMNMX": _min_max,
    "VIADDMNMX": _add_min_max,
    "LEA": _shift_add,
    "SHF": _shift,
    "PRMT": lambda s: Values(f"_permuted({s.word(0)}, {s.word(1)}, {s.word(2)})"),
    "HFMA2": _half_constant,
    "MOV": _move,
    "S2R": _move,
    "S2UR": _move,
    "CS2R": lambda s: Values(s.word(0), n_words=1 if s.has("32") else 2),
    "R2UR": _move,
    "LDC": _constant_load,
    "LDCU": _constant_load,
    "ULDC": _constant_load,
    "IABS": lambda s: Values(f"abs({s.signed(0)}) & M"),
    "POPC": _of_word("({}).bit_count()"),
    "BREV": _of_word("int(f'{{{}:032b}}'[::-1], 2)"),
    "FLO": _leading,
    "I2F": _to_float,
    "F2I": _to_int,
    "MUFU": _function_of,
}


# ---- across lanes --------------------------------------------------------------------------------


def _set(warp: Warp, target: Operand, lane: int, value: int) -> None:
    assert isinstance(target, Register)
    if target.index is not None:
        (warp.U if target.file is RegisterFile.UNIFORM else warp.R[lane])[target.index] = value & M


def _reader(operand: Operand) -> Callable[[Warp, int], int]:
    text = (
        _word_text(operand).replace("R[", "w.R[i][").replace("U[", "w.U[").replace("C(", "w.oracle.constant(")
    )
    found: Callable[[Warp, int], int] = _function(f"lambda w, i: {text}")
    return found


def _vote(code: Code) -> Callable[[Warp, list[int]], None]:
    *targets, source = code.form.operands
    assert isinstance(source, Predicate)

    def run(warp: Warp, lanes: list[int]) -> None:
        agree = [lane for lane in lanes if _is_predicate_true(warp, source, lane)]
        ballot = sum(1 << lane for lane in agree)
        whole = len(agree) == len(lanes) if "ALL" in code.words else bool(agree)
        for target in targets:
            for lane in lanes:
                if isinstance(target, Register):
                    _set(warp, target, lane, ballot)
                elif isinstance(target, Predicate) and target.index is not None:
                    (warp.V if target.file is PredicateFile.UNIFORM else warp.P[lane])[target.index] = whole

    return run


def _shuffle(code: Code) -> Callable[[Warp, list[int]], None]:
    _, target, value, by, clamp = code.form.operands
    read, read_by, read_clamp = _reader(value), _reader(by), _reader(clamp)
    mode = code.words[0]

    def run(warp: Warp, lanes: list[int]) -> None:
        found = {}
        for lane in lanes:
            b, c = read_by(warp, lane) & 31, read_clamp(warp, lane)
            segment, most = c >> 8 & 31, c & 31
            low, high = lane & segment, lane & segment | most & ~segment
            source = {
                "UP": lane - b,
                "DOWN": lane + b,
                "BFLY": lane ^ b,
                "IDX": low | b & ~segment,
            }[mode]
            inside = source >= high if mode == "UP" else source <= high
            found[lane] = read(warp, source if inside else lane)
        for lane, word in found.items():
            _set(warp, target, lane, word)

    return run


def _match(code: Code) -> Callable[[Warp, list[int]], None]:
    target, value = code.form.operands
    read = _reader(value)

    def run(warp: Warp, lanes: list[int]) -> None:
        words = {lane: read(warp, lane) for lane in lanes}
        for lane in lanes:
            _set(warp, target, lane, sum(1 << other for other in lanes if words[other] == words[lane]))

    return run


_WARP_WIDE: dict[str, Callable[[Code], Callable[[Warp, list[int]], None]]] = {
    "VOTE": _vote,
    "VOTEU": _vote,
    "SHFL": _shuffle,
    "MATCH": _match,
}


# ---- memory --------------------------------------------------------------------------------------

_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_SPACES = {"G": "global", "S": "shared", "L": "local"}


def _transfer(code: Code) -> Callable[[Warp, list[int]], None]:  # noqa: C901 - one case for each kind of access
    """Compile a load, a store or a shared-memory atomic."""
    space = "shared" if code.name == "ATOMS" else _SPACES[code.name[-1]]
    size = next((_SIZES[w] for w in reversed(code.words) if w in _SIZES), 4)
    signed = any(w in ("S8", "S16") for w in code.words)
    operands = code.form.operands
    where = next(o for o in operands if isinstance(o, Address | DescriptorOperand))
    wide = space == "global" and "E" in code.words
    text = _address_text(where, wide).replace("R[", "w.R[i][").replace("U[", "w.U[")
    at: Callable[[Warp, int], int] = _function(f"lambda w, i: {text}")
    register = next((o for o in reversed(operands) if isinstance(o, Register)), None)
    if code.name.startswith("LD"):
        register = operands[0]  # type: ignore[assignment]

    def words_of(warp: Warp, lane: int) -> int:
        assert isinstance(register, Register)
        if register.index is None:
            return 0
        return sum(warp.R[lane][register.index + n] << 32 * n for n in range(max(1, size // 4)))

    def run(warp: Warp, lanes: list[int]) -> None:
        addresses = {lane: at(warp, lane) for lane in lanes}
        warp.oracle.record_access(code.row, space, size, list(addresses.values()))
        for lane, address in addresses.items():
            if code.name == "ATOMS":
                if not {"ADD", "INC"} & set(code.words):
                    raise NotImplementedError(code.form.text)
                more = 1 if "INC" in code.words else words_of(warp, lane)
                _store(warp, space, lane, address, 4, _load(warp, space, lane, address, 4) + more & M)
            elif code.name.startswith("ST"):
                value = words_of(warp, lane) & (1 << 8 * size) - 1
                _store(warp, space, lane, address, size, value)
            else:
                value = _load(warp, space, lane, address, size)
                if signed:
                    value = _signed(value, 8 * size) & M
                for n in range(max(1, size // 4)):
                    assert isinstance(register, Register)
                    if register.index is not None:
                        warp.R[lane][register.index + n] = value >> 32 * n & M

    return run


def _load(warp: Warp, space: str, lane: int, address: int, size: int) -> int:
    if space == "global":
        return warp.oracle.load_global(address, size)
    if space == "shared":
        data = warp.cta.shared
        start = address & _SHARED_WINDOW
        return int.from_bytes(data[start : start + size], "little")
    return sum(warp.local[lane].get(address + n, 0) << 8 * n for n in range(size))


def _store(warp: Warp, space: str, lane: int, address: int, size: int, value: int) -> None:
    if space == "global":
        warp.oracle.store_global(address, size, value)
    elif space == "shared":
        start = address & _SHARED_WINDOW
        warp.cta.shared[start : start + size] = value.to_bytes(size, "little")
    else:
        for n in range(size):
            warp.local[lane][address + n] = value >> 8 * n & 255


_MEMORY = dict.fromkeys(("LDG", "STG", "LDS", "STS", "LDL", "STL", "ATOMS"), _transfer)


def totals(outcome: OracleResult, starts: Sequence[int]) -> Counter[tuple[tuple[int, int], ...]]:
    """Count warps by their (executions, lanes) at the rows where blocks start."""
    return Counter(tuple((runs[row], lanes[row]) for row in starts) for runs, lanes in outcome.warps)


__all__ = ["AccessCounts", "DeadlockError", "Oracle", "OracleResult", "totals"]
