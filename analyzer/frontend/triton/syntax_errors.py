"""The error that the parts of the Triton frontend raise; the parser adds path, text and carets."""

_MAX_BRACKETS = 32


class TritonSyntaxError(Exception):
    """Text that is not Triton IR.

    line: 0 if whoever raises it does not know it.
    piece: what the caret points at, `column` characters behind its start; "" for the whole line.
    slots_before: the place in an operation as the number of slots before it, and characters behind the last
    """

    def __init__(
        self,
        message: str,
        line: int = 0,
        *,
        piece: str = "",
        column: int = 0,
        slots_before: tuple[int, int] | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.piece = piece
        self.column = column
        self.slots_before = slots_before
        self.hint = hint


def check_nesting(text: str) -> None:
    """Raise TritonSyntaxError if brackets nest so deeply that no compiler printed them."""
    depth = 0
    for letter in text:
        depth += (letter in "([{<") - (letter in ")]}>")
        if depth > _MAX_BRACKETS:
            raise TritonSyntaxError(f"brackets nest more than {_MAX_BRACKETS} deep", piece=text)
