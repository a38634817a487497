"""Undoes what pasting does to code: the one step that each text goes through before its format is told.

    > 12 | @%p1 bra $L__BB0_2;      quote mark, line number, non-breaking spaces
    + @P0 BRA (.L_x_0) ;            mark of a diff, a backquote that Markdown took
    if a &lt; b                     an entity of HTML, whose tags are taken away

Each step takes one kind away and says so; they are repeated, for a quote may hold a fence and that a listing
with numbers. A text in which no step finds its mark is left as it is. Lines keep their numbers, but for those
of a diff and for lost line ends that are put back.
"""

import html
import re
import textwrap
from collections.abc import Callable, Iterator
from itertools import pairwise

from msgspec import Struct

from analyzer.frontend.format_refusals import is_readable
from analyzer.frontend.input_format import HEAD_BYTES, InputFormat, detect_format
from analyzer.text.source import Diagnostic, Severity

PASTED_BYTES = 1 << 20  # of an input that are looked at for odd characters; the first HEAD_BYTES for all else
_MAX_ROUNDS = 8  # of marks inside marks
_MIN_ESCAPED_LINES = 3

_SPACES = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_INVISIBLE = "\u00ad\u200b-\u200f\u2060\ufeff"
_LINE_ENDS = "\u0085\u2028\u2029"
_OPENING_QUOTE = "\u2018"  # also what becomes of a backquote
_SUBSTITUTES = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    "\u2026": "...",
    "\u02cb": "`",
    **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full width
}
_PASSED_OVER = '"[^"\n]*"|//[^\n]*|'  # strings and comments: what stands there changes no code
_ODD_STRING = f"\u201c[^\u201d\n]*\u201d|{_OPENING_QUOTE}\\(|\x1b\\[[0-9;]*[mK]"
_ODD = f"({_ODD_STRING}|[{_SPACES}{_INVISIBLE}{_LINE_ENDS}{''.join(_SUBSTITUTES)}])"
_COLOR_MARK = "\x1b["
_ENTITY_NAMES = r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,7}|#x[0-9a-fA-F]{1,6});"
_ENTITY_MARK = re.compile(_ENTITY_NAMES)
_TAG_MARK = re.compile(r"<(?:pre|code)\b")
_TAG_LINE = re.compile(r"^[ \t]*(?:</?(?:pre|code)(?:\s[^<>\n]*)?>)+[ \t]*$", re.M)
_TAG = re.compile(r"</?(?:pre|code|span|div|p|br|b|em|strong|a)(?:\s[^<>\n]*)?/?>")
_ENTITY = rf"(&quot;[^\n]*?&quot;|{_ENTITY_NAMES})"

_INDENTED = re.compile(r"\s*?^[ \t]+(?:[+>@]|diff |module\b|#\w+ = )", re.M)
_QUOTED = re.compile(r"^ {0,3}> ?", re.M)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.M)
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@", re.M)
_DIFF_HEADER = re.compile(
    r"diff --git |index [0-9a-f]{4,}\.\.|--- (?:a/|/dev/null)|\+\+\+ (?:b/|/dev/null)|@@ -\d|\\ No newline"
    r"|(?:new|deleted) file mode |(?:old|new) mode |similarity index |rename (?:from|to) "
)
_NUMBERED = re.compile(  # also by grep, after the name of a file
    r"[ \t]*(?:[^\s:(]+:)?\[?(0|[1-9]\d{0,6})(?:\t|[ ]*[:|│] ?|[).\]-] ?|(?P<blanks>[ ]+)|\s*$)"
)
_GREP_BREAK = "--"

