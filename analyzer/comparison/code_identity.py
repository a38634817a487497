"""Identity of a kernel's code: what makes two kernels the same for a GPU and for every model.

The digest is over the canonical instruction texts (`canonical_code`), the upper words of the encodings with
the control codes, the architecture and the resources. Names, source lines, the place in the file and order
of functions are left out. Two kernels with one digest have equal counts and times for equal launches.
"""

import hashlib

import numpy as np

from analyzer.comparison.canonical_code import list_canonical_texts
from analyzer.ir.module import Kernel, KernelResources

_VERSION = b"warplens code 1\n"


def digest_code(kernel: Kernel) -> str:
    """Return the SHA-256 of a kernel's instructions, control words and resources, in hex."""
    resources = kernel.resources
    fields = (
        kernel.arch,
        kernel.cluster,
        *(getattr(resources, n) for n in KernelResources.__struct_fields__),
    )
    digest = hashlib.sha256(_VERSION)
    digest.update(repr(fields).encode())
    digest.update(digest_instructions(kernel).encode())
    return digest.hexdigest()


def digest_instructions(kernel: Kernel) -> str:
    """Return the SHA-256 of the instructions and control words alone, without the resources, in hex."""
    digest = hashlib.sha256(_VERSION)
    digest.update("\n".join(list_canonical_texts(kernel)).encode("utf-8", "surrogatepass"))
    words = kernel.control_words
    if words is not None:
        digest.update(b"\0")
        digest.update(np.ascontiguousarray(words, dtype="<u8").tobytes())
    return digest.hexdigest()
