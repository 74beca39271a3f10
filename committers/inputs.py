"""What the streams that a committer subscribes to must have, for ``build()`` to check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from txtopo.api.abilities import Inputs
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.topology.builders.checks import nearest


def stream_name(source: str, stream: str) -> str:
    """Return a stream as errors name it: by its component alone if it is the default one."""
    return repr(source) if stream == DEFAULT_STREAM else f"stream {stream!r} of {source!r}"


def field_mistakes(names: Iterable[str], inputs: Inputs) -> Iterator[str]:
    """Yield the fields that a committer reads, and that a stream does not have."""
    for (source, stream), fields in inputs.items():
        source_stream = stream_name(source, stream)
        for name in dict.fromkeys(names):
            if name not in fields:
                yield f"reads field {name!r}, which {source_stream} does not have{nearest(name, fields)}"
