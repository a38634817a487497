"""Parses instruction traces of Accel-Sim's NVBit tracer, versions 1 to 6, to `Trace`s.

A trace is read as the tracer writes it (`kernel-1.trace`: each line names its CTA and warp) or grouped by
CTA (`kernel-1.traceg`). Each chunk of lines is split by one regular expression and handled as columns; the
grammar parses each distinct instruction text once. At the end executed instructions are sorted by warp,
stably, so that each warp's stay in order, and distinct instructions by address.
"""

from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.frontend.address_lists import AddressListBuilder, AddressListError
from analyzer.frontend.garbage_collection import pause_garbage_collection
from analyzer.frontend.trace_headers import ThreadBlockTracker, TraceHeaderBuilder
from analyzer.frontend.trace_lines import (
    TraceChunk,
    TracedForm,
    TraceSyntaxError,
    find_address_list_error,
    parse_form,
    split_into_chunks,
)
from analyzer.ir.arrays import IdArray, IntArray
from analyzer.ir.trace import MaskArray, Trace, TracedInstruction, TraceHeader, unpack_lane_masks
from analyzer.text.errors import InputError
from analyzer.text.source import Location

RETRACE_HINT = (
    "trace again with Accel-Sim's tracer, or dump the program: cuobjdump -sass program > program.sass"
)
MAX_INSTRUCTIONS = 200_000_000  # executed warp instructions
_MAX_PC = 1 << 32
_MAX_WARP_PREFIX_BYTES = 200
_WARP_PREFIX_VERSIONS = ("", "0", "1", "2")  # versions whose grouped lines keep the prefix
_WARP_PREFIX_WORDS = 4  # CTA x, y, z and warp
_INSTRUCTION_BYTES = 16
_IMMEDIATE_LIMIT = 1 << 63
_TMA_MNEMONICS = ("UTMA", "UBLK")  # TMA copies: their lists are no addresses of lanes
_TWO_ADDRESS_MNEMONIC = "LDGSTS"  # traced once for each of its two addresses, the shared one first


def parse_trace(path: str, chunks: Iterable[bytes]) -> Trace:
    """Parse one trace; `chunks` are consecutive pieces of it, cut anywhere.

    Raises InputError, with line, column and caret, if the text is not what the tracer writes.
    """
    with pause_garbage_collection():
        return _TraceParser(path).parse(chunks)


class _FormInterner(dict[bytes, int]):
    """Maps distinct instruction texts to ids; texts that differ only in the width are one instruction."""

    def __init__(self) -> None:
        super().__init__({b"": -1})
        self.forms: list[TracedForm] = []
        self.instruction_by_content: dict[tuple[object, ...], int] = {}
        self.instruction_by_form: list[int] = []

    def __missing__(self, raw: bytes) -> int:
        form = parse_form(raw.decode())
        identity = (form.destinations, form.mnemonic, form.sources)
        number = self[raw] = len(self.forms)
        self.forms.append(form)
        self.instruction_by_form.append(self.instruction_by_content.setdefault(identity, number))
        return number


class _ProgramCounterInterner(dict[bytes, int]):
    """Maps texts of program counters to numbers; each is converted once."""

    def __missing__(self, raw: bytes) -> int:
        value = int(raw, 16)
        if value >= _MAX_PC:
            raise TraceSyntaxError(0, "no function is as large as that")
        self[raw] = value
        return value


class _WarpPrefixInterner(dict[bytes, int]):
    """Maps the prefix of an ungrouped line, such as `31 0 0 3 `, to the global index of the warp."""

    def __init__(self, header: TraceHeader) -> None:
        super().__init__()
        self.header = header

    def __missing__(self, raw: bytes) -> int:
        words = raw.split()
        if len(words) < _WARP_PREFIX_WORDS or len(raw) > _MAX_WARP_PREFIX_BYTES:
            raise TraceSyntaxError(0, "thread block and warp are missing before the program counter")
        x, y, z, warp = map(int, words[:_WARP_PREFIX_WORDS])
        grid, warps = self.header.grid, self.header.warps_per_cta
        if x >= grid.x or y >= grid.y or z >= grid.z or warp >= warps:
            raise TraceSyntaxError(0, f"this warp is outside of a grid of {grid} with {warps} warps each")
        number = self[raw] = (x + grid.x * (y + grid.y * z)) * warps + warp
        return number


class _InstructionColumns(Struct, frozen=True):
    """Instruction lines of a chunk, as columns."""

    rows: IntArray  # indices of the matches
    form_ids: IdArray
    program_counters: IntArray
    masks: MaskArray


