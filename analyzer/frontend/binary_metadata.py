"""Parameters and constants of the kernels in an object or library, from its cubins."""

from analyzer.frontend.cubin_info import parse_cubin
from analyzer.frontend.disassembler import extract_cubins
from analyzer.frontend.kernel_metadata import KernelMetadata
from analyzer.text.errors import InputError, ToolError

BinaryMetadata = dict[tuple[str, str], KernelMetadata | None]


def read_binary_metadata(path: str) -> BinaryMetadata:
    """Return the metadata in the cubins of a file by (architecture, kernel); empty if they cannot be read.

    No error is raised here, because the disassembler reads the same file and reports what is wrong with it.
    """
    found: BinaryMetadata = {}
    try:
        for cubin in extract_cubins(path):
            for name, metadata in parse_cubin(cubin.content).metadata.items():
                merge_metadata(found, cubin.arch, name, metadata)
    except (InputError, OSError, ToolError):
        return {}
    return found


def merge_metadata(found: BinaryMetadata, arch: str, name: str, metadata: KernelMetadata) -> None:
    """Add the metadata of one kernel; None for a kernel that occurs twice with different metadata."""
    key = (arch, name)
    found[key] = metadata if found.get(key, metadata) == metadata else None
