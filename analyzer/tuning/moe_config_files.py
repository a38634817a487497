"""The files in which vLLM and SGLang keep tuned configurations of their fused-MoE kernel, read and written.

A file is named after what it was tuned for and maps batch sizes to configurations:

    E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3.json
    {"1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, ..., "num_warps": 4, "num_stages": 4}, "64": ...}

E is the number of experts, N the intermediate size of one expert on one GPU (half the width of the first
product, which holds gate and up), M the tokens of the batch. The engines take the entry whose M is nearest;
of two equally near the first in the file, which is the smaller in a file that is in order.

They differ in the spelling of names: SGLang writes a block shape with a space (`[128, 128]`), may add
`per_channel_quant=True` and `_down` (the second product), and keeps a folder for each version of Triton;
vLLM writes no space, calls every H200 `NVIDIA_H200`, and may hold a key `triton_version` beside the sizes.
Both are read whatever the engine. Described from vllm-project/vllm, .../fused_moe/config.py and
sgl-project/sglang, .../fused_moe_triton_config.py (2025 and 2026); the code here is ours.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from analyzer.files import read_file
from analyzer.hardware.gpu_database import find_keys_by, load_gpu
from analyzer.text.errors import InputError, UsageError
from analyzer.text.escaping import format_json
from analyzer.text.json_spans import JsonPath, find_json_spans, split_decode_error
from analyzer.text.source import Location, locate

_MAX_BYTES = 1 << 20
_MAX_SIZES = 10_000
_MAX_EXTRAS = 32
_MAX_DEPTH = 3
_FORM = 'it maps batch sizes to configurations: {"64": {...}}'
_LARGEST = 1 << 20
_LARGEST_BATCH = 1 << 40
_TRITON_VERSION = "triton_version"
_BLOCK_FIELDS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
_OPTION_FIELDS = ("GROUP_SIZE_M", "num_warps", "num_stages")
_KNOWN_FIELDS = (*_BLOCK_FIELDS, *_OPTION_FIELDS)
_DEFAULT_WARPS, _DEFAULT_STAGES, _DEFAULT_GROUP = 4, 3, 1  # Triton's own, where a file says nothing
_MAX_NAME_CHARACTERS = 255
_FILE_NAME = re.compile(
    r"E=(?P<experts>\d{1,9}),N=(?P<intermediate>\d{1,9}),device_name=(?P<device>[^,\[\]=/]+?)"
    r"(?:,dtype=(?P<dtype>[\w.]+?))?"
    r"(?:,block_shape=\[(?P<block_n>\d{1,6}), ?(?P<block_k>\d{1,6})\])?"
    r"(?P<per_channel>,per_channel_quant=True)?(?P<down>_down)?\.json"
)


class MoeFramework(StrEnum):
    """An engine whose spelling a file follows."""

    VLLM = "vllm"
    SGLANG = "sglang"


class MoeFileKey(Struct, frozen=True, kw_only=True):
    """What a file was tuned for: what its name says."""

    experts: int
    intermediate: int
    device_name: str  # as the runtime says it, with underscores for spaces
    dtype: str | None = None  # fp8_w8a8, int8_w8a8, int8_w8a16, int4_w4a16, float32; None for 16-bit floats
    block_shape: tuple[int, int] | None = None  # (n, k) of block-wise scales
    per_channel_quant: bool = False
    is_down: bool = False  # SGLang's file for the second product

    def make_file_name(self, framework: MoeFramework) -> str:
        """Return the name under which an engine looks. Raises UsageError for what it has no name for."""
        device = self.device_name.replace(" ", "_")
        if not re.fullmatch(r"[^,\[\]=/\0\s]+", device):
            raise UsageError(f"device name {self.device_name!r}", hint="as torch.cuda.get_device_name() says")
        if framework is MoeFramework.VLLM:
            if self.per_channel_quant or self.is_down:
                raise UsageError("vLLM has no files for per-channel scales or for the second product alone")
            for word, gpu in find_keys_by("pooled_word").items():
                if word in device.split("_"):
                    device = load_gpu(gpu).file.device_name.replace(" ", "_")
        comma = "," if framework is MoeFramework.VLLM else ", "
        shape = "" if self.block_shape is None else f",block_shape=[{comma.join(map(str, self.block_shape))}]"
        return (
            f"E={self.experts},N={self.intermediate},device_name={device}"
            f"{'' if self.dtype is None else f',dtype={self.dtype}'}{shape}"
            f"{',per_channel_quant=True' if self.per_channel_quant else ''}"
            f"{'_down' if self.is_down else ''}.json"
        )


class MoeConfig(Struct, frozen=True, kw_only=True):
    """A configuration of the fused-MoE kernel."""

    block_size_m: int
    block_size_n: int
    block_size_k: int
    group_size_m: int = _DEFAULT_GROUP
    num_warps: int = _DEFAULT_WARPS
    num_stages: int = _DEFAULT_STAGES
    extras: Mapping[str, int | float | bool | str] = {}  # SPLIT_K, waves_per_eu, ...: kept

    def as_fields(self) -> dict[str, int | float | bool | str]:
        """Return the fields of a file, in the engines' order."""
        return {
            "BLOCK_SIZE_M": self.block_size_m,
            "BLOCK_SIZE_N": self.block_size_n,
            "BLOCK_SIZE_K": self.block_size_k,
            "GROUP_SIZE_M": self.group_size_m,
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            **self.extras,
        }