class _TraceParser:
    """State of the parser during one pass over a trace."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.header_builder = TraceHeaderBuilder()
        self.header: TraceHeader | None = None
        self.block_tracker: ThreadBlockTracker | None = None
        self.warp_prefixes: _WarpPrefixInterner | None = None
        self.forms, self.program_counters = _FormInterner(), _ProgramCounterInterner({b"": -1})
        self.instruction_indices: dict[int, int] = {}
        self.instructions: list[TracedInstruction] = []
        self.instruction_ids: list[IdArray] = []
        self.masks: list[MaskArray] = []
        self.warp_ids: list[IntArray] = []
        self.access_positions: list[IntArray] = []
        self.address_lists = AddressListBuilder()
        self.n_instructions = 0

    def parse(self, chunks: Iterable[bytes]) -> Trace:
        """Parse the whole trace; see `parse_trace`."""
        n_lines = 0
        for chunk in split_into_chunks(self.path, chunks):
            self._parse_chunk(chunk)
            n_lines += chunk.n_lines
        where = Location(self.path, n_lines + 1, 1, "")
        if self.header is None or not self.n_instructions:
            raise InputError(f"{self.path}: no instruction found in the trace", hint=RETRACE_HINT)
        if self.block_tracker is not None and self.block_tracker.in_block:
            raise InputError(
                "the trace ends in the middle of a thread block", location=where, hint=RETRACE_HINT
            )
        return self._build_trace(self.header)

    def _parse_chunk(self, chunk: TraceChunk) -> None:
        others = [index for index, match in enumerate(chunk.matches) if match[5]]
        begin = 0
        for other in (*others, len(chunk.matches)):
            if other > begin:
                self._begin_instructions(chunk, begin, other)
            if other < len(chunk.matches):
                self._parse_other_line(chunk, other)
            begin = other + 1
        if len(others) < len(chunk.matches):
            self._add_instructions(chunk)

    def _begin_instructions(self, chunk: TraceChunk, begin: int, end: int) -> None:
        """Check that instructions may stand at lines [begin, end), and count them for the current warp."""
        header = self._finish_header(chunk, begin)
        if self.block_tracker is not None and self.block_tracker.in_block:
            try:
                self.block_tracker.add_instructions(end - begin)
            except TraceSyntaxError as error:
                raise chunk.make_error(begin, error.message) from None
        elif self.block_tracker is not None and self.block_tracker.warp_ids:
            raise chunk.make_error(begin, "an instruction stands outside of #BEGIN_TB and #END_TB")
        elif self.warp_prefixes is None:
            self.warp_prefixes = _WarpPrefixInterner(header)

    def _finish_header(self, chunk: TraceChunk, index: int) -> TraceHeader:
        if self.header is None:
            try:
                self.header = self.header_builder.build()
            except TraceSyntaxError as error:
                raise chunk.make_error(index, error.message, hint=RETRACE_HINT) from None
            self.block_tracker = ThreadBlockTracker(self.header)
        return self.header

    def _parse_other_line(self, chunk: TraceChunk, index: int) -> None:
        raw = chunk.matches[index][5]
        text = raw.strip()
        if not text or (text.startswith(b"#") and not text.startswith((b"#BEGIN", b"#END"))):
            return
        try:
            line = raw.decode("utf-8").rstrip()
            if text.startswith(b"-") and self.header is None:
                self.header_builder.parse_line(line)
            elif (
                text.startswith((b"#", b"thread", b"warp", b"insts", b"cluster"))
                and self.warp_prefixes is None
            ):
                self._finish_header(chunk, index)
                assert self.block_tracker is not None
                self.block_tracker.parse_marker(line)
            else:
                raise chunk.make_line_error(index)
        except UnicodeDecodeError as error:
            raise chunk.make_error(index, "the text is not UTF-8", column=error.start) from None
        except TraceSyntaxError as error:
            raise chunk.make_error(index, error.message, column=error.column) from None

    def _add_instructions(self, chunk: TraceChunk) -> None:
        """Add all instruction lines of a chunk."""
        prefixes, counters, masks, forms, tails, _ = zip(*chunk.matches, strict=True)
        form_ids = np.array(_look_up(chunk, self.forms, forms, 4), dtype=np.int32)
        pcs = np.array(_look_up(chunk, self.program_counters, counters, 2), dtype=np.int64)
        rows = np.flatnonzero(form_ids >= 0)
        words = np.frombuffer(bytes.fromhex(b"".join(masks).decode()), dtype=">u4").astype(np.uint32)
        lines = _InstructionColumns(rows, form_ids[rows], pcs[rows], words)
        if self.n_instructions + len(rows) > MAX_INSTRUCTIONS:
            raise chunk.make_error(int(rows[0]), "the trace is too long", hint="trace fewer thread blocks")
        self._check_warp_prefixes(chunk, prefixes)
        self._add_addresses(chunk, lines, tails)
        self.instruction_ids.append(self._index_instructions(lines, prefixes, tails))
        self.masks.append(words)
        self.n_instructions += len(rows)

    def _check_warp_prefixes(self, chunk: TraceChunk, prefixes: tuple[bytes, ...]) -> None:
        if self.warp_prefixes is not None:
            rows = [row for row, match in enumerate(chunk.matches) if not match[5]]
            used = tuple(prefixes[row] for row in rows)
            if self.warp_prefixes.header.has_source_lines:  # the last number is the source line
                used = tuple(prefix[: prefix.rstrip().rfind(b" ") + 1] for prefix in used)
            self.warp_ids.append(np.array(_look_up(chunk, self.warp_prefixes, used, 1, rows), dtype=np.int64))
            return
        assert self.header is not None
        is_old = self.header.tracer_version.partition(".")[0] in _WARP_PREFIX_VERSIONS
        expected = self.header.has_source_lines + (_WARP_PREFIX_WORDS if is_old else 0)
        for prefix in set(prefixes):
            if prefix.count(b" ") != expected or len(prefix) > _MAX_WARP_PREFIX_BYTES:
                index = next((i for i, m in enumerate(chunk.matches) if m[0] == prefix and not m[5]), -1)
                if index >= 0:
                    raise chunk.make_error(
                        index, f"{expected} numbers are expected before the program counter"
                    )

    def _add_addresses(self, chunk: TraceChunk, lines: _InstructionColumns, tails: tuple[bytes, ...]) -> None:
        forms = self.forms.forms
        listed = np.array(
            [f.width_bytes > 0 and not f.mnemonic.startswith(_TMA_MNEMONICS) for f in forms], dtype=bool
        )
        opaque = np.array([f.mnemonic.startswith(_TMA_MNEMONICS) for f in forms], dtype=bool)
        at = np.flatnonzero(listed[lines.form_ids])
        rows = lines.rows[at].tolist()
        lanes = _count_lanes(lines.masks[at])
        try:
            self.address_lists.add_lists([tails[row] for row in rows], lanes.tolist())
        except AddressListError as bad:
            raise _make_address_error(chunk, rows[bad.index], int(lanes[bad.index]), True) from None
        self.access_positions.append(at + self.n_instructions)
        plain = lines.rows[~(listed | opaque)[lines.form_ids]].tolist()
        for tail in {tails[row] for row in plain}:
            if not _are_immediates(tail):
                row = next(row for row in plain if tails[row] == tail)
                raise _make_address_error(chunk, row, 0, False)

    def _index_instructions(
        self, lines: _InstructionColumns, prefixes: tuple[bytes, ...], tails: tuple[bytes, ...]
    ) -> IdArray:
        """Return the lines' indices into `instructions`; new instructions are added."""
        of = np.array(self.forms.instruction_by_form, dtype=np.int64)
        keys, first, inverse = np.unique(
            (lines.program_counters << 31) | of[lines.form_ids], return_index=True, return_inverse=True
        )
        for key, position in sorted(
            zip(keys.tolist(), first.tolist(), strict=True), key=lambda pair: pair[1]
        ):
            if key not in self.instruction_indices:
                self.instruction_indices[key] = len(self.instructions)
                row = int(lines.rows[position])
                self.instructions.append(self._make_instruction(lines, position, prefixes[row], tails[row]))
        numbers = np.array([self.instruction_indices[key] for key in keys.tolist()], dtype=np.int32)
        self._widen_instructions(lines, numbers[inverse])
        return numbers[inverse]

    def _make_instruction(
        self, lines: _InstructionColumns, position: int, prefix: bytes, tail: bytes
    ) -> TracedInstruction:
        form = self.forms.forms[int(lines.form_ids[position])]
        words = prefix.split()
        assert self.header is not None
        return TracedInstruction(
            pc=int(lines.program_counters[position]),
            address=int(lines.program_counters[position]),
            mnemonic=form.mnemonic,
            destinations=form.destinations,
            sources=form.sources,
            width_bytes=form.width_bytes,
            immediate=int(tail.split()[0]) if not form.width_bytes and tail.strip() else 0,
            source_line=int(words[-1]) if self.header.has_source_lines and words else 0,
        )

    def _widen_instructions(self, lines: _InstructionColumns, numbers: IdArray) -> None:
        """Set widths of instructions that had no addresses at first and have some in these lines."""
        widths = np.array([form.width_bytes for form in self.forms.forms], dtype=np.int64)[lines.form_ids]
        largest = np.zeros(len(self.instructions), dtype=np.int64)
        np.maximum.at(largest, numbers, widths)
        for position in np.flatnonzero(largest).tolist():
            if self.instructions[position].width_bytes < largest[position]:
                self.instructions[position] = replace(
                    self.instructions[position], width_bytes=int(largest[position])
                )

    def _build_trace(self, header: TraceHeader) -> Trace:
        ids, masks = np.concatenate(self.instruction_ids), np.concatenate(self.masks)
        access_at = np.concatenate(self.access_positions)
        access_ids = np.arange(len(access_at), dtype=np.int64)
        if self.warp_prefixes is not None:
            warps_of = np.concatenate(self.warp_ids)
        else:
            assert self.block_tracker is not None
            numbers = np.array(self.block_tracker.warp_ids, dtype=np.int64)
            warps_of = np.repeat(numbers, self.block_tracker.instruction_counts)
        order = np.argsort(warps_of, kind="stable")
        order = order[
            ~_find_doubled_lines(ids[order], warps_of[order], self._find_two_address_instructions())
        ]
        has_access = np.full(len(ids), -1, dtype=np.int64)
        has_access[access_at] = access_ids
        moved = has_access[order]
        warps = np.unique(warps_of) if self.warp_prefixes is not None else np.sort(numbers)
        starts = np.searchsorted(warps_of[order], np.append(warps, header.n_warps))
        rank, instructions = _sort_by_address(self.instructions)
        return Trace(
            path=self.path,
            header=header,
            instructions=instructions,
            instruction_ids=rank[ids[order]],
            masks=masks[order],
            warp_ids=warps,
            warp_starts=starts.astype(np.int64),
            access_positions=np.flatnonzero(moved >= 0),
            address_rows=moved[moved >= 0],
            addresses=self.address_lists.build_table(),
        )

    def _find_two_address_instructions(self) -> NDArray[np.bool_]:
        return np.array([i.mnemonic.startswith(_TWO_ADDRESS_MNEMONIC) for i in self.instructions], dtype=bool)


