"""The kinds of inputs that warplens reads: for each, small sound ones and the command lines that read them.

A seed is the files of a folder; the first one is what `fuzz.py` changes. Seeds are shipped files, forms of
one small kernel (tests/wild/11-snippets/total_90.sass, bench/fuzz_seeds), or what warplens itself writes.
"""

import contextlib
import gzip
import io
import json
import lzma
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import numpy as np
from fuzz_mutations import NUMBERS, ODD_TEXTS, Mutator

from analyzer.cli.app import app, run

ROOT = Path(__file__).resolve().parents[1]
MAX_KERNEL_BYTES = 9_000
Seed = dict[str, bytes]
_DUMP = ROOT / "tests/wild/11-snippets/total_90.sass"
_FORMATS = ["text", "json", "markdown", "sarif", "junit", "github", "csv", "html"]
_CHOICES: Mapping[str, Sequence[str]] = {
    "gpu": ["a100", "h100", "b200", "rtx-5090", "l4", "t4", "v100-sxm2"],
    "model": ["sm", "steady", "amali", "gcom", "mdm", "roofline", "warp"],
    "format": _FORMATS,
    "show": ("", "", "--all", "--loops --memory", "--advice", "--explain", "--listing"),
    "grid": ["1", "4", "2,3", "64", "7,1,2", "1000000"],
    "block": ["32", "64", "128", "17", "8,8", "1024", "1"],
    "value": ["ptr", "ptr", "64", "0", "-1", "2.5", "null", "zeros", "fill:3", "fill:i64:7", "tensormap"],
    "launch": (
        "",
        "--grid {grid} --block {block}",
        "--grid {grid} --block {block}",
        "--grid {grid} --block {block} --arg 0=ptr --arg 1=ptr --arg 2={number}",
        "--grid {grid} --block {block} --arg 2={value}",
    ),
    "number": ["64", "1024", "0", "1", "1000000", "-1", "2147483647"],
    "answer": ("text", "json"),
    "table": ("text", "csv", "json"),
    "out": ("-", "out.csv"),
    "framework": ("vllm", "sglang"),
    "newer_gpu": ["a100", "h100", "b200", "l4"],
    "arguments": ("", "--arg 0=ptr", "--arg 0=ptr --arg 1=ptr", "--arg 2={number}"),
    "operator": (
        "gemm --m 64 --n 512 --k 4096 --dtype bf16",
        "gemm --m 4096 --n 4096 --k 512 --dtype fp16",
        "rmsnorm --rows 512 --columns 4096",
    ),
}  # fmt: skip
_ANALYZE = (
    "analyze {file} -g {gpu} {launch} {show}",
    "analyze {file} -g {gpu} -m {model} {launch} --format {format}",
)
_CODE = (
    *_ANALYZE,
    *_ANALYZE,
    "annotate {file} -g {gpu} {launch}",
    "whatif {file} -g {gpu} -m steady --no-elasticity --sweep dram=x0.5,x2 {launch}",
    "diff {file} {other} -g {gpu} {launch} --format {format}",
    "check {file} -g {gpu} --update --format {format}",
    "trace {file} --ctas 1 --grid {grid} --block {block} -o out.traceg",
    "tasks {file} --grid {grid} --block {block} --format {answer}",
    "analyze {file} --grid 2 --block 64 --format html -o out.html",
)


