"""Labels that a disassembler numbers through a whole file, told by their addresses instead.

nvdisasm calls the target of a branch `.L_x_7`: a branch more in one kernel renames the labels of all that
follow. Where a kernel must look the same wherever it stands, `BRA (.L_x_7)` in backquotes is `BRA 0x250`, as
cuobjdump prints it.
"""

import re
from collections.abc import Callable

from analyzer.ir.module import Kernel

_NUMBERED = re.compile(r"\.L_(?:x_)?\d+")
_IN_TEXT = re.compile(r"`\((\.L_(?:x_)?\d+)\)|(\.L_(?:x_)?\d+)\b")


def make_label_renamer(kernel: Kernel) -> Callable[[str], str]:
    """Return a function that writes the addresses of a kernel's numbered labels for their names in a text.

    Labels of other functions keep their names.
    """
    names = {name: f"{address:#x}" for name, address in kernel.labels if _NUMBERED.fullmatch(name)}
    if not names:
        return str
    return lambda text: _IN_TEXT.sub(lambda match: names.get(match[1] or match[2], match[0]), text)