class MoeConfigFile(Struct, frozen=True, kw_only=True):
    """A file: configurations by batch size, in the order of the file."""

    key: MoeFileKey | None  # None where the name is not one of the engines'
    by_tokens: tuple[tuple[int, MoeConfig], ...]
    triton_version: str = ""
    extra_fields: Mapping[str, int] = {}  # how often each field stands that this program does not interpret

    def choose(self, tokens: int) -> tuple[int, MoeConfig]:
        """Return the batch size and configuration that the engines take: the nearest, of two the first."""
        return min(self.by_tokens, key=lambda entry: abs(entry[0] - tokens))


def parse_file_name(name: str) -> MoeFileKey | None:
    """Return what a file's name says, None for a name that no engine would look for."""
    match = _FILE_NAME.fullmatch(name) if len(name) <= _MAX_NAME_CHARACTERS else None
    if match is None:
        return None
    dtype, is_down = match["dtype"], match["down"] is not None
    shape = None if match["block_n"] is None else (int(match["block_n"]), int(match["block_k"]))
    return MoeFileKey(
        experts=int(match["experts"]),
        intermediate=int(match["intermediate"]),
        device_name=match["device"],
        dtype=dtype,
        block_shape=shape,
        per_channel_quant=match["per_channel"] is not None,
        is_down=is_down,
    )


