"""Changes to inputs that keep their form, so that most get past a parser; damage that keeps none."""

import csv
import gzip
import io
import json
import lzma
import random
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import tomli

NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    31,
    32,
    33,
    255,
    256,
    65_535,
    2**31 - 1,
    2**32,
    2**63,
    2**64,
    -1,
    0.5,
    1e-300,
    1e308,
)
ODD_TEXTS = (
    *(
        "\x1b[2J\x1b]0;x\x07",
        "\x9b31m",
        "\u202e\u2028",
        "\ufeff",
        "\0",
        "[red]",
        "%s%n",
        "=cmd|' /C calc'!A0",
    ),
    *(
        "../../etc/passwd",
        "é" * 40,
        "A" * 5000,
        " " * 3000,
        "9" * 5000,
        "\r",
        "\t",
        '"',
        "\\",
        "nan",
        "-",
        "",
    ),
)
# Instructions and operands that mean something, put where they do not belong.
ODD_CODE = (
    *("R255", "UR63", "P7", "0xffffffffffffffffff", "c[0x0][0x999999]", "desc[", "{1,2", "1e999", "-0x1"),
    *("BRA 0x0", "BRA 0xfffffff0", "CALL.REL.NOINC 0x40", "RET.REL.NODEC R2 0x0", "BRX R4 -0x10", "EXIT"),
    *("HMMA.16816.F32", "HGMMA.0x0x0.F32", "HGMMA.64x99999x16", "LDTM.x128", "BSYNC B0", "R2UR UR4"),
    *("R99999999999999", "SB9", "DEPBAR.LE SB5, 0x99", "@!UPT", ".128", "WARPSYNC.COLLECTIVE R3, 0x2dc0"),
    *("SHF.R.U32.HI R0, RZ, 0xffffffff, R0", "IMAD.HI.U32 R1, R1, 0x0, RZ", "MUFU.RCP R1, RZ"),
    *("BAR.SYNC 0x99, 0x7fffffff", "ATOMS.ADD RZ, [R1], R2", "LDG.E.128 R252, [R254.64]"),
    "SHFL.IDX PT, R1, R1, R1, R1",
)  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.])-?(?:0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?![\w.])", re.I)
_ADDRESS = re.compile(r"(.{,40}?/\*|\s*0x|\s{2}(?=[0-9a-f]{4} ))([0-9a-f]{4,16})(?=\*/| |:)")
_WORD = re.compile(r"[%$@!.\w]+")
_INSTRUCTION_BYTES = 16
_EXECUTABLE = 4  # SHF_EXECINSTR