_ADDRESS = r"(?:\[B[^\]\s]{6,32}\]\s*)?/\*[0-9a-f]{4,8}\*/(?=\s)"
_JOINED_ADDRESSES = re.compile(r";[^\n;]*/\*[0-9a-f]{4,8}\*/\s")
_SASS_LINE_START = re.compile(
    rf"(?<=\S)[^\S\n]+(?={_ADDRESS}|Function\s*:|code for sm_|\.{{10,}}|[.$][\w$.]+:(?=\s)|//(?:##|--)"
    r"|\.(?:section\w*|headerflags|target|align|global|weak|type|size|other|elftype)\b)"
    r"|(?<=\*/)[^\S\n]+(?=/\* 0x[0-9a-f]{16} \*/)"
)
_MNEMONIC = r"(?:@!?U?P\w+\s+)?[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*(?=[\s;])"
_JOINED_MNEMONICS = re.compile(rf"^[^\S\n]*{_MNEMONIC}[^\n/]*;[^\S\n]+(?={_MNEMONIC})", re.M)
_MNEMONIC_START = re.compile(rf"(?<=;)[^\S\n]+(?={_MNEMONIC})")
_LITERAL = re.compile(r"""(?:[^\n=]{0,80}=\s*)?[bru]?(['"])(.*)\1[,;)]?""", re.S)  # of a program
_PTX_DIRECTIVE = (
    r"\.(?:version|target|address_size|extern|visible|weak|entry|func|reg|param|maxn\w+|reqn\w+"
    r"|minn\w+|file|loc|section|pragma|b8|b16|b32|b64)\b"
)
_PTX_LINE_START = re.compile(
    rf"(?<=;)[^\S\n]+|(?<=\S)[^\S\n]+(?=//|{_PTX_DIRECTIVE}|[{{}})](?:\s|$)|\$\w+:"
    r"|(?:@!?%?[\w$]+\s+)?(?:[a-z][a-z0-9]*(?:\.[a-z0-9_]+(?:::[a-z0-9_]+)*)+[\s;]|(?:bra|call)\s"
    r"|(?:ret|exit|trap)\s*;))"
)
_PTX_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+([\w$]+)")
_PTX_MARK = re.compile(r"\.version\s+\d|\.(?:entry|func)\s")
_SPACED_WORD = re.compile(r"(\*/[ \t]*\n)(?:[ \t\r]*\n)+(?=[ \t]*/\* 0x[0-9a-f]{16} \*/[ \t\r]*$)", re.M)

_BARE_LABEL = re.compile(r"\((?<=[\s,]\()[.$\w]+\)(?=\s*(?:;|/|$))", re.M)
_BRANCH = re.compile(r"\b(?:BRA|BRX|BSSY|CALL|JMP|WARPSYNC)\b[^;`(]*$")
_EATEN_ADDRESS = re.compile(r"^([ \t]*)/([0-9a-f]{4,8})/(?=\s)", re.M)
_EATEN_WORD = re.compile(r"(?<![*\w])/ (0x[0-9a-f]{16}) /(?!\w)")


class UnpastedText(Struct, frozen=True):
    """A text as it was before it was pasted, and what was taken away."""

    text: bytes
    diagnostics: tuple[Diagnostic, ...]


class _Text(Struct):
    """A text that the steps work on, and what they have said of it."""

    text: str
    removed: list[str]
    gaps: str = ""  # where lines are missing, as their numbers show


def is_pasted(head: bytes) -> bool:
    """Return whether an input that begins with `head` (up to `PASTED_BYTES`) shows marks of pasting."""
    if b"\0" in head:
        return False
    start = head if len(head) <= HEAD_BYTES else head[: head.rfind(b"\n", 0, HEAD_BYTES) + 1 or HEAD_BYTES]
    if undo_pasting(start) is not None:
        return True
    found = _Text(head[len(start) :].decode("utf-8", "ignore"), [])
    return any(step(found) for step in (_restore_characters, _restore_entities, _restore_marks))


def undo_pasting(data: bytes) -> UnpastedText | None:
    """Return a text without the marks of pasting; None if it has none, or is no UTF-8 text."""
    try:
        found = _Text(data.decode("utf-8-sig"), [])
    except UnicodeDecodeError:
        return None
    for _ in range(_MAX_ROUNDS):
        if not sum(step(found) for step in _STEPS):
            break
    if not found.removed:
        return None
    message = f"pasted text: {', '.join(dict.fromkeys(found.removed))}"
    notes = [Diagnostic(Severity.NOTE, "pasted", message)]
    if found.gaps:
        hint = "paste all of it, or count what is there as a part"
        notes.append(Diagnostic(Severity.WARNING, "missing-lines", found.gaps, hint=hint))
    return UnpastedText(found.text.encode(), tuple(notes))


# Characters


def _substitute(found: _Text, pattern: str, change: Callable[[str], str], what: str) -> bool:
    """Replace what group 1 of a pattern matches; say how much, and return whether there was any.

    Comments are passed over, but where line ends are lost: there one takes all that follows it.
    """
    has_lines = "\n" in found.text.strip()
    n_changed = 0

    def replace_match(match: re.Match[str]) -> str:
        nonlocal n_changed
        if match[1] is None:
            return match[0]
        n_changed += 1
        return change(match[1])

    found.text = re.sub(_PASSED_OVER + pattern if has_lines else pattern, replace_match, found.text)
    if n_changed:
        found.removed.append(f"{n_changed} {what} replaced")
    return n_changed > 0


def _restore_characters(found: _Text) -> bool:
    """Put plain blanks, quotes and hyphens for those of a word processor, and take colors away."""
    if found.text.isascii() and _COLOR_MARK not in found.text:
        return False
    return _substitute(found, _ODD, _find_plain, "odd characters")


def _find_plain(odd: str) -> str:
    if len(odd) > 1:  # a string in typographic quotes, or a color
        return "" if odd[0] == "\x1b" else "`(" if odd[0] == _OPENING_QUOTE else f'"{odd[1:-1]}"'
    if odd in _SUBSTITUTES:
        return _SUBSTITUTES[odd]
    return "\n" if odd in _LINE_ENDS else " " if odd.isspace() else ""


