"""Formats that are recognized and not read: what each is, and how to get code from it."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from analyzer.frontend.input_format import InputFormat
from analyzer.frontend.sass_diagnostics import HINT_DUMP
from analyzer.frontend.source_page import EXPORT_HINT
from analyzer.text.errors import InputError


class _Refusal(Struct, frozen=True):
    """Message and hint for a format that is not read."""

    message: str
    hint: str


_REFUSALS: Mapping[InputFormat, _Refusal] = MappingProxyType(
    {
        InputFormat.TRITON_IR: _Refusal(
            "this is Triton's intermediate code, not instructions",
            "take the .cubin or .ptx beside it, or that folder; `warplens tasks` divides its launch",
        ),
        InputFormat.TRITON_METADATA: _Refusal(
            "this is Triton's metadata of a kernel, not instructions",
            "give the .cubin that lies beside it, or its folder",
        ),
        InputFormat.LLVM_IR: _Refusal(
            "this is LLVM's intermediate code, not instructions",
            "compile it for a GPU, and give the cubin",
        ),
        InputFormat.CUDA_SOURCE: _Refusal(
            "this is CUDA source, not instructions",
            "compile it first: nvcc -arch=sm_90 -cubin kernel.cu -o kernel.cubin",
        ),
        InputFormat.EMPTY: _Refusal(
            "the input is empty", "make a dump with: cuobjdump -sass kernel.cubin > kernel.sass"
        ),
        InputFormat.UTF16: _Refusal(
            "the text is UTF-16, as PowerShell's `>` writes it",
            "dump again with: cuobjdump -sass kernel.cubin | Out-File -Encoding utf8 kernel.sass",
        ),
        InputFormat.PROFILER_REPORT: _Refusal("this is a report of Nsight Compute", EXPORT_HINT),
        InputFormat.PROFILER_TABLE: _Refusal(
            "this is a table of Nsight Compute without the code of its source page", EXPORT_HINT
        ),
        InputFormat.FLOW_GRAPH: _Refusal(
            "this is a control-flow graph as nvdisasm -cfg draws it, without addresses",
            "print the code: nvdisasm -c kernel.cubin > kernel.sass",
        ),
        InputFormat.RESOURCE_USAGE: _Refusal(
            "this is resource usage, which goes beside a dump",
            "give the dump, and this file with --res-usage",
        ),
        InputFormat.ELF_TABLES: _Refusal("these are the tables of a cubin without its code", HINT_DUMP),
        InputFormat.FILE_LIST: _Refusal(
            "this is cuobjdump's list of what a file holds, without code",
            "print the code: cuobjdump -sass FILE > kernel.sass",
        ),
        InputFormat.JSON: _Refusal(
            "this is JSON that holds no code",
            "nvdisasm -json prints code; a --launch file goes beside a dump",
        ),
        InputFormat.ZIP: _Refusal("this is a zip archive or a wheel", "unpack it, and give a file in it"),
        InputFormat.UNKNOWN_BINARY: _Refusal(
            "this is neither text nor a binary that holds GPU code",
            "give a SASS dump, a cubin, a fatbin, or an ELF object or library; unpack it if it is compressed",
        ),
    }
)


def check_readable(path: str, found: InputFormat) -> None:
    """Raise InputError, which says what the input is and what to do, if its format is not read."""
    if refusal := _REFUSALS.get(found):
        raise InputError(f"{path}: {refusal.message}", hint=refusal.hint)


def is_readable(found: InputFormat) -> bool:
    """Return whether an input of this format is read as code."""
    return found not in _REFUSALS and found is not InputFormat.UNKNOWN_TEXT