_TRACES = (
    "analyze {file} -g a100 {show}",
    "analyze {file} -g {gpu} --format {format}",
    "annotate {file} -g h100",
)
_GPU_FILES = (
    "gpus {file} --explain",
    "analyze k.sass -g {file} -m {model} {launch}",
    "gpus new --from {file} -o out.toml",
    "whatif k.sass -g {file} -m steady --no-elasticity --set sms=x0.5",
    "predict {operator} -g {file}",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """Sound inputs of a kind and what reads them; `cut` says which missing halves must be noticed."""

    seeds: Callable[[], Sequence[Seed]]
    commands: tuple[str, ...]
    cut: str = ""  # of "tail middle"


@dataclass(frozen=True, slots=True)
class Case:
    """Files of a folder, the command line to run in it, and how the input was changed."""

    kind: str
    files: Mapping[str, bytes]
    arguments: tuple[str, ...]
    change: str  # "form", "bytes", "half" or "none"


def make_case(kind: str, seed: str, change: str = "") -> Case:
    """Return a case: three of four keep the input's form, the others damage bytes or take half away.

    The change `none` leaves the input as it is.
    """
    mutator = Mutator(f"{seed}:{kind}")
    choose = mutator.random.choice
    description = KINDS[kind]
    seeds = list_seeds(kind)
    files, donor = dict(choose(seeds)), choose(seeds)
    name, *_ = files
    weights = (75, 20, 5 if description.cut else 0)
    change = change or mutator.random.choices(("form", "bytes", "half"), weights)[0]
    command = choose(description.commands)
    if change == "form":
        files[name] = mutator.mutate(name, files[name], donor.get(name, files[name]))
    elif change == "bytes":
        files[name] = mutator.damage(files[name])
    elif change == "half":
        files[name] = mutator.cut_off(
            name, files[name], is_middle=choose(description.cut.split()) == "middle"
        )
        command = description.commands[0] + " --format json"
    words = _fill(command, {"file": name, "other": "donor-" + name}, choose)
    if "donor-" + name in words:
        files["donor-" + name] = donor.get(name, files[name])
    if kind == "command-line" and change != "none":
        words, change = _edit_words(mutator, words), "form"
    return Case(kind, files, tuple(word.replace("\0", "") for word in words), change)


def _edit_words(mutator: Mutator, words: list[str]) -> list[str]:
    """Return a command line with flags added, and words replaced by those of others or by odd ones."""
    context = click.Context(app)
    commands = [app.get_command(context, name) for name in app.list_commands(context)]
    own = app.get_command(context, words[0])
    flags = [option.opts[0] for option in own.params if getattr(option, "is_flag", False)] if own else []
    options = [name for command in commands if command for option in command.params for name in option.opts]
    values = [value for each in _CHOICES.values() for value in each if "{" not in value]
    odd = [str(number) for number in NUMBERS] + [text[:1000] for text in ODD_TEXTS]
    for _ in range(mutator.random.randint(1, 2)):
        pool = mutator.random.choice((flags, flags, options, values, odd))
        at = mutator.random.randrange(2, len(words)) if pool is not flags else len(words)
        words[at : at + 1] = [mutator.random.choice(pool)]
    return words


def _fill(command: str, names: Mapping[str, str], choose: Callable[[Sequence[str]], str]) -> list[str]:
    """Return the words of a command line with its `{…}` replaced, those of what replaces them too."""
    while "{" in command:
        command = re.sub(r"\{(\w+)\}", lambda m: names.get(m[1]) or choose(_CHOICES[m[1]]), command)
    return shlex.split(command)


@cache
def list_seeds(kind: str) -> Sequence[Seed]:
    """Return the sound inputs of a kind."""
    seeds = KINDS[kind].seeds()
    assert seeds, kind
    return seeds


def _take(
    pattern: str, name: str, max_bytes: int = MAX_KERNEL_BYTES, beside: str = ""
) -> Callable[[], list[Seed]]:
    """Return what lists the shipped files of a pattern, each under a name, beside another as `m.json`."""

    def list_files() -> list[Seed]:
        paths = (path for path in sorted(ROOT.glob(pattern)) if path.stat().st_size <= max_bytes)
        others = {"m.json": (ROOT / beside).read_bytes()} if beside else {}
        return [{name: path.read_bytes(), **others} for path in paths]

    return list_files


def _texts(name: str, make: Callable[[], Sequence[str]]) -> Callable[[], list[Seed]]:
    """Return what lists texts under a name."""
    return lambda: [{name: text.encode()} for text in make()]


def _list_kernels() -> list[str]:
    """Return dumps of one small kernel each, of all architectures."""
    found = [_DUMP.read_text()]
    for path in sorted(ROOT.glob("traces/*/sm_*/*.sass")):
        head, *functions = re.split(r"(?m)^(?=[ \t]*Function : )", path.read_text("utf-8", "surrogateescape"))
        small = [each for each in functions if len(each) < MAX_KERNEL_BYTES]
        found += [head + each for each in sorted(small, key=len)[:2]]
    return found


def _list_instructions() -> list[tuple[int, str]]:
    """Return addresses and texts of the instructions of a small kernel."""
    found = re.findall(r"^ +/\*(\w+)\*/ +([^;]*?) *;", _DUMP.read_text(), re.M)
    return [(int(address, 16), text) for address, text in found]


def _list_listings() -> list[str]:
    """Return pasted code: with labels, without addresses, with addresses alone."""
    code = _list_instructions()
    return [
        (ROOT / "tests/wild/11-snippets/loop.sass").read_text(),
        "".join(f"{text};\n" for _, text in code),
        "".join(f"  {address:04x}  {text}\n" for address, text in code),
    ]


def _list_assembler_texts() -> list[str]:
    """Return CuAssembler text."""
    lines = (
        f"  [B------:R-:W-:-:S02]  /*{address:04x}*/  {text} ;\n" for address, text in _list_instructions()
    )
    return ['\t.headerflags @"EF_CUDA_SM90"\n\t.section .text.total,"ax",@progbits\n' + "".join(lines)]


def _list_debugger_texts() -> list[str]:
    """Return what cuda-gdb shows for `disassemble` and `x/i`."""
    code = [(0x7F2C5B000000 + address, address, text) for address, text in _list_instructions()]
    code = [
        (a, o, re.sub(r"(BRA) 0x(\w+)", lambda m: f"{m[1]} {0x7F2C5B000000 + int(m[2], 16):#x}", t))
        for a, o, t in code
    ]
    body = "".join(f"   {a:#018x} <+{offset}>:\t{text} \n" for a, offset, text in code)
    return [
        f"Dump of assembler code for function total:\n{body}End of assembler dump.\n",
        "".join(f"   {a:#018x} <total+{offset}>:\t{text}\n" for a, offset, text in code),
    ]


def _list_source_pages() -> list[str]:
    """Return Nsight Compute's source page as its window and its command line write it."""
    rows = "".join(f'"{n}","{a:#x}","{t}","8","0"\n' for n, (a, t) in enumerate(_list_instructions(), 1))
    head = '"#","Address","Source","# Samples","Instructions Executed"\n'
    return [head + rows, f'"Kernel Name","total"\n{head}{rows}']


def _list_elf_tables() -> list[Seed]:
    """Return a dump with what `cuobjdump -elf` prints beside it."""
    table = (
        "64bit elf: type=2, abi=7, sm=90, toolkit=130, flags = 0x5a055a\nSections:\n.nv.info._Z5totalPKfPfi\n"
        "\t<0x1>\n\tAttribute:\tEIATTR_KPARAM_INFO\n\tFormat:\tEIFMT_SVAL\n"
        "\tValue:\tIndex : 0x0\tOrdinal : 0x0\tOffset  : 0x0\tSize    : 0x8\n"
        "\t\tPointee's logAlignment : 0x0\tSpace : 0x0\tcbank : 0x1f\n"
        "\tAttribute:\tEIATTR_PARAM_CBANK\n\tValue:\t0x2 0x140210\n"
        "\tAttribute:\tEIATTR_REQNTID\n\tValue:\t0x80 0x1 0x1\n"
        ".nv.constant3\n0x00000001 0x00000002 0x00000003\n.symtab\n  1  0x0 0x10 0x1 0x0 0x5 table\n"
    )
    return [{"k.elf": table.encode(), "k.sass": _DUMP.read_bytes()}]


def _list_usages() -> list[Seed]:
    """Return what `cuobjdump -res-usage` prints, and its dump."""
    text = (
        "Resource usage:\n Common:\n  GLOBAL:0\n Function _Z5totalPKfPfi:\n"
        "  REG:8 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:556 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    )
    return [{"other.res": text.encode(), "k.sass": _DUMP.read_bytes()}]


def _list_cubins() -> list[Seed]:
    paths = (
        ROOT / "tests/wild/09-triton-cache/scale_rows.cubin",
        ROOT / "tests/wild/17-callees/divides_whole_80.cubin",
    )
    return [{"k.cubin": path.read_bytes()} for path in paths]


def _list_containers() -> list[Seed]:
    """Return an object with one kernel, a fatbin, and an archive of the object."""
    scale = (ROOT / "bench/fuzz_seeds/scale.o").read_bytes()
    at = scale.index(b"\x50\xed\x55\xba")
    fatbin = scale[at : at + 16 + int.from_bytes(scale[at + 8 : at + 16], "little")]
    member = f"{'scale.o/':16}{0:<12}{0:<6}{0:<6}{644:<8}{len(scale):<10}`\n".encode()
    return [{"k.o": scale}, {"k.o": fatbin}, {"k.o": b"!<arch>\n" + member + scale}]


def _list_packed_traces() -> list[Seed]:
    text = (ROOT / "traces/nvbit/vector_add.traceg").read_bytes()
    return [{"k.gz": gzip.compress(text, 1, mtime=0)}, {"k.gz": lzma.compress(text, preset=0)}]


def _list_trace_lists() -> list[Seed]:
    text = (ROOT / "traces/nvbit/vector_add.traceg").read_bytes()
    listed = b"MemcpyHtoD,0x00007f0000000000,4096\nkernel-1.traceg\nkernel-2.traceg.xz\n"
    return [
        {
            "kernelslist.g": listed,
            "kernel-1.traceg": text,
            "kernel-2.traceg.xz": lzma.compress(text, preset=0),
        }
    ]


def _list_triton_metadata() -> list[Seed]:
    folder = ROOT / "tests/wild/09-triton-cache"
    texts = {f"k.{end}": (folder / f"scale_rows.{end}").read_bytes() for end in ("json", "cubin", "ttir")}
    return [texts, {"k.ttir": texts["k.ttir"], **texts}]


def _list_cache_folders() -> list[Seed]:
    """Return the folder of one kernel with all its levels; what changes is PTX, else IR."""
    folder = ROOT / "traces/levels/sm_90"
    files = {
        f"softmax.{end}": (folder / f"softmax.{end}").read_bytes()
        for end in ("ptx", "ttgir", "ttir", "json", "cubin")
    }
    return [
        files,
        {"softmax.ttgir": files["softmax.ttgir"], **files},
        {"softmax.json": files["softmax.json"], **files},
    ]


def _list_launches() -> list[Seed]:
    entry = {
        "grid": [2, 1, 1], "block": [64, 1, 1], "cluster": [1], "dynamic_shared_bytes": 0,
        "clock_mhz": 1400.5,
        "l2_is_cold": False, "arguments": {"0": "ptr", "1": "fill:7", "2": 64},
    }  # fmt: skip
    contents = ({"kernels": {"*": entry}}, {"kernels": {"total*": [entry, entry], "zzz*": entry}})
    return [{"l.json": json.dumps(content).encode(), "k.sass": _DUMP.read_bytes()} for content in contents]


def _list_arrays() -> list[Seed]:
    found = []
    for array in (np.arange(64, dtype="i4"), np.ones((3, 5)), np.zeros(4096, "f4"), np.array(b"word")):
        np.save(stream := io.BytesIO(), array)
        found.append({"a.npy": stream.getvalue(), "k.sass": _DUMP.read_bytes()})
    return found


def _list_gpu_files() -> list[Seed]:
    own = (
        b'schema = "warplens/gpu/1"\nname = "mine"\ninherits = "h100-sxm"\n\n'
        b'[sm]\ncount = { value = 66, basis = "assumed", source = "me" }\n'
    )
    shipped = [path.read_bytes() for path in sorted(ROOT.glob("hwdb/gpu/*.toml"))[::8]]
    return [{"g.toml": data, "k.sass": _DUMP.read_bytes()} for data in (own, own, *shipped)]


def _list_measured_cases() -> list[Seed]:
    head = "case,suite,kernel,gpu,grid,block,cluster,dynamic_shared_bytes,arguments,split,l2,clock_mhz,"
    head += "dump,time_us"
    row = '{},s,,{},4;1;1,64,,0,"[""ptr"", ""ptr"", 64]",learn,warm,1000,k.sass,5'
    rows = [row.format(n, gpu) for n, gpu in enumerate(("a100", "h100", "l4"))]
    return [{"t.csv": "\n".join([head, *rows, ""]).encode(), "k.sass": _DUMP.read_bytes()}]


def _list_profiler_tables() -> list[str]:
    """Return Nsight Compute's raw and details pages as CSV."""
    return [
        '"ID","Process ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum",'
        '"launch__registers_per_thread","launch__shared_mem_per_block_static","dram__bytes_read.sum",'
        '"dram__bytes_write.sum","smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"\n'
        '"","","","","","us","register/thread","Kbyte/block","Mbyte","Mbyte",""\n'
        '"0","1","saxpy(float)","(256, 1, 1)","(16,384, 1, 1)","95","12","4.1","33.5","16","4,194,304"\n',
        '"ID","Kernel Name","Block Size","Grid Size","Section Name",'
        '"Metric Name","Metric Unit","Metric Value"\n'
        '"0","saxpy","(256, 1, 1)","(64, 1, 1)","Speed","Duration","msecond","0.1"\n'
        '"0","saxpy","(256, 1, 1)","(64, 1, 1)","Speed","Memory Throughput","Gbyte/second","400"\n'
        '"0","saxpy","(256, 1, 1)","(64, 1, 1)","Launch","Registers Per Thread","register/thread","12"\n',
    ]


def _list_profiler_traces() -> list[str]:
    """Return a trace of the PyTorch profiler."""
    launch = {"grid": [4096, 1, 1], "block": [256, 1, 1], "registers per thread": 16, "shared memory": 0}
    event = {
        "ph": "X",
        "cat": "kernel",
        "name": "void add<float>(float*)",
        "ts": 1,
        "dur": 95.5,
        "args": launch,
    }
    other = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "dur": 5, "args": {"grid": "none"}}
    return [json.dumps({"schemaVersion": 1, "traceEvents": [other, event, event]})]


def _list_prices() -> list[Seed]:
    model = (ROOT / "docs/llama-3.1-8b.json").read_bytes()
    return [{"p.csv": b"gpu,price_per_hour\nh100,2.5\nl40s,1.1\n", "m.json": model}]


def _list_models() -> list[Seed]:
    """Return configurations of dense models, of mixtures of experts and of latent attention."""
    dense = json.loads((ROOT / "docs/llama-3.1-8b.json").read_bytes())
    dense |= {"num_hidden_layers": 4, "head_dim": 128, "rms_norm_eps": 1e-5, "sliding_window": None}
    experts = {**dense, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    experts |= {"num_local_experts": 8, "num_experts_per_tok": 2}
    quantized = {**dense, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    gpt = json.loads((ROOT / "docs/gpt2-large.json").read_bytes())
    return [{"m.json": json.dumps(model).encode()} for model in (dense, experts, quantized, gpt)]


def _list_profiles() -> list[Seed]:
    """Return small profiles of a matrix product, tables of shapes beside them."""
    lines = (ROOT / "traces/h100/gemm_profile.csv").read_bytes().splitlines(keepends=True)
    return [{"p.csv": b"".join(lines[:120])}, {"p.csv": b"".join(lines[:1] + lines[1::30])}]


def _list_shapes() -> list[Seed]:
    artifact = (ROOT / "traces/h100/gemm_wavetune.npz").read_bytes()
    return [{"t.csv": b"m,n,k\n512,4096,4096\n384,384,256\n", "a.npz": artifact}]


def _make(name: str, command: str, output: str, seed: Seed) -> Callable[[], list[Seed]]:
    """Return what lists the files, by a pattern, that a command of warplens writes for a seed."""

    def list_made() -> list[Seed]:
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            os.chdir(folder)
            try:
                for each, data in seed.items():
                    Path(each).write_bytes(data)
                assert run(shlex.split(command)) == 0, command
                made = [path for path in sorted(Path().glob(output)) if path.is_file()]
                found = {name or str(path): path.read_bytes() for path in made}
            finally:
                os.chdir(before)
        return [{each: data, **found, **seed} for each, data in found.items()]

    return list_made


def _list_weights() -> list[Seed]:
    """Return learned weights, their cards beside them."""
    paths = [
        ROOT / "hwdb/weights" / f"ours-{name}.safetensors" for name in ("attention-fa2", "moe-product-bf16")
    ]
    return [{each.name: each.read_bytes() for each in (path, path.with_suffix(".toml"))} for path in paths]


def _list_configurations() -> list[Seed]:
    """Return configurations of `check` in both files that may hold them."""
    text = """inputs = ["*.sass"]
gpus = ["h100", "a100"]
cycles = "5%"
spill_bytes = 0
max_registers = 168
max_time_us = 400
min_occupancy = 0.25
forbid = ["shared-bank-conflict"]
"""
    rule = '{}\nmatch = "total*"\ncycles = "2%"\nmax_registers = 255\n'
    own, project = rule.format("[[check.kernels]]"), rule.format("[[tool.warplens.check.kernels]]")
    return [
        {"warplens.toml": f"[check]\n{text}\n{own}".encode(), **_KERNEL},
        {"pyproject.toml": f"[tool.warplens.check]\n{text}\n{project}".encode(), **_KERNEL},
    ]


_KERNEL = {"k.sass": _DUMP.read_bytes()}
_MODEL = "docs/llama-3.1-8b.json"
_LEVELS = "traces/levels/sm_90/"
_SCALE = "tests/wild/09-triton-cache/scale_rows"
_WITH_KERNEL = "analyze k.sass -g {gpu} -m {model} --grid 2 --block 64"
_OPERATORS = "-g h100 --format {answer}"
_MEASURED = {"r.csv": (ROOT / "docs/measured-operators.csv").read_bytes()}
_TRANSFER = (
    "transfer {file} --from v100-pcie --to h100",
    "transfer {file} --from a100 --to l40s --format {table}",
)
_TILES = (
    "tasks {file} --grid 8 {arguments} --format {answer}",
    "tasks {file} --grid {grid} {arguments}",
    "predict --kernel {file} --grid 64 {arguments} -g {gpu} --format {answer}",
)
_SERVING = "--gpu {newer_gpu} --format {answer} --framework {framework}"
_BATCH = "--batch 4 --input-tokens 64 --output-tokens 8"
_FORECAST = (
    f"forecast {{file}} {_BATCH} {_SERVING}",
    f"forecast {{file}} {_BATCH} -g h100 --explain",
    f"forecast {{file}} {_BATCH} -g h100,l40s --tp 1,2",
    "serving {file} --input-tokens 128 --output-tokens 9 --rate 4 --count 5 " + _SERVING,
)
_ITERATION = (
    "iteration {file} --batch 2 --seq 128 -g {newer_gpu} --training --format {answer}",
    "iteration {file} --batch 2 --seq 128 -g {newer_gpu} --dtype bf16 --compiled --tp 2",
)
KINDS: dict[str, Kind] = {
    "cuobjdump": Kind(_texts("k.sass", _list_kernels), _CODE, "tail middle"),
    "nvdisasm": Kind(_take("traces/nvdisasm/softmax_sm_90.txt", "k.txt", 20_000), _CODE, "tail middle"),
    "pasted-code": Kind(_texts("k.txt", _list_listings), tuple(f"{each} --arch sm_90" for each in _ANALYZE)),
    "cuassembler": Kind(_texts("k.txt", _list_assembler_texts), _CODE, "tail middle"),
    "cuda-gdb": Kind(
        _texts("k.txt", _list_debugger_texts), tuple(f"{each} --arch sm_90" for each in _ANALYZE), "tail"
    ),
    "nvdisasm-json": Kind(_take("tests/wild/12-other-formats/*.json", "k.json"), _CODE),
    "source-page": Kind(
        _texts("k.csv", _list_source_pages), tuple(f"{each} --arch sm_90" for each in _ANALYZE), "tail"
    ),
    "resource-usage": Kind(_list_usages, ("analyze k.sass -g {gpu} --res-usage {file} {launch}",)),
    "elf-tables": Kind(_list_elf_tables, tuple(each.replace("{file}", "k.sass") for each in _ANALYZE)),
    "cubin": Kind(_list_cubins, _CODE, "tail"),
    "fatbin-object-archive": Kind(_list_containers, _ANALYZE, "tail"),
    "ptx": Kind(
        _take("bench/fuzz_seeds/*.ptx", "k.ptx"),
        tuple(each.replace("{gpu}", "{newer_gpu}") for each in _CODE),
        "tail",
    ),
    "ptx-virtual": Kind(
        _take("bench/fuzz_seeds/*.ptx", "k.ptx"),
        (
            "analyze {file} --virtual -g {newer_gpu} {launch}",
            "analyze {file} --virtual -g a100 --grid {grid} --block {block} --advice",
        ),
        "tail",
    ),
    "triton-metadata": Kind(_list_triton_metadata, ("analyze k.cubin -g h100 --grid 4 {arguments}",)),
    "ttir": Kind(_take(_SCALE + ".ttir", "k.ttir"), _TILES, "tail"),
    "ttgir": Kind(_take(_LEVELS + "softmax.ttgir", "k.ttgir"), _TILES, "tail"),
    "cache-folder": Kind(
        _list_cache_folders,
        ("analyze . -g h100 --grid 64 --arg columns=512", "analyze softmax.cubin -g h100 --grid 64 --levels"),
    ),
    "trace": Kind(_take("traces/nvbit/*.trace*", "k.traceg"), _TRACES, "tail middle"),
    "trace-packed": Kind(_list_packed_traces, _TRACES),
    "trace-list": Kind(_list_trace_lists, ("analyze kernelslist.g -g a100 {show}",)),
    "array": Kind(_list_arrays, tuple(f"{_WITH_KERNEL} --arg {n}=@a.npy --memory" for n in range(3))),
    "launches": Kind(_list_launches, (f"{_ANALYZE[1]} --launch l.json".replace("{file}", "k.sass"),)),
    "gpu": Kind(_list_gpu_files, _GPU_FILES),
    "baseline": Kind(
        _make("warplens-baseline.json", "check --update k.sass -g h100", "warplens-baseline.json", _KERNEL),
        ("check k.sass -g h100 --format {format}", "check k.sass -g h100 --update"),
    ),
    "configuration": Kind(
        _list_configurations, ("check --no-baseline --format {format}", "check --update --format {format}")
    ),
    "report": Kind(
        _make("r.json", "analyze k.sass -g h100 --all --format json -o r.json", "r.json", _KERNEL),
        (
            "diff {file} {other} --format {format}",
            "diff k.sass {file} -g h100",
            "diff {file} k.sass -k total",
        ),
    ),
    "kept-report": Kind(
        _make("", "analyze k.sass -g h100 --cache c", "c/*/*/*", _KERNEL),
        ("analyze k.sass -g h100 --cache c", "check k.sass -g h100 --update --cache c"),
    ),
    "measured-cases": Kind(
        _list_measured_cases,
        (
            "validate t.csv -m {model} -j 1 --no-cache --format {answer}",
            "validate t.csv -m roofline -j 1 --cache c --max-mape 50 --html out.html",
            "calibrate t.csv -g a100 -o out.toml",
        ),
    ),
    "measured-launches": Kind(_take("docs/launches.csv", "t.csv"), _TRANSFER),
    "profiler-table": Kind(_texts("t.csv", _list_profiler_tables), _TRANSFER),
    "profiler-trace": Kind(_texts("t.json", _list_profiler_traces), _TRANSFER),
    "operators": Kind(_take("docs/operators.csv", "t.csv"), ("predict --table {file} --format {table}",)),
    "measured-operators": Kind(
        _take("docs/measured-operators.csv", "t.csv"),
        (
            "calibrate {file} -g l40s -o out.toml",
            "calibrate {file} -g h100 -o -",
            "validate {file} --model ours --format {answer}",
        ),
    ),
    "calibration": Kind(
        _make("c.toml", "calibrate r.csv -g h100 -o c.toml", "c.toml", _MEASURED),
        (
            "predict {operator} --calibration {file} " + _OPERATORS,
            "predict --table docs.csv --calibration {file}".replace("docs.csv", "r.csv"),
        ),
    ),
    "weights": Kind(
        _list_weights,
        (
            "predict attention --q-lengths 128 --kv-lengths 900 --heads 32 --kv-heads 8 --kind fa2_paged "
            "--weights . " + _OPERATORS,
            "predict moe --m 64 --experts 8 --topk 2 --hidden 4096 --intermediate 1024 --which w13 "
            "--dtype bf16 --weights . " + _OPERATORS,
        ),
    ),
    "requests": Kind(
        _take("docs/requests.csv", "t.csv", beside=_MODEL), ("forecast m.json --requests {file} " + _SERVING,)
    ),
    "arrivals": Kind(
        _take("docs/arrivals.csv", "t.csv", beside=_MODEL),
        (
            "serving m.json --requests {file} " + _SERVING,
            "serving m.json --requests {file} --rate 5 " + _SERVING,
        ),
    ),
    "prices": Kind(
        _list_prices,
        (f"forecast m.json {_BATCH} -g h100,l40s --tp 1,2 --prices {{file}}",),
    ),
    "model": Kind(lambda: _list_models()[:3], _FORECAST),
    "training-model": Kind(
        lambda: [seed for seed in _list_models() if b"Mixtral" not in seed["m.json"]], _ITERATION
    ),
    "exported-program": Kind(
        _take("docs/transformer.pt2", "m.pt2"),
        ("iteration --exported {file} -g {newer_gpu} --format {answer}",),
    ),
    "tuning-profile": Kind(
        _list_profiles,
        (
            "tune fit {file} -o out.npz",
            "tune profile {file} -o out.csv --dry-run",
        ),
    ),
    "tuning-sweep": Kind(
        _take("traces/h100/attention_sweep.csv", "p.csv", 40_000),
        ("tune evaluate {file} --split 0.5 --policy wavetune --policy step --no-clock --format {answer}",),
    ),
    "tuning-artifact": Kind(
        _take("traces/h100/gemm_wavetune.npz", "a.npz"),
        ("tune choose {file} --m 512 --n 4096 --k 4096 --format {answer}",),
    ),
    "tuning-shapes": Kind(_list_shapes, ("tune choose a.npz --table {file} -o {out}",)),
    "engine-configurations": Kind(
        _take("traces/h100/E=8,*.json", "E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json"),
        ("tune import {file} --m 100", "tune import {file} --format sglang -o out"),
    ),
    "command-line": Kind(lambda: [_KERNEL], _CODE),
}