def _restore_entities(found: _Text) -> bool:
    """Put the characters for entities of HTML."""
    if "&" not in found.text or not _ENTITY_MARK.search(found.text):
        return False
    return _substitute(found, _ENTITY, html.unescape, "entities of HTML")


def _take_tags(found: _Text) -> bool:
    """Put fences for HTML's tags of code that stand alone in their lines, and take other tags away."""
    if not _TAG_MARK.search(found.text):
        return False
    text, n_lines = _TAG_LINE.subn("```", found.text)
    found.text, n_tags = _TAG.subn("", text)
    if n_lines + n_tags:
        found.removed.append(f"{n_lines + n_tags} tags of HTML")
    return n_lines + n_tags > 0


def _restore_marks(found: _Text) -> bool:
    """Put back the backquotes of labels and the asterisks of comments, which Markdown takes for its own."""
    text, n_total = found.text, 0
    if "/00" in text and "/*" not in text:
        text, n_total = _EATEN_ADDRESS.subn(r"\1/*\2*/", text)
        text, n_words = _EATEN_WORD.subn(r"/* \1 */", text)
        n_total += n_words

    def quote(match: re.Match[str]) -> str:
        nonlocal n_total
        is_label = _BRANCH.search(text, text.rfind("\n", 0, match.start()) + 1, match.start()) is not None
        n_total += is_label
        return f"`{match[0]}" if is_label else match[0]

    found.text = _BARE_LABEL.sub(quote, text)
    if n_total:
        found.removed.append(f"{n_total} backquotes and asterisks put back that Markdown took")
    return n_total > 0


# Marks at the beginning of lines


def _list_lines(text: str) -> tuple[list[str], list[str]]:
    """Return all lines, and those that are not blank."""
    lines = text.split("\n")
    return lines, [line for line in lines if line.strip()]


def _take_indent(found: _Text) -> bool:
    """Take the indent of a block of code away where a mark, or a line that begins in column 1, follows it."""
    if not _INDENTED.match(found.text):
        return False
    dedented = textwrap.dedent(found.text)
    if dedented == found.text:
        return False
    found.text = dedented
    found.removed.append("an indent")
    return True


def _take_quotes(found: _Text) -> bool:
    """Take quote marks away, one level of them, where most lines have one."""
    if not _QUOTED.search(found.text):
        return False
    _, filled = _list_lines(found.text)
    n_quoted = sum(_QUOTED.match(line) is not None for line in filled)
    if 2 * n_quoted < len(filled):
        return False
    found.text = _QUOTED.sub("", found.text)
    found.removed.append(f"quote marks of {n_quoted} lines")
    return True


def _take_fences(found: _Text) -> bool:
    """Keep what stands in fences: of several blocks those in the format of the first that is read."""
    fences = [found.text.count("\n", 0, match.start()) for match in _FENCE.finditer(found.text)]
    if not fences:
        return False
    lines = found.text.split("\n")
    blocks = list(_list_blocks(lines, fences))
    formats = [_find_format("\n".join(lines[start:stop]).encode()) for start, stop in blocks]
    wanted = next((one for one in formats if is_readable(one)), None)
    kept = [block for block, one in zip(blocks, formats, strict=True) if wanted in (None, one)]
    left = {at for start, stop in kept for at in range(start, stop)}
    n_outside = sum(bool(line.strip()) for at, line in enumerate(lines) if at not in left) - len(fences)
    found.text = "\n".join(line if at in left else "" for at, line in enumerate(lines))
    others = {one.value for one in formats} - {InputFormat.EMPTY, wanted}
    named = f" (blocks of {', '.join(sorted(others))} among them)" if wanted and others else ""
    outside = f", {n_outside} lines outside left out{named}" if n_outside else ""
    found.removed.append(f"{len(fences)} fences{outside}")
    return True