class Mutator:
    """Changes inputs with one source of random numbers."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def mutate(self, name: str, data: bytes, donor: bytes) -> bytes:
        """Return an input of the form that its suffix says after a few changes; `donor` is another one."""
        edit = _EDITS.get(Path(name).suffix, Mutator.edit_text)
        return edit(self, data, donor)

    def cut_off(self, name: str, data: bytes, *, is_middle: bool) -> bytes:
        """Return an input whose second half of lines or bytes, or half in its middle, is gone."""
        parts = [data[at : at + 1] for at in range(len(data))] if b"\0" in data else data.splitlines(True)
        n = len(parts)
        return b"".join(parts[: n // 4] + parts[3 * n // 4 :] if is_middle else parts[: n // 2])

    def damage(self, data: bytes) -> bytes:
        """Return bytes after a few flips, deletions, insertions and copies, at times cut off."""
        for _ in range(self.random.randint(1, 4)):
            at, length = self.random.randrange(len(data) + 1), self.random.choice((1, 2, 8, 60, 400))
            piece = data[at : at + length]
            odd = self.random.choice(ODD_TEXTS).encode()
            flipped = bytes(byte ^ 1 << self.random.randrange(8) for byte in piece[:2]) + piece[2:]
            piece = self.random.choice((flipped, b"", piece * 2, odd, odd + piece, self.random.randbytes(4)))
            data = data[:at] + piece + data[at + length :]
        return data[: self.random.randrange(len(data) + 1)] if self.random.random() < 0.1 else data

    def edit_text(self, data: bytes, donor: bytes) -> bytes:
        """Return a text with lines or words changed, doubled, swapped, left out or taken from another."""
        lines, others = ([*text.decode("utf-8", "surrogateescape").split("\n")] for text in (data, donor))
        for _ in range(self._choose_count()):
            at, length = self.random.randrange(len(lines)), self.random.choice((1, 1, 1, 2, 5))
            match self.random.randrange(16):
                case 0 | 1:
                    del lines[at : at + length]
                case 2:
                    lines[at:at] = lines[at : at + length] * self.random.choice((1, 1, 2, 40))
                case 3:
                    other = self.random.randrange(len(lines))
                    lines[at], lines[other] = lines[other], lines[at]
                case 4:
                    start = self.random.randrange(len(others))
                    lines[at:at] = others[start : start + length]
                case 5:
                    lines[at] = self._replace_word(lines[at], self.random.choice((*ODD_TEXTS, *ODD_CODE)))
                case 6 | 7 | 8 | 9:
                    lines[at] = self._replace_number(lines[at])
                case _:
                    lines[at] = self._exchange_word(lines[at], self.random.choice(lines))
            lines = lines or [""]
        if self.random.random() < 0.9:
            lines = _count_trace_lines(list(_raise_addresses(lines)))
        return "\n".join(lines).encode("utf-8", "surrogateescape")

    def _choose_count(self) -> int:
        return self.random.choice((1, 1, 1, 1, 2))

    def _replace_word(self, line: str, new: str) -> str:
        return self._replace(_WORD, line, lambda _: new)

    def _replace_number(self, line: str) -> str:
        too_long = "9" * 5000  # more digits than Python converts
        if self.random.random() < 0.03:
            return self._replace(_NUMBER, line, lambda _: too_long)
        return self._replace(_NUMBER, line, lambda old: _format_like(old, self._choose_number(old)))

    def _exchange_word(self, line: str, other: str) -> str:
        """Return a line with one word replaced by one of the same class from another line, if it has one."""
        words: dict[str, list[str]] = {}
        for word in _WORD.findall(other):
            words.setdefault(_classify(word), []).append(word)
        return self._replace(_WORD, line, lambda old: self.random.choice(words.get(_classify(old), [old])))

    def _replace(self, pattern: re.Pattern[str], line: str, make: Callable[[str], str]) -> str:
        matches = list(pattern.finditer(line))
        if not matches:
            return line
        match = self.random.choice(matches)
        return line[: match.start()] + make(match[0]) + line[match.end() :]

    def _choose_number(self, old: str | float) -> float:
        """Return a number near an old one, or at a limit of something."""
        value = _parse_number(old) if isinstance(old, str) else old
        near = [value + 1, value - 1, value * 2, value // 2, -value] if abs(value) < 2**70 else [0]
        numbers: tuple[float, ...] = (*NUMBERS, *near, *near)
        return self.random.choice(numbers)

    def edit_table(self, data: bytes, donor: bytes) -> bytes:
        """Return a CSV text with fields, rows or columns changed, doubled, swapped or left out."""
        rows, others = (_read_rows(text) for text in (data, donor))
        for _ in range(self._choose_count()):
            at = self.random.randrange(len(rows))
            row = rows[at]
            column = self.random.randrange(max(1, len(row)))
            match self.random.randrange(18):
                case 0 | 1 if at:
                    del rows[at]
                case 2 | 3 if at:
                    rows[at:at] = [list(row)] * self.random.choice((1, 2, 200))
                case 4:
                    rows = [[*each[:column], *each[column + 1 :]] for each in rows]
                case 5:
                    rows = [[*each, *each[column : column + 1]] for each in rows]
                case 6 | 7:
                    rows.append(list(self.random.choice(others[1:] or others)))
                case 8:
                    row[column : column + self.random.randrange(2)] = [self.random.choice(ODD_TEXTS)]
                case 9 | 10 | 11:
                    other = self.random.choice(rows[1:] or rows)
                    row[column : column + 1] = other[column : column + 1]
                case _:
                    row[column : column + 1] = [
                        self._replace_number(cell) for cell in row[column : column + 1]
                    ]
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows(rows)
        return stream.getvalue().encode("utf-8", "surrogateescape")

    def edit_json(self, data: bytes, donor: bytes) -> bytes:
        """Return JSON with values, keys and elements changed, doubled, swapped or left out."""
        return json.dumps(self.edit_tree(json.loads(data), json.loads(donor))).encode()

    def edit_toml(self, data: bytes, donor: bytes) -> bytes:
        """Return TOML with the same changes as `edit_json`, its tables written inline."""
        tree = self.edit_tree(tomli.loads(data.decode()), tomli.loads(donor.decode()))
        entries = tree.items() if isinstance(tree, dict) else ()
        text = "".join(f"{json.dumps(key)} = {_write_toml(value)}\n" for key, value in entries)
        return text.encode("utf-8", "surrogatepass")

    def edit_tree(self, tree: Any, donor: Any) -> Any:
        """Return nested lists and dicts after a few changes."""
        root, others = [tree], [donor]
        for _ in range(self._choose_count()):
            places = list(_iterate_places(root))
            if not places:
                break
            holder, key = self.random.choice(places)
            self._edit_place(holder, key, places, list(_iterate_places(others)))
        return root[0] if root else None

    def _edit_place(self, holder: Any, key: Any, places: list[Any], others: list[Any]) -> None:
        """Change one element of a list or value of a dict."""
        other_holder, other_key = self.random.choice((*places, *others))
        alike = [(h, k) for h, k in places if type(h[k]) is type(holder[key])]
        match self.random.randrange(16):
            case 0 if len(places) > 1:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder[key:key] = [holder[key]] * self.random.choice((1, 2, 200))
            case 2:
                holder[key] = json.loads(json.dumps(other_holder[other_key]))
            case 3:
                holder[key] = self.random.choice(([holder[key]], {"a": holder[key]}, [], {}, None, True))
            case 4 if isinstance(holder, dict):
                holder[self.random.choice(ODD_TEXTS)] = holder[key]
            case 5 | 6 | 7:
                other, place = self.random.choice(alike)
                holder[key], other[place] = json.loads(json.dumps([other[place], holder[key]]))
            case _:
                holder[key] = self._choose_scalar(holder[key])

    def _choose_scalar(self, old: Any) -> Any:
        """Return another value of the same type."""
        if isinstance(old, bool):
            return not old
        if isinstance(old, int | float):
            new = self._choose_number(old)
            return type(old)(new) if abs(new) < 1e300 else new
        if isinstance(old, str):
            return self.random.choice((self._replace_number(old), self.random.choice(ODD_TEXTS)))
        return old

    def edit_zip(self, data: bytes, donor: bytes) -> bytes:
        """Return a zip archive with one member changed, left out or doubled."""
        members, others = (_read_members(archive) for archive in (data, donor))
        name = self.random.choice(list(members))
        match self.random.randrange(12):
            case 0:
                del members[name]
            case 1:
                members[self.random.choice((name + "x", "../" + name, "\u202e"))] = members[name]
            case _:
                members[name] = self.mutate(name, members[name], others.get(name, members[name]))
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for each, content in members.items():
                archive.writestr(zipfile.ZipInfo(each), content)
        return stream.getvalue()

    def edit_array(self, data: bytes, donor: bytes) -> bytes:
        """Return a .npy file with elements changed, or of another shape or type."""
        array = np.load(io.BytesIO(data)).copy()
        if array.dtype == np.uint8 and array.tobytes().startswith(b"{"):  # JSON, as in artifacts of `tune`
            array = np.frombuffer(self.edit_json(array.tobytes(), array.tobytes()), np.uint8)
            return _save_array(array)
        with suppress(ValueError, TypeError), np.errstate(all="ignore"):
            match self.random.randrange(8):
                case 0:
                    array = array.reshape(self.random.choice(((-1,), (1, -1), (-1, 1), (2, -1))))
                case 1:
                    array = array.astype(
                        self.random.choice(("i4", "f8", "u1", "c16", "S5", ">i4", "M8[s]", "?", "f2"))
                    )
                case 2:
                    array = array[: self.random.randrange(len(array) + 1)]
                case 3:
                    array = np.concatenate([array] * 40)
                case _:
                    places = self.random.choices(range(array.size), k=self._choose_count())
                    values = (*NUMBERS, float("nan"), float("inf"))
                    array.ravel()[places] = [_fit(self.random.choice(values), array.dtype) for _ in places]
        return _save_array(array)

    def edit_weights(self, data: bytes, donor: bytes) -> bytes:
        """Return a .safetensors file with numbers of its tensors or entries of its header changed."""
        n = int.from_bytes(data[:8], "little")
        header, body = data[8 : 8 + n], bytearray(data[8 + n :])
        if self.random.random() < 0.3:
            header = self.edit_json(header, donor[8 : 8 + int.from_bytes(donor[:8], "little")])
        for _ in range(self._choose_count()):
            width, mark = self.random.choice(((8, "d"), (4, "f"), (4, "i"), (8, "q"), (2, "h")))
            at = self.random.randrange(len(body) // width) * width
            values = (
                0,
                1,
                -1,
                2,
                100,
                *((1e30, float("nan"), float("inf")) if mark in "df" else (2**15 - 1,)),
            )
            body[at : at + width] = struct.pack(mark, self.random.choice(values))
        return len(header).to_bytes(8, "little") + header + body

    def edit_code(self, data: bytes, donor: bytes) -> bytes:
        """Return an ELF file, or one that holds some, with instructions swapped, copied or changed."""
        places = _list_instruction_places(data)
        if not places:
            return self.damage(data)
        code = bytearray(data)
        for _ in range(self._choose_count()):
            a, b = self.random.choices(places, k=2)
            first, second = code[a : a + _INSTRUCTION_BYTES], code[b : b + _INSTRUCTION_BYTES]
            match self.random.randrange(4):
                case 0:
                    code[a : a + _INSTRUCTION_BYTES] = second
                    code[b : b + _INSTRUCTION_BYTES] = first
                case 1:
                    code[a : a + _INSTRUCTION_BYTES] = second
                case 2:  # bytes 2 to 7 hold registers and constants
                    code[a + self.random.randrange(2, 8)] = self.random.choice((0, 1, 255))
                case _:  # bytes 13 to 15 hold the control word
                    code[a + self.random.randrange(13, 16)] ^= 1 << self.random.randrange(8)
        return bytes(code)

    def edit_packed(self, data: bytes, donor: bytes) -> bytes:
        """Return compressed text with the changes of `edit_text` inside."""
        text = self.edit_text(_find_packer(data).decompress(data), _find_packer(donor).decompress(donor))
        return bytes(_find_packer(data).compress(text))


_EDITS = {
    ".csv": Mutator.edit_table,
    ".json": Mutator.edit_json,
    ".toml": Mutator.edit_toml,
    ".npz": Mutator.edit_zip,
    ".pt2": Mutator.edit_zip,
    ".npy": Mutator.edit_array,
    ".safetensors": Mutator.edit_weights,
    **dict.fromkeys((".cubin", ".fatbin", ".o", ".a"), Mutator.edit_code),
    **dict.fromkeys((".gz", ".xz"), Mutator.edit_packed),
}


def _raise_addresses(lines: list[str]) -> Iterator[str]:
    """Yield lines of code, addresses raised so that each is above those before."""
    last = -1
    for line in lines:
        if found := _ADDRESS.match(line):
            last = max(int(found[2], 16), last + _INSTRUCTION_BYTES if last >= 0 else 0)
            line = f"{found[1]}{last:0{len(found[2])}x}{line[found.end() :]}"
        yield line


def _count_trace_lines(lines: list[str]) -> list[str]:
    """Return the lines of a trace with each `insts = N` as many as instructions follow."""
    lines = list(lines)
    for at in [n for n, line in enumerate(lines) if line.startswith("insts = ")]:
        rest = lines[at + 1 :]
        n = next((k for k, line in enumerate(rest) if not re.match("[0-9a-f]{4} ", line)), len(rest))
        lines[at] = f"insts = {n}"
    return lines


def _find_packer(data: bytes) -> Any:
    return gzip if data.startswith(b"\x1f\x8b") else lzma


def _classify(word: str) -> str:
    """Return a word with its digits as one mark: words of one class are of one kind, such as registers."""
    return re.sub(r"\d+", "0", word) if re.search(r"\d", word) else word[:1] + ("." if "." in word else "")


def _parse_number(text: str) -> float:
    try:
        return int(text, 0)
    except ValueError:
        return float(text)  # such as 007 or 1.5


def _format_like(old: str, new: float) -> str:
    return f"{new:#x}" if "0x" in old.lower() and isinstance(new, int) else str(new)


def _read_rows(text: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text.decode("utf-8", "surrogateescape")))) or [[""]]


def _write_toml(value: Any) -> str:
    match value:
        case dict():
            entries = (f"{json.dumps(key)} = {_write_toml(each)}" for key, each in value.items())
            return "{" + ", ".join(entries) + "}"
        case list():
            return "[" + ", ".join(map(_write_toml, value)) + "]"
        case float():
            return repr(value)
        case _:
            return json.dumps(value)


def _iterate_places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (holder, key) of each value in nested lists and dicts."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _iterate_places(tree[key])


def _read_members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _save_array(array: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _fit(value: float, dtype: np.dtype[Any]) -> Any:
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return int(min(max(value, limits.min), limits.max)) if value == value else 0
    return value


def _list_instruction_places(data: bytes) -> list[int]:
    """Return where the instructions begin of all 64-bit CUDA ELF images in a file."""
    places: list[int] = []
    for image in re.finditer(rb"\x7fELF\x02\x01", data):
        start = image.start()
        with suppress(struct.error):
            (table,) = struct.unpack_from("<Q", data, start + 0x28)
            machine = struct.unpack_from("<H", data, start + 0x12)[0]
            entry_bytes, count = struct.unpack_from("<HH", data, start + 0x3A)
            for number in range(count if machine == 190 else 0):
                flags, _, at, size = struct.unpack_from(
                    "<QQQQ", data, start + table + number * entry_bytes + 8
                )
                if flags & _EXECUTABLE:
                    places += range(
                        start + at, start + at + size - _INSTRUCTION_BYTES + 1, _INSTRUCTION_BYTES
                    )
    return places
