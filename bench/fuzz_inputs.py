"""Damaged inputs and command lines for `fuzz.py`: one case for each kind, seed and number.

A case is some files and one command line that reads them. It begins with a shipped input, to which faults of
the kinds that copying, truncation, bad disks and bad intentions make are done.
"""

import gzip
import io
import json
import lzma
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "traces"
GPU_FILES = ROOT / "hwdb" / "gpu"
MAX_DUMP_BYTES = 24_000
GPUS = ("a100", "h100", "b200", "rtx-5090", "l4", "t4", "v100-sxm2", "all")
# Pieces that mean something somewhere, put where they do not belong.
ODD_CODE = (
    *(
        "R255",
        "UR63",
        "P7",
        "0xffffffffffffffffffffffff",
        "c[0x0][0x999999]",
        "desc[",
        "{1,2",
        "1e999",
        "-0x1",
    ),
    *(
        "BRA 0x0",
        "BRA 0xfffffff0",
        "CALL.REL.NOINC 0x40",
        "RET.REL.NODEC R2 0x0",
        "BRX R4 -0x10",
        "EXIT",
        "NOP",
    ),
    *(
        "HMMA.16816.F32",
        "HGMMA.0x0x0.F32",
        "HGMMA.64x99999x16",
        "UTCHMMA",
        "LDTM.x128",
        "BSYNC B0",
        "R2UR UR4",
    ),
    *(
        "R99999999999999",
        "SB9",
        "DEPBAR.LE SB5, 0x99",
        "@!UPT",
        ".128",
        "-",
        "WARPSYNC.COLLECTIVE R3, 0x2dc0",
    ),
    *(
        "SHF.R.U32.HI R0, RZ, 0xffffffff, R0",
        "IMAD.HI.U32 R1, R1, 0x0, RZ",
        "MUFU.RCP R1, RZ",
        "I2F.RP R1, RZ",
    ),
    *(
        "BAR.SYNC 0x99, 0x7fffffff",
        "ATOMS.ADD RZ, [R1], R2",
        "LDG.E.128 R252, [R254.64]",
        "SHFL.IDX PT, R1, R1, R1, R1",
    ),
)
ODD_BYTES = (
    *(
        b"\0",
        b"\xff",
        b"\xfe\xff",
        b"\xef\xbb\xbf",
        b"\r",
        b"\t" * 40,
        b"\x1b[2J\x1b]0;x\x07",
        b"\xc2\x9b31m",
    ),
    *(
        "\u202e\u2028".encode(),
        b"\xed\xa0\x80",
        b"[red]",
        b":bug:",
        b"%s%n",
        b"A" * 5000,
        b" " * 5000,
        b"\n" * 3000,
    ),
    *(
        b"9" * 5000,
        b"[" * 3000,
        b"{" * 3000,
        b'"',
        b"'",
        b"\\",
        b";",
        b"=cmd|' /C calc'!A0",
        b"../../etc/passwd",
    ),
)
ODD_NUMBERS = (
    *(b"0", b"1", b"2", b"3", b"7", b"31", b"32", b"33", b"255", b"256", b"65536", b"0x10", b"0xfff0", b"-1"),
    *(
        b"4294967295",
        b"4294967296",
        b"9223372036854775808",
        b"99999999999999999999",
        b"1e308",
        b"1e-300",
        b"nan",
    ),
    *(b"inf", b"-inf", b"0.0", b"0.5", b"1_000"),
)
ODD_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**30, 1e308, -1e-300, 0.5),
    *(
        "",
        "0",
        "-1",
        "1e999",
        "nan",
        "inf",
        "ptr",
        "ptr:0",
        "ptr:99999999999999",
        "fill:nan",
        "@nothing.npy",
        "@.",
    ),
    *(
        "x" * 5000,
        "\x1b[31m\u202e\n",
        "\ud800",
        [],
        {},
        [[]],
        [1, 2, 3, 4],
        {"a": {"b": []}},
        [0],
        [2**40] * 3,
    ),
    *("tensormap:f16:64,64:8,8", "tensormap:x:0:0", "tensormap:f16:-1:1", "sm_90", "h100", "*fp32", "i64"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """Files of a folder, and the command line to run in it."""

    kind: str
    files: dict[str, bytes]
    arguments: tuple[str, ...]


@cache
def load_kernels() -> tuple[tuple[str, bytes], ...]:
    """Return (architecture, dump of one kernel) for the small kernels of all shipped dumps."""
    found: list[tuple[str, bytes]] = []
    for path in sorted(TRACES.glob("*/sm_*/*.sass")):
        text = path.read_bytes()
        head, *functions = re.split(rb"(?m)^(?=[ \t]*Function : )", text)
        found += ((path.parent.name, head + each) for each in functions if len(each) < MAX_DUMP_BYTES)
    return tuple(found)


@cache
def load_files(pattern: str, max_bytes: int = MAX_DUMP_BYTES) -> tuple[bytes, ...]:
    """Return the contents of the shipped files of a pattern that are small enough."""
    paths = (path for path in sorted(ROOT.glob(pattern)) if path.stat().st_size <= max_bytes)
    return tuple(path.read_bytes() for path in paths)


class Mutator:
    """Makes cases from one source of random numbers."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def make_case(self, kind: str) -> Case:
        """Return a case of a kind."""
        files, arguments = KINDS[kind](self)
        return Case(kind, files, tuple(argument.replace("\0", "") for argument in arguments))

    def damage(self, data: bytes, odd: tuple[bytes, ...] = ODD_BYTES, most: int = 6) -> bytes:
        """Return the bytes after some faults."""
        faults = (
            *(self._flip, self._delete, self._swap_lines, self._double, self._insert, self._insert_mark),
            *(self._replace_word, self._replace_word, self._replace_number, self._replace_number),
        )
        for _ in range(self.random.randint(1, most)):
            data = self.random.choice(faults)(data, odd)
        if self.random.random() < 0.05:
            data = data[: self._choose_place(data)]
        return data

    def edit_numbers(self, data: bytes, most: int = 3) -> bytes:
        """Return a text with other numbers, so that it is still what it was."""
        for _ in range(self.random.randint(1, most)):
            data = self._replace_number(data, ())
        return data

    def _choose_place(self, data: bytes) -> int:
        return self.random.randrange(len(data) + 1)

    def _choose_length(self) -> int:
        return self.random.choice((1, 2, 8, 60, 400))

    def _flip(self, data: bytes, _: tuple[bytes, ...]) -> bytes:
        at = self._choose_place(data)
        return (
            data[:at]
            + bytes(byte ^ 1 << self.random.randrange(8) for byte in data[at : at + 1])
            + data[at + 1 :]
        )

    def _delete(self, data: bytes, _: tuple[bytes, ...]) -> bytes:
        at = self._choose_place(data)
        return data[:at] + data[at + self._choose_length() :]

    def _swap_lines(self, data: bytes, _: tuple[bytes, ...]) -> bytes:
        lines = data.split(b"\n")
        i, j = (self.random.randrange(len(lines)) for _ in range(2))
        lines[i], lines[j] = lines[j], lines[i]
        return b"\n".join(lines)

    def _double(self, data: bytes, _: tuple[bytes, ...]) -> bytes:
        at = self._choose_place(data)
        return data[: at + self._choose_length()] + data[at:]

    def _insert(self, data: bytes, odd: tuple[bytes, ...]) -> bytes:
        at = self._choose_place(data)
        return data[:at] + self.random.choice(odd) + data[at:]

    def _insert_mark(self, data: bytes, _: tuple[bytes, ...]) -> bytes:
        at = self._choose_place(data)
        return data[:at] + bytes([self.random.choice(b";/*@[]{}|.,+-~!`()#\"' \t\r\n0xRUP")]) + data[at + 1 :]

    def _replace_word(self, data: bytes, odd: tuple[bytes, ...]) -> bytes:
        return self._replace_match(rb"[^\s,;:=\"]+", data, odd)

    def _replace_number(self, data: bytes, _: tuple[bytes, ...]) -> bytes:
        return self._replace_match(rb"\b(?:0x[0-9a-f]+|\d+(?:\.\d+)?)\b", data, ODD_NUMBERS)

    def _replace_match(self, pattern: bytes, data: bytes, odd: tuple[bytes, ...]) -> bytes:
        matches = list(re.finditer(pattern, data))
        if not matches:
            return data
        match = self.random.choice(matches)
        return data[: match.start()] + self.random.choice(odd) + data[match.end() :]

    def damage_json(self, content: object) -> bytes:
        """Return JSON after some faults of its values or of its text."""
        for _ in range(self.random.randint(0, 3)):
            content = self._replace_node(content)
        text = json.dumps(content).encode()
        return self.damage(text, most=2) if self.random.random() < 0.4 else text

    def _replace_node(self, node: object) -> object:
        if isinstance(node, dict) and node and self.random.random() < 0.95:
            key = self.random.choice(list(node))
            if self.random.random() < 0.15:
                return {**node, str(self.random.choice(ODD_VALUES))[:60]: node[key]}
            return {**node, key: self._replace_node(node[key])}
        if isinstance(node, list) and node and self.random.random() < 0.8:
            at = self.random.randrange(len(node))
            return [*node[:at], self._replace_node(node[at]), *node[at + 1 :]]
        return self.random.choice(ODD_VALUES)

    def make_launch(self) -> list[str]:
        """Return the options of a launch, mostly sensible."""
        choose = self.random.choice
        words = ["--grid", choose(("1", "4", "2,3", "64", "7,1,2", "1000000"))]
        words += ["--block", choose(("32", "64", "128", "17", "8,8", "1024", "1"))]
        for place in range(self.random.randrange(7)):
            value = choose(
                ("ptr", "ptr", "ptr", "64", "1024", "0", "-1", "2.5", "null", "zeros", "fill:3", "tensormap")
            )
            words += ["--arg", f"{place}={value}"]
        if self.random.random() < 0.2:
            words += ["--dynamic-shared", choose(("0", "1024", "49152", "232448"))]
        return words

    def make_command(self, file: str, gpu: str = "") -> list[str]:
        """Return a command line that reads a dump."""
        choose, chance = self.random.choice, self.random.random
        gpu = gpu or choose(GPUS)
        match self.random.randrange(10):
            case 0:
                words = ["annotate", file, "-g", gpu if gpu != "all" else "a100"]
            case 1:
                words = [
                    "whatif",
                    file,
                    "-g",
                    gpu if gpu != "all" else "h100",
                    "--no-elasticity",
                    "-m",
                    "steady",
                ]
                words += ["--sweep", choose(("dram=x0.5,x2", "sm.count=10,20", "clock=1000:1400:200"))]
            case 2:
                words = ["trace", file, "--ctas", "1"]
            case _:
                model = choose(("", "", "roofline", "warp", "steady", "amali", "sm"))
                words = ["analyze", file, "-g", gpu, *(["-m", model] if model and gpu != "all" else [])]
                words += [] if gpu != "all" else ["-m", "roofline"]
                words += choose(([], ["--all"], ["--format", "json"], ["--loops", "--memory"]))
        if words[0] == "trace" or chance() < 0.4:
            words += self.make_launch()
        return words


Made = tuple[dict[str, bytes], list[str]]


def make_dump_case(mutator: Mutator) -> Made:
    """Return a damaged kernel of cuobjdump."""
    _, data = mutator.random.choice(load_kernels())
    odd = tuple(text.encode() for text in ODD_CODE) if mutator.random.random() < 0.8 else ODD_BYTES
    return {"k.sass": mutator.damage(data, odd)}, mutator.make_command("k.sass")


def make_text_case(mutator: Mutator) -> Made:
    """Return a damaged text of another tool: nvdisasm, listings, and what is refused by name."""
    data = mutator.random.choice(
        (*load_files("traces/nvdisasm/*.txt", 400_000), *load_files("tests/wild/*/*.txt", 60_000))
    )
    odd = tuple(text.encode() for text in ODD_CODE) if mutator.random.random() < 0.6 else ODD_BYTES
    if len(data) > MAX_DUMP_BYTES:
        data = data[: data.rindex(b"\n", 0, MAX_DUMP_BYTES)]
    words = mutator.make_command("k.txt")
    if mutator.random.random() < 0.3:
        words += ["--arch", mutator.random.choice(("sm_90", "sm_80", "sm_61", "90", "", "sm_999999"))]
    return {"k.txt": mutator.damage(data, odd)}, words


def make_cubin_case(mutator: Mutator) -> Made:
    """Return a damaged cubin, on standard input or beside a dump at times."""
    data = mutator.random.choice(load_files("traces/cubin/*.cubin", 60_000))
    files = {"k.cubin": mutator.damage(data, most=4)}
    if mutator.random.random() < 0.3:
        files["k.sass"] = mutator.random.choice(load_kernels())[1]
        return files, mutator.make_command("k.sass")
    return files, mutator.make_command("k.cubin")


def make_usage_case(mutator: Mutator) -> Made:
    """Return a damaged resource usage, beside the dump or named."""
    _, data = mutator.random.choice(load_kernels())
    usage = mutator.random.choice(load_files("traces/*/sm_*/*.res"))
    name = mutator.random.choice(("k.res", "other.txt"))
    words = ["analyze", "k.sass", "-m", "roofline"] + (["--res-usage", name] if name != "k.res" else [])
    return {"k.sass": data, name: mutator.damage(usage)}, words


def make_elf_case(mutator: Mutator) -> Made:
    """Return damaged ELF tables beside a dump."""
    _, data = mutator.random.choice(load_kernels())
    name = re.search(rb"Function : (\S+)", data)
    kernel = name[1].decode() if name else "k"
    table = (
        f"64bit elf: type=2, abi=7, sm=90, toolkit=130, flags = 0x5a055a\nSections:\n.nv.info.{kernel}\n"
        "\t<0x1>\n\tAttribute:\tEIATTR_KPARAM_INFO\n\tFormat:\tEIFMT_SVAL\n"
        "\tValue:\tIndex : 0x0\tOrdinal : 0x0\tOffset  : 0x0\tSize    : 0x8\n"
        "\t\tPointee's logAlignment : 0x0\tSpace : 0x0\tcbank : 0x1f\n"
        "\tAttribute:\tEIATTR_PARAM_CBANK\n\tValue:\t0x2 0x240210\n"
        "\tAttribute:\tEIATTR_REQNTID\n\tValue:\t0x80 0x1 0x1\n"
        ".nv.constant3\n0x00000001 0x00000002 0x00000003\n.symtab\n  1  0x0 0x10 0x1 0x0 0x5 table\n"
    )
    return {"k.sass": data, "k.elf": mutator.damage(table.encode())}, mutator.make_command("k.sass")


def make_launch_case(mutator: Mutator) -> Made:
    """Return a damaged launch file."""
    _, data = mutator.random.choice(load_kernels())
    entry = {
        "grid": [2, 1, 1],
        "block": [64, 1, 1],
        "cluster": [1],
        "dynamic_shared_bytes": 0,
        "clock_mhz": 1400.5,
        "l2_is_cold": False,
        "arguments": {"0": "ptr", "1": 64, "2": 1.5, "3": "fill:7", "4": None},
    }
    content = {"kernels": {"*": mutator.random.choice((entry, [entry, entry])), "zzz*": entry}}
    words = ["analyze", "k.sass", "--launch", "l.json", "-m", mutator.random.choice(("roofline", "steady"))]
    return {"k.sass": data, "l.json": mutator.damage_json(content)}, words


def make_triton_case(mutator: Mutator) -> Made:
    """Return damaged metadata of Triton beside a dump."""
    path = mutator.random.choice(sorted(TRACES.glob("triton/sm_*/*.json")))
    data = path.with_suffix(".sass").read_bytes()
    content = json.loads(path.read_bytes())
    files = {"k.json": mutator.damage_json(content)}
    if len(data) < 3 * MAX_DUMP_BYTES:
        files["k.sass"] = data
    else:
        files["k.sass"] = mutator.random.choice(load_kernels())[1]
    if mutator.random.random() < 0.3:
        ttir = (
            b"module {\n  tt.func public @k(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32) {\n"
            b"    tt.return\n  }\n}\n"
        )
        files["k.ttir"] = mutator.damage(ttir)
    return files, ["analyze", "k.sass", "-m", "roofline", "--grid", "2", "--arg", "0=ptr", "--arg", "1=ptr"]


def make_trace_case(mutator: Mutator) -> Made:
    """Return a damaged trace, plain or packed, or a list of traces."""
    choose = mutator.random.choice
    data = choose(load_files("traces/nvbit/*.trace*"))
    text = mutator.damage(data) if mutator.random.random() < 0.7 else data
    name = "kernel-1.traceg"
    match choose(("plain", "plain", "gz", "xz")):
        case "gz":
            text = gzip.compress(text, 1, mtime=0)
        case "xz":
            text = lzma.compress(text, preset=0)
    if text is data or mutator.random.random() < 0.2:
        text = mutator.damage(text, most=3)
    files = {name: text}
    match mutator.random.randrange(4):
        case 0:
            listed = b"MemcpyHtoD,0x00007f0000000000,4096\nkernel-1.traceg\n"
            files["kernelslist.g"] = mutator.damage(listed, most=3)
            return files, ["analyze", "kernelslist.g", "-g", "a100"]
        case 1:
            files["k.sass"] = choose(load_kernels())[1]
            return files, ["analyze", "k.sass", "--trace", name, "-g", "a100"]
        case _:
            return files, ["analyze", name, "-g", "a100", *choose(([], ["--all"], ["--format", "json"]))]


def make_gpu_case(mutator: Mutator) -> Made:
    """Return a damaged GPU file."""
    choose = mutator.random.choice
    own = (
        b'schema = "warplens/gpu/1"\nname = "mine"\ninherits = "h100-sxm"\n\n'
        b'[sm]\ncount = { value = 66, basis = "assumed", source = "me" }\n'
    )
    data = choose((own, choose(load_files("hwdb/gpu/*.toml"))))
    is_edited = mutator.random.random() < 0.6
    text = mutator.edit_numbers(data) if is_edited else mutator.damage(data, most=2)
    files = {"g.toml": text, "k.sass": choose(load_kernels())[1]}
    commands = (
        ["gpus", "g.toml", "--explain"],
        ["analyze", "k.sass", "-g", "g.toml", "-m", choose(("roofline", "steady", "warp"))],
        ["gpus", "new", "--from", "g.toml", "-o", "n.toml"],
        ["whatif", "k.sass", "-g", "g.toml", "-m", "steady", "--no-elasticity", "--set", "sms=x0.5"],
    )
    return files, choose(commands)


def make_table_case(mutator: Mutator) -> Made:
    """Return a damaged table of measured launches."""
    choose = mutator.random.choice
    head = ["case", "suite", "kernel", "gpu", "grid", "block", "cluster", "dynamic_shared_bytes", "arguments"]
    head += ["split", "l2", "clock_mhz", "dump", "time_us", "group", "counted", "config", "note"]
    row = [
        "a",
        "s",
        "",
        "a100",
        "4;1;1",
        "64",
        "",
        "0",
        '"[""ptr"", 4]"',
        "learn",
        "warm",
        "1000",
        "k.sass",
        "5",
    ]
    row += ["g", "yes", "c", "n"]
    rows = [head, list(row), list(row)]
    for _ in range(mutator.random.randint(0, 3)):
        fields = choose(rows)
        fields[mutator.random.randrange(len(fields))] = str(choose(ODD_VALUES))
    text = "\n".join(",".join(fields) for fields in rows).encode("utf-8", "backslashreplace")
    if mutator.random.random() < 0.5:
        text = mutator.damage(text, most=3)
    words = ["validate", "t.csv", "-m", "roofline", "-j", "1", *choose((["--no-cache"], ["--cache", "c"]))]
    words += choose(([], ["--format", "json"], ["--max-mape", "50"]))
    return {"t.csv": text, "k.sass": choose(load_kernels())[1]}, words


def make_array_case(mutator: Mutator) -> Made:
    """Return damaged numpy arrays as arguments."""
    choose = mutator.random.choice
    kinds: tuple[object, ...] = (
        "i4",
        "f8",
        "u1",
        "c16",
        "S5",
        ">i4",
        "M8[s]",
        [("a", "i4"), ("b", "f4")],
        "?",
    )
    shape = choose(((64,), (0,), (3, 5), (), (1, 0, 2), (4096,)))
    stream = io.BytesIO()
    np.save(stream, np.zeros(shape, dtype=np.dtype(choose(kinds))))  # type: ignore[call-overload]
    data = stream.getvalue()
    if mutator.random.random() < 0.6:
        cut = choose((130, len(data)))
        damage = choose((mutator.damage, mutator.edit_numbers))
        data = damage(data[:cut], most=2) + data[cut:]
    words = ["analyze", "k.sass", "--grid", "2", "--block", "64", "-m", "roofline"]
    words += ["--arg", f"{choose((0, 0, 1))}=@a.npy", *choose(([], ["--format", "json"], ["--memory"]))]
    return {"a.npy": data, "k.sass": choose(load_kernels())[1]}, words


_WORDS = (
    *(
        "analyze",
        "annotate",
        "whatif",
        "validate",
        "trace",
        "gpus",
        "doctor",
        "new",
        "show",
        "k.sass",
        "-",
        "none",
    ),
    *(
        "--gpu",
        "-g",
        "h100",
        "--model",
        "-m",
        "all",
        "roofline",
        "--grid",
        "--block",
        "--cluster",
        "--arg",
        "--trip",
    ),
    *(
        "--taken",
        "--clock",
        "--launch",
        "--res-usage",
        "--trace",
        "--step-limit",
        "--kernel",
        "-k",
        "#1",
        "*",
        "--all",
    ),
    *(
        "--format",
        "json",
        "text",
        "-o",
        "out",
        "--set",
        "--sweep",
        "--chart",
        "--elasticity",
        "--explain",
        "--from",
    ),
    *(
        "--min-coverage",
        "--strict",
        "-j",
        "1",
        "--max-mape",
        "--cache",
        "--split",
        "--help",
        "--version",
        "--arch",
    ),
    *(
        "sm.count=x0.5",
        "dram=1:2:0",
        "dram=x0.5,x1",
        "l2=nan",
        "clock=1e999",
        "0x40=yes",
        "0x40=1.5",
        "16",
        "a:3=2",
    ),
    *(
        "132,1,1",
        "0",
        "-1",
        "1x1x1x1",
        "99999999999999999999",
        "2147483647,65535,65535",
        "0=ptr",
        "n=3",
        "=",
        "0=",
        "x",
    ),
    *(
        "0=@k.sass",
        "0=@.",
        "0=tensormap:f16:64:8",
        "0=fill:1e400",
        "0=fill:i64:7",
        "1e-400",
        "0x",
        "nan",
        "inf",
        "--",
        "",
    ),
)


def make_command_line_case(mutator: Mutator) -> Made:
    """Return a command line of words that mean something, in any order, some of them odd."""
    choose, chance = mutator.random.choice, mutator.random.random
    if chance() < 0.7:
        words = mutator.make_command("k.sass")
        for _ in range(mutator.random.randint(1, 2)):
            at = mutator.random.randrange(len(words) + 1)
            match mutator.random.randrange(3):
                case 0:
                    words[at:at] = [choose(_WORDS)]
                case 1 if at < len(words):
                    words[at] = choose(_WORDS)
                case _ if at < len(words):
                    odd = choose(ODD_BYTES).decode("utf-8", "surrogateescape")[:1000]
                    words[at] = f"{words[at]}{odd}"
    else:
        words = [choose(_WORDS[:7]), *(choose(_WORDS) for _ in range(mutator.random.randrange(8)))]
    return {"k.sass": choose(load_kernels())[1]}, [word for word in words if word not in ("/", "..")]


KINDS: dict[str, Callable[[Mutator], Made]] = {
    "dump": make_dump_case,
    "text": make_text_case,
    "cubin": make_cubin_case,
    "usage": make_usage_case,
    "elf": make_elf_case,
    "launch": make_launch_case,
    "triton": make_triton_case,
    "trace": make_trace_case,
    "gpu": make_gpu_case,
    "table": make_table_case,
    "array": make_array_case,
    "command": make_command_line_case,
}
