"""Kernels under construction: distinct texts interned, columns gathered, then frozen into `Kernel`s."""

import re

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.frontend.sass_forms import MAX_TEXT, FormDecoder, ShapeError
from analyzer.frontend.variants import find_variant
from analyzer.ir.opcode import Opcode
from analyzer.ir.program import (
    INSTRUCTION_BYTES,
    IdArray,
    IntArray,
    Kernel,
    Origin,
    Resources,
    Vocabulary,
    WordArray,
)

_NOTE = re.compile(r'\(\*"BRANCH_TARGETS ([^"]*)"\*\)')


class Interner(dict[bytes, int]):
    """Distinct instruction texts to ids; each new one is checked once."""

    def __init__(self, decoder: FormDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.texts: list[str] = []
        self.opcode_ids: list[int] = []
        self.opcodes: dict[Opcode, int] = {}
        self.notes: dict[int, tuple[str, ...]] = {}
        self.failures: dict[int, ShapeError] = {}

    def __missing__(self, raw: bytes) -> int:
        text = raw.decode("utf-8").strip()
        note = None
        if "(*" in text:
            note = _NOTE.search(text)
            text = text.partition("(*")[0].rstrip()
        number = len(self.texts)
        opcode = self._admit(text, number)
        if note:
            self.notes[number] = tuple(note[1].split(","))
        self.texts.append(text)
        self.opcode_ids.append(self.opcodes.setdefault(opcode, len(self.opcodes)))
        self[raw] = number
        return number

    def _admit(self, text: str, number: int) -> Opcode:
        if len(text) > MAX_TEXT:
            raise ShapeError(MAX_TEXT, "too long")
        try:
            return self.decoder.admit(text)
        except ShapeError as error:
            self.failures[number] = error
            return self.decoder.admit_unparsed(text, error)


class KernelBuilder(Struct):
    """A kernel while its lines are read."""

    name: str
    arch: str
    line: int
    ids: list[IdArray] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)
    words: list[WordArray] = field(default_factory=list)
    labels: list[tuple[str, int]] = field(default_factory=list)
    origin_marks: list[tuple[int, int]] = field(default_factory=list)
    is_entry: bool = True
    has_hex: bool = True

    def next_address(self) -> int:
        """Address that the next instruction will have."""
        return self.addresses[-1] + INSTRUCTION_BYTES if self.addresses else 0


def finish_kernel(
    building: KernelBuilder,
    vocabulary: Vocabulary,
    notes: dict[int, tuple[str, ...]],
    origins: tuple[Origin, ...],
    usage: dict[tuple[str, str], Resources],
) -> Kernel:
    """The kernel with its columns as arrays and the resources that `usage` gives for it."""
    ids = np.concatenate(building.ids)
    addresses = np.array(building.addresses, dtype=np.int64)
    words = np.concatenate(building.words) if building.has_hex and building.words else None
    kernel = Kernel(
        name=building.name,
        arch=building.arch,
        vocabulary=vocabulary,
        text_ids=ids,
        addresses=addresses,
        control_words=words,
        line=building.line,
        labels=tuple(building.labels),
        branch_targets=_noted_targets(building, ids, addresses, notes),
        origin_ids=_origin_column(building.origin_marks, len(ids)),
        origins=origins,
        is_entry=building.is_entry,
    )
    found = find_variant(usage, building.arch, building.name)
    return kernel if found is None else replace(kernel, resources=found)


def _noted_targets(
    building: KernelBuilder,
    ids: IdArray,
    addresses: IntArray,
    notes: dict[int, tuple[str, ...]],
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    if not notes:
        return ()
    places = dict(building.labels)
    rows = np.flatnonzero(np.isin(ids, list(notes)))
    return tuple(
        (
            int(addresses[row]),
            tuple(places[label] for label in notes[int(ids[row])] if label in places),
        )
        for row in rows
    )


def _origin_column(marks: list[tuple[int, int]], n: int) -> IdArray | None:
    if not marks:
        return None
    column = np.full(n, -1, dtype=np.int32)
    for row, number in marks:
        column[row:] = number
    return column