def _look_up(
    chunk: TraceChunk,
    ids_by_text: dict[bytes, int],
    texts: tuple[bytes, ...],
    group: int,
    rows: list[int] | None = None,
) -> list[int]:
    """Return the ids of texts. Raises InputError for a text that cannot be parsed.

    texts: group `group` of the lines `rows`, or of all lines.
    """
    try:
        return list(map(ids_by_text.__getitem__, texts))
    except TraceSyntaxError as error:
        index = next(i for i, text in enumerate(texts) if text not in ids_by_text)
        index = index if rows is None else rows[index]
        raise chunk.make_error(index, error.message, group=group, column=error.column) from None


def _make_address_error(chunk: TraceChunk, index: int, lanes: int, has_addresses: bool) -> InputError:
    fault = find_address_list_error(chunk.matches[index][4].decode(), lanes, has_addresses)
    return chunk.make_error(index, fault.message, group=5, column=fault.column)


def _are_immediates(tail: bytes) -> bool:
    words = tail.split()
    try:
        return len(words) <= 2 and all(abs(int(word)) < _IMMEDIATE_LIMIT for word in words)
    except ValueError:
        return False


def _count_lanes(masks: MaskArray) -> IntArray:
    lanes: IntArray = unpack_lane_masks(masks).sum(axis=1, dtype=np.int64)
    return lanes


