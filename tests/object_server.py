"""An object store that speaks S3, keeps the time of a test, and counts the requests that it gets.

It is a process of its own: the client's library waits for answers without letting other threads of Python go on.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import attrs

from txtopo.files.objects import forget_clients


@attrs.frozen
class _Object:
    content: bytes
    modified_secs: float

    @property
    def tag(self) -> str:
        return f'"{hashlib.md5(self.content, usedforsecurity=False).hexdigest()}"'


KINDS = ("PUT", "GET", "HEAD", "LIST", "DELETE")


@attrs.frozen(eq=False)
class ObjectStore:
    """The store, as tests see it: its clock, and what was asked."""

    options: dict[str, str]
    """Those of a table at ``s3://bucket/...``."""
    _clock: Any
    _counts: Any
    _faults: Any

    def lose_answers(self, each: int) -> None:
        """Cut the connection instead of answering each so-many-th PUT, which is carried out; 0: answer all."""
        self._faults[0] = each

    def ignore_conditions(self, *, are_ignored: bool) -> None:
        """Carry out a PUT whatever If-Match and If-None-Match say, as a store that does not know them."""
        self._faults[1] = are_ignored

    def set_clock(self, secs: float) -> None:
        """Set the time of what is put from now on, in seconds since 1970; before, it is that of the machine."""
        self._clock.value = secs

    def requests(self) -> Counter[str]:
        """Return the number of requests so far, by kind."""
        return Counter(dict(zip(KINDS, self._counts, strict=True)))

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Yield a counter that has the requests of the block once that has ended."""
        before, found = self.requests(), Counter[str]()
        yield found
        found.update(self.requests() - before)


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Start an empty store of one bucket, and end it."""
    spawning = multiprocessing.get_context("spawn")
    clock, counts, port = spawning.Value("d", 0.0), spawning.Array("i", len(KINDS)), spawning.SimpleQueue()
    faults = spawning.Array("i", 2)
    process = spawning.Process(target=_serve, args=(clock, counts, faults, port), daemon=True)
    process.start()
    options = {
        "aws_endpoint": f"http://127.0.0.1:{port.get()}",
        "aws_allow_http": "true",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
    }
    forget_clients()  # those that have the address of an earlier server from the environment
    try:
        yield ObjectStore(options, clock, counts, faults)
    finally:
        process.kill()
        process.join()


def _serve(clock: Any, counts: Any, faults: Any, port: Any) -> None:
    handler = type("Handler", (_Handler,), {"bucket": _Bucket(clock), "counts": counts, "faults": faults})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        port.put(server.server_port)
        server.serve_forever()


@attrs.define(eq=False)
class _Bucket:
    """The objects, each of whose changes is made in one step."""

    clock: Any
    objects: dict[str, _Object] = attrs.field(factory=dict)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def put(self, key: str, content: bytes, *, is_new: bool, instead_of: str | None) -> str | None:
        """Put an object on a condition; return its tag, or None."""
        with self._lock:
            known = self.objects.get(key)
            if (is_new and known is not None) or (
                instead_of is not None and (known is None or known.tag != instead_of)
            ):
                return None
            self.objects[key] = _Object(content, self.clock.value or time.time())
            return self.objects[key].tag

    def listing(self, prefix: str, delimiter: str, after: str) -> str:
        """Return a page that has all objects."""
        with self._lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
            below = {
                prefix + key.removeprefix(prefix).partition("/")[0] + "/"
                for key in keys
                if delimiter and "/" in key.removeprefix(prefix)
            }
            shown = [key for key in keys if not delimiter or delimiter not in key.removeprefix(prefix)]
            contents = "".join(
                f"<Contents><Key>{escape(key)}</Key><LastModified>"
                f"{datetime.fromtimestamp(self.objects[key].modified_secs, UTC):%Y-%m-%dT%H:%M:%S.%fZ}</LastModified>"
                f"<ETag>{escape(self.objects[key].tag)}</ETag><Size>{len(self.objects[key].content)}</Size></Contents>"
                for key in shown
            )
            folders = "".join(
                f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(below)
            )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{folders}</ListBucketResult>"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes in one piece
    bucket: _Bucket
    counts: Any
    faults: Any

    def log_message(self, *_: object) -> None:
        pass

    def _count(self, kind: str) -> None:
        with self.counts.get_lock():
            self.counts[KINDS.index(kind)] += 1

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).partition("/")[2].partition("/")[2]

    @property
    def _query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    def do_PUT(self) -> None:
        self._count("PUT")
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        source = self.headers.get("x-amz-copy-source")
        if source is not None:
            content = self.bucket.objects[unquote(source).lstrip("/").partition("/")[2]].content
        is_new, known = self.headers.get("If-None-Match") == "*", self.headers.get("If-Match")
        each, are_ignored = self.faults
        if are_ignored:
            is_new, known = False, None
        tag = self.bucket.put(self._key, content, is_new=is_new, instead_of=known)
        if each and self.counts[KINDS.index("PUT")] % each == 0:
            self.close_connection = True
        elif tag is None:
            self._answer(412, "<Error><Code>PreconditionFailed</Code></Error>")
        elif source is not None:
            self._answer(200, f"<CopyObjectResult><ETag>{escape(tag)}</ETag></CopyObjectResult>")
        else:
            self._answer(200, "", ETag=tag)

    def do_GET(self) -> None:
        query = self._query
        if "list-type" in query:
            self._count("LIST")
            page = self.bucket.listing(
                query.get("prefix", ""), query.get("delimiter", ""), query.get("start-after", "")
            )
            self._answer(200, page)
            return
        self._count("GET")
        self._send_object()

    def do_HEAD(self) -> None:
        self._count("HEAD")
        self._send_object()

    def do_DELETE(self) -> None:
        self._count("DELETE")
        self.bucket.objects.pop(self._key, None)
        self._answer(204, "")

    def do_POST(self) -> None:
        assert "delete" in self._query, f"not known: {self.path}"
        self._count("DELETE")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        keys = [str(each.text) for each in ElementTree.fromstring(body).iter() if each.tag.rpartition("}")[2] == "Key"]
        for key in keys:
            self.bucket.objects.pop(key, None)
        gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{gone}</DeleteResult>")

    def _send_object(self) -> None:
        found = self.bucket.objects.get(self._key)
        if found is None:
            self._answer(404, "<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {"ETag": found.tag, "Last-Modified": email.utils.formatdate(found.modified_secs, usegmt=True)}
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, found.content, **headers)
            return
        size = len(found.content)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self._answer(206, found.content[start:end], **headers)

    def _answer(self, status: int, content: str | bytes, **headers: str) -> None:
        body = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