def read_moe_config_file(path: Path) -> MoeConfigFile:
    """Return the configurations of a file. Raises InputError with the place of what is wrong."""
    try:
        data = read_file(path, _MAX_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    reader = _Reader(str(path), data)
    entries = reader.read_entries()
    if not entries:
        raise reader.fail(
            "no configuration in it", (), 'it maps batch sizes to configurations: {"64": {...}}'
        )
    return MoeConfigFile(
        key=parse_file_name(path.name),
        by_tokens=tuple(entries),
        triton_version=reader.triton_version,
        extra_fields=dict(sorted(reader.extra_fields.items())),
    )


def format_moe_config_file(entries: Iterable[tuple[int, MoeConfig]]) -> str:
    """Return the text of a file, batch sizes ascending.

    entries: (tokens, configuration); raises UsageError for none or for a batch size given twice.
    """
    ordered = sorted(entries, key=lambda entry: entry[0])
    sizes = [tokens for tokens, _ in ordered]
    if not ordered or len(set(sizes)) != len(sizes) or sizes[0] < 1:
        raise UsageError("a file of configurations needs batch sizes that are positive and differ")
    fields = {str(tokens): config.as_fields() for tokens, config in ordered}
    return format_json(fields, indent=4)


def _find_depth(value: object) -> int:
    """Return how deeply objects and arrays are nested, _MAX_DEPTH + 1 for more than that."""
    depth, level = 0, [value]
    while depth <= _MAX_DEPTH:
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            break
        depth += 1
        level = [one for each in containers for one in (each.values() if isinstance(each, dict) else each)]
    return depth


class _Reader:
    """Reads one file; keeps the bytes, so that errors can point at them."""

    def __init__(self, name: str, data: bytes) -> None:
        self._name, self._data = name, data
        self.triton_version = ""
        self.extra_fields: dict[str, int] = {}

    def read_entries(self) -> list[tuple[int, MoeConfig]]:
        table = self._decode()
        version = table.pop(_TRITON_VERSION, "")
        self.triton_version = version[:40] if isinstance(version, str) else ""
        if len(table) > _MAX_SIZES:
            raise self.fail(f"{len(table):,} batch sizes; at most {_MAX_SIZES:,} are read", ())
        return [(self._read_size(key), self._read_config(key, value)) for key, value in table.items()]

    def _decode(self) -> dict[str, object]:
        try:
            table = msgspec.json.decode(self._data)
        except RecursionError:
            raise self._fail_nested() from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason, offset = split_decode_error(str(error))
            last = max(0, len(self._data.rstrip()) - 1)
            location = locate(self._name, self._data, last if offset is None else min(offset, last))
            raise InputError(
                f"not JSON: {reason}", location=location, hint="the file may be cut off"
            ) from None
        if _find_depth(table) > _MAX_DEPTH:
            raise self._fail_nested()  # before places are looked for, which costs the depth for each token
        if not isinstance(table, dict):
            raise self.fail("no object", (), _FORM)
        if (repeated := find_json_spans(self._data).repeated_key) is not None:
            raise self.fail(
                f"key {str(repeated[-1])[:40]!r} is there twice", repeated, "leave one of them out"
            )
        return table

    def _read_size(self, key: str) -> int:
        if not re.fullmatch(r"[0-9]{1,13}", key) or not 1 <= int(key) <= _LARGEST_BATCH:
            raise self.fail(
                f"{key[:40]!r} is no batch size",
                (key,),
                "keys are numbers of tokens, such as 64",
                at_key=True,
            )
        return int(key)

    def _read_config(self, key: str, value: object) -> MoeConfig:
        if not isinstance(value, dict):
            raise self.fail("no configuration", (key,), f"it has {', '.join(_KNOWN_FIELDS)}")
        missing = [name for name in _BLOCK_FIELDS if name not in value]
        if missing:
            raise self.fail(f"no {', '.join(missing)}", (key,), "without these no kernel can be compiled")
        numbers = {
            name: self._read_number((key, name), value[name]) for name in _KNOWN_FIELDS if name in value
        }
        extras = {name: each for name, each in value.items() if name not in _KNOWN_FIELDS}
        if len(extras) > _MAX_EXTRAS:
            raise self.fail(f"{len(extras)} fields that are not known", (key,))
        for name, each in extras.items():
            if not isinstance(each, int | float | bool | str):
                raise self.fail(f"{name[:40]} is neither number nor text", (key, name))
            self.extra_fields[name] = self.extra_fields.get(name, 0) + 1
        return MoeConfig(
            block_size_m=numbers["BLOCK_SIZE_M"],
            block_size_n=numbers["BLOCK_SIZE_N"],
            block_size_k=numbers["BLOCK_SIZE_K"],
            group_size_m=numbers.get("GROUP_SIZE_M", _DEFAULT_GROUP),
            num_warps=numbers.get("num_warps", _DEFAULT_WARPS),
            num_stages=numbers.get("num_stages", _DEFAULT_STAGES),
            extras=extras,
        )

    def _read_number(self, path: JsonPath, value: object) -> int:
        least = 0 if path[-1] == "num_stages" else 1
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _LARGEST:
            raise self.fail(f"{path[-1]} is no number from {least} to {_LARGEST:,}", path)
        if path[-1] not in ("GROUP_SIZE_M", "num_stages") and value & (value - 1):
            raise self.fail(f"{path[-1]} is {value}", path, "Triton takes powers of two alone")
        return value

    def _fail_nested(self) -> InputError:
        return InputError(
            f"{self._name}: nested too deeply for a file of configurations",
            hint=_FORM,
        )

    def fail(self, message: str, path: JsonPath, hint: str = "", *, at_key: bool = False) -> InputError:
        """Return an error that points at a value, or at its key."""
        return InputError(message, location=self._locate(path, at_key), hint=hint)

    def _locate(self, path: JsonPath, at_key: bool) -> Location:
        spans = find_json_spans(self._data)
        span = spans.find_key(path) if at_key else spans.find_value(path)
        return locate(self._name, self._data, span.offset, length=span.length)
