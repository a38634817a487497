"""PTX of which a part was pasted: a kernel without `.version` and `.target`, or the body of a kernel alone.

What is missing is put before the first line, so that lines keep their numbers:

    .version 9.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 k_param_0) { .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [k_param_0];

Parameters of a body are those that it loads, registers those that it names as compilers do. Branches to
labels that are not there leave it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from types import MappingProxyType

from msgspec import Struct

from analyzer.text.source import Diagnostic, Severity

_VERSION = "9.0"  # of the PTX ISA; an older ptxas takes it as its own
_VERSION_LINE = re.compile(r"^[ \t]*\.version[ \t]+\d+\.\d+", re.M)
_TARGET = re.compile(r"^[ \t]*(?:\.version[ \t]+\S+[ \t]+)?\.target[ \t][^\n.]*", re.M)
_ADDRESS_SIZE = re.compile(r"\.address_size[ \t]+\d+")
_STATEMENT = re.compile(r"^[ \t]*(?:@!?%?[\w$]+[ \t]+)?[a-z]\w*\.[^;\n]*;", re.M)
_FUNCTION = re.compile(r"\.(?:entry|func)\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_NEEDS = (  # the first architecture that has an instruction, and whether it is its alone
    (re.compile(r"\btcgen05\."), "sm_100", "a"),
    (re.compile(r"\b(?:wgmma|setmaxnreg)\."), "sm_90", "a"),
    (
        re.compile(r"\b(?:cp\.async\.bulk|mbarrier\.try_wait|barrier\.cluster|elect\.sync|mapa)\b"),
        "sm_90",
        "",
    ),
)
_LEAST_ARCH = "sm_80"
_END_OF_HEAD = re.compile(r"\s*(?:\.param\b[^{};]*)?\)[^{};]*(?=\{)")
_REGISTER = re.compile(r"(?<![\w.%$])(%?)(rd|fd|rs|rq|hh|[rfph])(\d+)(?![\w$:])")
_REGISTER_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "p": "pred",
        "r": "b32",
        "f": "f32",
        "rd": "b64",
        "fd": "f64",
        "rs": "b16",
        "h": "b16",
        "hh": "b32",
        "rq": "b128",
    }
)
_PARAMETER_LOAD = re.compile(
    r"\bld\.param(?:\.v(\d))?\.([a-z]+(\d+))\s+(?:\{[^}]*\}|[^,;]*?)\s*,"
    r"\s*\[\s*([A-Za-z_$][\w$]*)\s*(?:\+\s*(\d+))?\s*\]"
)
_NUMBERED_PARAMETER = re.compile(r"\b([A-Za-z_$][\w$]*_param_)(\d+)\b")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+([\w$]+)\s*;")
_RETURN = re.compile(r"\b(?:ret|exit)\s*;")
_LABEL = re.compile(r"(?:^|[;{}\s])([\w$]+):(?!:)")
_VARIABLE_USE = re.compile(
    r"\bmov\.[bus](?P<bits>32|64)\s+[%\w$]+\s*,\s*(?P<moved>[A-Za-z_$][\w$]*)\s*(?:\+\s*\d+\s*)?;"
    r"|\b\w+(?:\.\w+(?:::\w+)?)*?\.(?P<space>shared|global|const)\b[^;\[]*"
    r"\[\s*(?P<used>[A-Za-z_$][\w$]*)\s*[+\]]"
)


class CompletedPtx(Struct, frozen=True):
    """PTX with a header and a kernel."""

    text: bytes
    diagnostics: tuple[Diagnostic, ...]
    is_part: bool = False  # of the body of a kernel
    n_added: int = 0  # characters before the first one of the text


def is_incomplete(text: bytes) -> bool:
    """Return whether PTX has no `.version`, `.target`, or no function."""
    shown = text.decode("utf-8", "replace")
    has_header = _VERSION_LINE.search(shown) is not None and _TARGET.search(shown) is not None
    return not has_header or _is_body(_blank_comments(shown))


def _blank_comments(text: str) -> str:
    return _COMMENT.sub(lambda match: _blank(match[0]), text)


def _blank(text: str) -> str:
    """Return blanks in place of a text; its line ends stay."""
    return re.sub(r"[^\n]", " ", text)


def _is_body(code: str) -> bool:
    return _FUNCTION.search(code) is None and _STATEMENT.search(code) is not None


def complete_ptx(text: bytes, arch: str, name: str) -> CompletedPtx:
    """Return PTX with what it lacks.

    arch: wanted, such as `sm_90`; "": the oldest one that has all of its instructions.
    name: of a kernel whose body names no parameter.
    """
    shown = text.decode("utf-8", "replace")
    code = _blank_comments(shown)
    missing: list[str] = []
    target = _find_arch(code, arch)
    head = "" if _VERSION_LINE.search(code) else f".version {_VERSION} "
    after = [match.end() for each in (_VERSION_LINE, _TARGET, _ADDRESS_SIZE) if (match := each.search(code))]
    start = max(after, default=0)
    added = ""
    if not _TARGET.search(code):
        missing.append(
            f".target, which is taken as {target}" + ("" if arch else ": --gpu or --arch names another")
        )
        added = f".target {target} " + ("" if _ADDRESS_SIZE.search(code) else ".address_size 64 ")
    elif head:
        missing.append(".version")
    variables = list(_declare_variables(code))
    missing += [f"the declaration of {name}" for name, _ in variables]
    added += "".join(f"{declaration} " for _, declaration in variables)
    rest = shown[start:]
    if _is_body(code):
        missing.append("the head of a kernel: parameters are those that are loaded")
        before, rest = _complete_body(rest, code[start:], name)
        added += before
    between = " " if start else ""
    return CompletedPtx(
        text=f"{head}{shown[:start]}{between}{added}{rest}".encode(),
        diagnostics=_describe(missing),
        is_part=_is_body(code) and not _is_whole(code, variables),
        n_added=len(head) if start else len(head) + len(added),
    )


def _is_whole(code: str, undeclared: Sequence[object]) -> bool:
    """Return whether a body has its end and all that it names."""
    return not undeclared and not _list_lost_labels(code) and _RETURN.search(code) is not None


def _list_lost_labels(code: str) -> Sequence[str]:
    return sorted({*_BRANCH.findall(code)} - {*_LABEL.findall(code)})


def _describe(missing: Sequence[str]) -> tuple[Diagnostic, ...]:
    message = f"PTX without {'; without '.join(missing)}"
    return (
        Diagnostic(Severity.WARNING, "incomplete-ptx", message, hint="give the whole PTX for exact facts"),
    )


def _find_arch(code: str, wanted: str) -> str:
    """Return the architecture that is wanted, or the least; with the suffix that the instructions need."""
    base, suffix = next(
        ((arch, end) for pattern, arch, end in _NEEDS if pattern.search(code)), (_LEAST_ARCH, "")
    )
    return (wanted or base) if wanted.endswith(("a", "f")) else (wanted or base) + suffix


# Bodies


def _complete_body(text: str, code: str, name: str) -> tuple[str, str]:
    """Return the head of a kernel for a body, and the body with its end."""
    if (head := _END_OF_HEAD.match(code)) is not None:
        text, code = _blank(head[0]) + text[head.end() :], _blank(head[0]) + code[head.end() :]
    name, parameters = _list_parameters(code, name)
    declared = {parameter.split()[-1] for parameter in parameters}
    registers = "".join(f"{each} " for each in _declare_registers(code, declared))
    end = "\n" + "".join(f"{label}:\n" for label in _list_lost_labels(code)) + "ret;\n"
    n_open = code.count("{") + 1 - code.count("}")
    close = text.rindex("}") if n_open < 1 else len(text)  # the brace that closes the body may be there
    body = text[:close] + end + text[close:] + "}" * n_open
    return f".visible .entry {name}({', '.join(parameters)}) {{ {registers}", f"{body}\n"


def _list_parameters(code: str, name: str) -> tuple[str, list[str]]:
    """Return the kernel's name and the declarations of its parameters, those between known numbers too."""
    extents: dict[str, tuple[str, int, int]] = {}  # name -> type, bytes of the value, bytes up to its end
    for lanes, type_name, bits, parameter, offset in _PARAMETER_LOAD.findall(code):
        n_bytes = int(bits) // 8 * int(lanes or 1)
        _, _, before = extents.get(parameter, ("", 0, 0))
        extents[parameter] = type_name, int(bits) // 8, max(before, int(offset or 0) + n_bytes)
    numbered = [(prefix, int(number)) for prefix, number in _NUMBERED_PARAMETER.findall(code)]
    names = list(extents)
    if numbered and (prefix := numbered[0][0]):
        last = max(number for each, number in numbered if each == prefix)
        names = [f"{prefix}{number}" for number in range(min(last, 255) + 1)]
        name = prefix.removesuffix("_param_")
    return re.sub(r"\W", "_", name), [
        _declare_parameter(each, *extents.get(each, ("u64", 8, 8))) for each in names
    ]


