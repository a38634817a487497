"""The frame of all pages: style, script, and a policy that lets the browser run these and load nothing.

The Content-Security-Policy names the hashes of the one style sheet and the one script. Whatever an
input's text might smuggle in, no other script runs, no style applies and no request leaves the page.
Hence no template has a `style` attribute: sizes in charts are attributes of SVG.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analyzer.render.html import formats
from analyzer.render.html.embedding import embed_json
from analyzer.render.number_format import format_provenance
from analyzer.render.speed_of_light import format_bound
from analyzer.version import __version__

_FOLDER = Path(__file__).resolve().parent


def render_page(template: str, title: str, values: Mapping[str, object]) -> str:
    """Return a page of a template that extends `page.html`."""
    style, script = _read_asset("page.css"), _read_asset("page.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return render_part(
        template,
        {
            **values,
            "title": title,
            "style": Markup(style),
            "script": Markup(script),
            "policy": policy,
            "version": __version__,
        },
    )


def render_part(template: str, values: Mapping[str, object]) -> str:
    """Return the text of a template; values are escaped as HTML."""
    return _make_environment().get_template(template).render(values)


@cache
def _make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "json": embed_json,
        "time": formats.format_time,
        "number": formats.format_number,
        "percent": formats.format_share,
        "change": formats.format_change,
        "bytes": formats.format_bytes,
        "count": formats.format_count,
        "ratio": formats.format_ratio,
        "mark": format_provenance,
        "bound": format_bound,
        "rate": formats.format_rate,
        "address": formats.format_address,
        "coordinate": formats.format_coordinate,
        "heat": formats.find_heat_level,
        "label": formats.format_label,
    }
    return environment


@cache
def _read_asset(name: str) -> str:
    return (_FOLDER / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