def _find_doubled_lines(ids: IdArray, warps: IntArray, is_twice: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the first of each two lines that were traced for one instruction with two addresses."""
    doubled = np.zeros(len(ids), dtype=bool)
    doubled[:-1] = is_twice[ids[:-1]] & (ids[:-1] == ids[1:]) & (warps[:-1] == warps[1:])
    return doubled


def _sort_by_address(instructions: list[TracedInstruction]) -> tuple[IdArray, tuple[TracedInstruction, ...]]:
    """Return (rank of each instruction by address, instructions in that order).

    A called function of another section has offsets of its own, which can collide with the kernel's. A second
    instruction at an offset is moved behind all first ones, a third one behind those, and so on.
    """
    span = max(instruction.pc for instruction in instructions) + _INSTRUCTION_BYTES
    taken: dict[int, int] = {}
    placed = []
    for instruction in instructions:
        layer = taken.get(instruction.pc, 0)
        taken[instruction.pc] = layer + 1
        placed.append(replace(instruction, address=instruction.pc + layer * span))
    order = sorted(range(len(placed)), key=lambda number: placed[number].address)
    rank = np.empty(len(placed), dtype=np.int32)
    rank[order] = np.arange(len(placed), dtype=np.int32)
    return rank, tuple(placed[number] for number in order)