def _declare_parameter(name: str, type_name: str, n_value_bytes: int, n_bytes: int) -> str:
    if n_bytes == n_value_bytes:
        return f".param .{type_name} {name}"
    return f".param .align 16 .b8 {name}[{n_bytes}]"


def _declare_registers(code: str, declared: Set[str]) -> Iterator[str]:
    """Yield declarations of the registers that are not declared."""
    highest: dict[tuple[str, str], int] = {}
    for sigil, prefix, number in _REGISTER.findall(code):
        if sigil or f"{prefix}{number}" not in declared:
            highest[sigil, prefix] = max(highest.get((sigil, prefix), 0), int(number))
    for (sigil, prefix), number in highest.items():
        if not re.search(rf"\.reg\s+\.\w+\s[^;]*(?<![\w%]){sigil}{prefix}[<\d]", code):
            yield f".reg .{_REGISTER_TYPES[prefix]} {sigil}{prefix}<{number + 1}>;"


def _declare_variables(code: str) -> Iterator[tuple[str, str]]:
    """Yield (name, declaration) of variables that are used and not declared: their sizes are not known."""
    spaces: dict[str, str] = {}
    for match in _VARIABLE_USE.finditer(code):
        name = match["moved"] or match["used"]
        space = match["space"] or ("shared" if match["bits"] == "32" else "global")
        if name not in spaces and not _is_declared(name, code):
            spaces[name] = space
    for name, space in spaces.items():
        yield name, f".extern .{space} .align 16 .b8 {name}[];"


def _is_declared(name: str, code: str) -> bool:
    if _NUMBERED_PARAMETER.fullmatch(name) or _REGISTER.fullmatch(name) or name == "WARP_SZ":
        return True
    family = re.escape(name.rstrip("0123456789"))
    names = rf"(?<![\w$])(?:{re.escape(name)}(?![\w$])|{family}<)"
    return (
        re.search(rf"(?<!\w)\.(?:reg|shared|global|const|local|param|func|entry)\b[^;{{]*?{names}", code)
        is not None
    )
