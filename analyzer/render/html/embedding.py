r"""Data inside a page: JSON that no parser of HTML can take for markup, and compressed text.

A kernel's name or a source line may hold `</script>`. Inside a script element only `<` can end or open
anything, so `<`, `>` and `&` are written as JSON's own escapes; so are the two line separators that were
no part of JavaScript's strings once. Values stay the same:

>>> str(embed_json({"name": "</script>"}))
'{"name":"\\u003c/script\\u003e"}'
"""

import base64
import zlib

import msgspec
from markupsafe import Markup

_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
_LEVEL = 9


def embed_json(value: object) -> Markup:
    """Return a value as JSON text that may stand in a script element of type application/json."""
    return Markup(msgspec.json.encode(value).decode().translate(_ESCAPES))


def deflate(text: str) -> str:
    """Return a text as raw deflate in base 64, as `DecompressionStream("deflate-raw")` undoes it."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(text.encode()) + packer.flush()).decode()
