r"""Text of inputs made safe to print: what steers a terminal or reorders a line is shown as its code.

Names of kernels, arguments, GPUs and files come from whoever made the input. A control character in one
(`ESC ]0;title BEL`, a C1 code), a change of direction (U+202E) or a line separator would act on the terminal,
or make a line look like one of ours.

>>> escape_controls("soft\x1b[2Jmax")
'soft\\x1b[2Jmax'
"""

import re

import msgspec

# Controls (C0, C1), invisible and bidirectional formats, line and paragraph separators, lone surrogates
# (bytes of file names that are no UTF-8), variation selectors and tags.
_SUSPECT = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\ufe00-\ufe0f\U000e0000-\U000e0fff]"
)


def escape_controls(text: str, *, keep: str = "") -> str:
    r"""Return a text with control characters as `\x1b` or `\u202e`; those in `keep` stay."""
    if text.isprintable():
        return text
    return _SUSPECT.sub(lambda match: match[0] if match[0] in keep else _format_code(match[0]), text)


def escape_json(text: str) -> str:
    r"""Return JSON text with control characters inside its strings as `\u202e`; the values are the same."""
    return _SUSPECT.sub(lambda match: match[0] if match[0] == "\n" else _format_json_code(match[0]), text)


def format_json(value: object, *, indent: int = 2) -> str:
    """Return a value as JSON text with one item a line, safe to print."""
    return escape_json(msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()) + "\n"


def encode_for_terminal(error: UnicodeError) -> tuple[str, int]:
    r"""Replace characters that an output's encoding lacks: bars and lines by ASCII, others by `\u03b1`.

    An error handler of `codecs.register_error`. Raises the error where it is none of encoding.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    failed = error.object[error.start : error.end]
    return "".join(_ASCII_DRAWING.get(c) or _format_json_code(c) for c in failed), error.end


_ASCII_DRAWING = {
    **dict.fromkeys("─━═╌", "-"),
    **dict.fromkeys("│┃║", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯╇╡╞╪", "+"),
    **dict.fromkeys("█▉▊▋▌▍▎▏▇▆▅▄▃▂▁", "#"),
    **dict.fromkeys("•·", "*"),
    "…": "...",
    "→": "->",
    "←": "<-",
    "\xa0": " ",
}


def _format_code(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _format_json_code(character: str) -> str:
    """Return a character as JSON escapes it: UTF-16, in two codes beyond the first 65,536."""
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))
