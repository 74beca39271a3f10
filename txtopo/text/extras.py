"""The version of txtopo, and its extras: packages that only a part of it needs, and how to install them."""

from __future__ import annotations

import importlib.metadata

_EXTRAS = {
    "confluent_kafka": "kafka",
    "datasketches": "sketches",
    "delta": "spark-delta",
    "httpx": "cluster",
    "obstore": "object-store",
    "openlineage": "lineage",
    "opentelemetry": "tracing",
    "polars": "expressions",
    "prometheus_client": "metrics",
    "psycopg": "sql",
    "sqlalchemy": "sql",
    "starlette": "ui",
    "uvicorn": "ui",
}
"""The extra that installs a package, by the name to import it by."""


def how_to_install(extra: str) -> str:
    """Return how to install an extra, as the end of an error message."""
    return f"in txtopo's checkout, .venv/bin/pip install '.[{extra}]'"


def extra_of(error: ImportError) -> str | None:
    """Return the extra with the package that could not be imported; None if no extra has it."""
    return None if error.name is None else _EXTRAS.get(error.name.partition(".")[0])


def version() -> str:
    """Return the version of txtopo."""
    try:
        return importlib.metadata.version("txtopo")
    except importlib.metadata.PackageNotFoundError:
        return "from sources"