def _list_blocks(lines: list[str], fences: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (first line, line after the last) of each fenced block; all around it of a lone fence."""
    if len(fences) == 1:
        yield 0, fences[0]
        yield fences[0] + 1, len(lines)
        return
    for start, stop in zip(fences[::2], [*fences[1::2], len(lines)], strict=False):
        yield start + 1, stop


def _find_format(data: bytes) -> InputFormat:
    cleaned = undo_pasting(data)
    return detect_format(data if cleaned is None else cleaned.text)


def _take_diff(found: _Text) -> bool:
    """Keep the new side of a diff; of added lines alone all, of a deleted file the old side."""
    lines, filled = _list_lines(found.text)
    hunks = [int(match[1]) for match in _HUNK.finditer(found.text)]
    signs = {line[0] for line in filled}
    if not hunks and not {"+"} <= signs <= set("+- "):
        return False
    first = next((at for at, line in enumerate(lines) if hunks and _DIFF_HEADER.match(line)), 0)
    codes = [line for line in lines[first:] if not _DIFF_HEADER.match(line)]
    n_removed = sum(line.startswith("-") for line in codes)
    dropped = "-" if n_removed < len(codes) - codes.count("") else "\\"
    kept = [line[1:] if line[:1] in ("+", "-", " ") else line for line in codes if line[:1] != dropped]
    found.text = "\n".join(kept)
    sides = f", {n_removed} lines of its old side left out" if n_removed and dropped == "-" else ""
    n_before = sum(bool(line.strip()) for line in lines[:first])
    before = f", {n_before} lines before it left out" if n_before else ""
    found.removed.append(f"marks of a diff{sides}{before}")
    if len(hunks) > 1 or any(number > 1 for number in hunks):
        found.gaps = (
            "a diff has only lines near its changes: code may be missing before and between its hunks"
        )
    return True


def _take_numbers(found: _Text) -> bool:
    """Take line numbers away, where all lines have one and they ascend."""
    end = found.text.find("\n", len(found.text) - len(found.text.lstrip()))
    if end < 0 or not _NUMBERED.match(found.text[:end].lstrip("\n")):
        return False
    lines, filled = _list_lines(found.text)
    filled = [line for line in filled if line != _GREP_BREAK]
    matches = [match for line in filled if (match := _NUMBERED.match(line))]
    numbers = [int(match[1]) for match in matches]
    is_ascending = all(before < after for before, after in pairwise(numbers))
    if len(matches) < max(2, len(filled)) or not is_ascending:
        return False
    extra = [
        len(match["blanks"]) - 1 for match in matches if match["blanks"] and match.end() < len(match.string)
    ]
    indent = min(extra, default=0)
    found.text = "\n".join(_cut_number(line, indent) for line in lines if line != _GREP_BREAK)
    found.removed.append(f"line numbers of {len(matches)} lines")
    n_missing = numbers[-1] - numbers[0] + 1 - len(numbers)
    if n_missing > 0:
        found.gaps = f"line numbers leave gaps: some {n_missing} lines are missing between them"
    return True


def _cut_number(line: str, indent: int) -> str:
    """Return a line without its number and one blank, or as many more as all lines have."""
    match = _NUMBERED.match(line)
    if match is None:
        return line
    return line[match.end() - len((match["blanks"] or "")[1 + indent :]) :]


# Line ends


def _restore_lines(found: _Text) -> bool:
    """Put back line ends that were lost, or that became `\\n` in a quoted string."""
    before = found.text
    for restore in (_unescape_lines, _split_sass, _split_mnemonics, _split_ptx):
        found.text = restore(found.text)
    found.text = _SPACED_WORD.sub(r"\1", found.text)
    n_added = found.text.count("\n") - before.count("\n")
    if found.text == before:
        return False
    found.removed.append(
        f"{n_added} line ends put back" if n_added > 0 else "blank lines inside instructions"
    )
    return True


def _unescape_lines(text: str) -> str:
    if "\r" in text and "\n" not in text.strip():
        text = text.replace("\r", "\n")
    if text.count("\n") > 1 or text.count("\\n") < _MIN_ESCAPED_LINES:
        return text
    text = text.strip()
    literal = _LITERAL.fullmatch(text)
    plain = text if literal is None else literal[2]
    return plain.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')


def _split_sass(text: str) -> str:
    """Split lines that hold several addresses."""
    if not _JOINED_ADDRESSES.search(text):
        return text
    lines = text.split("\n")
    return "\n".join(
        _SASS_LINE_START.sub("\n", line) if _JOINED_ADDRESSES.search(line) else line for line in lines
    )


def _split_mnemonics(text: str) -> str:
    """Split lines of several instructions without addresses."""
    return _JOINED_MNEMONICS.sub(lambda match: _MNEMONIC_START.sub("\n", match[0]).rstrip() + "\n", text)


def _split_ptx(text: str) -> str:
    """Split PTX that stands on one line: a comment would take all that follows it."""
    stripped = text.strip()
    if "\n" in stripped or ";" not in stripped:
        return text
    if not _PTX_MARK.search(text) and detect_format(text.encode()) is not InputFormat.PTX:
        return text
    text = _PTX_LINE_START.sub("\n", text)
    names = "|".join(map(re.escape, sorted(set(_PTX_BRANCH.findall(text)))))
    return re.sub(rf"(?<=\S)[^\S\n]+(?=(?:{names}):\s)", "\n", text) if names else text


_STEPS = (
    _take_tags,
    _restore_characters,
    _restore_entities,
    _take_indent,
    _take_quotes,
    _take_fences,
    _take_diff,
    _take_numbers,
    _restore_lines,
    _restore_marks,
)
