"""A bucket on this machine: a server of the part of S3's protocol that tables need, for development and tests.

It compares and writes in one step, as S3 does and as some emulators do not, so that two coordinators on it fence each
other. It checks no signatures, and has every bucket that it is asked for.
"""

from __future__ import annotations

import email.utils
import functools
import hashlib
import io
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import attrs

from txtopo.errors import ConfigError

KEY, SECRET, REGION = "txtopo", "txtopo-secret", "us-east-1"
"""What clients may give as credentials: any will do, but they want some."""

_PAGE_MAX = 1000
"""How many names a listing has at most, as on S3."""

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


@attrs.frozen
class _Object:
    size: int
    tag: str
    modified_secs: float
    content: bytes | Path
    """Itself, or the file that has it after a line of JSON."""

    def read(self) -> bytes:
        if isinstance(self.content, bytes):
            return self.content
        return self.content.read_bytes().partition(b"\n")[2]


@attrs.frozen
class Page:
    """A page of a listing: objects by name, beginnings of names up to a delimiter, and where the next page begins."""

    objects: Mapping[str, _Object]
    folders: list[str]
    after: str | None


class Objects:
    """The objects of all buckets by ``bucket/key``, each of whose changes is made in one step.

    They are a file each in ``folder``, or in memory only; ``now_secs`` is the clock, in seconds since 1970.
    """

    def __init__(self, folder: Path | None = None, now_secs: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now_secs = now_secs
        self._objects: dict[str, _Object] = {}
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._lock = threading.Lock()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for file in folder.iterdir():
                self._load(file)

    def _load(self, file: Path) -> None:
        if file.suffix == ".draft":
            file.unlink()
            return
        with file.open("rb") as handle:
            head = json.loads(handle.readline())
        self._objects[head["key"]] = _Object(head["size"], head["tag"], head["modified_secs"], file)

    def get(self, key: str) -> _Object | None:
        """Return an object, if there is one."""
        return self._objects.get(key)

    def put(self, key: str, content: bytes, *, is_new: bool = False, instead_of: str | None = None) -> str | None:
        """Put an object unless there is one, or in place of the one with a tag; return its tag, None if it was not."""
        with self._lock:
            stored = self._objects.get(key)
            if (is_new and stored is not None) or (
                instead_of is not None and (stored is None or stored.tag != instead_of)
            ):
                return None
            tag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
            self._objects[key] = self._stored(key, content, tag)
            return tag

    def _stored(self, key: str, content: bytes, tag: str) -> _Object:
        now_secs = self._now_secs()
        if self._folder is None:
            return _Object(len(content), tag, now_secs, content)
        place = self._folder / hashlib.sha256(key.encode()).hexdigest()
        draft = place.with_suffix(".draft")
        head = {"key": key, "size": len(content), "tag": tag, "modified_secs": now_secs}
        draft.write_bytes(json.dumps(head).encode() + b"\n" + content)
        draft.replace(place)
        return _Object(len(content), tag, now_secs, place)

    def delete(self, key: str) -> None:
        """Remove an object if it is there."""
        with self._lock:
            removed = self._objects.pop(key, None)
            if removed is not None and isinstance(removed.content, Path):
                removed.content.unlink()

    def page(self, prefix: str, delimiter: str, after: str, count: int) -> Page:
        """Return the names that begin with a prefix and come after one, so many at most."""
        objects: dict[str, _Object] = {}
        folders: list[str] = []
        with self._lock:
            names = self._listed()
        last = after
        is_in_folder = bool(delimiter) and after.endswith(delimiter) and after.startswith(prefix) and after != prefix
        folder = after if is_in_folder else None
        for key in sorted(key for key in names if key.startswith(prefix) and key > after):
            if folder is not None and key.startswith(folder):
                continue
            if len(objects) + len(folders) == count:
                return Page(objects, folders, last)
            name_after_prefix = key.removeprefix(prefix)
            if delimiter and delimiter in name_after_prefix:
                last = folder = prefix + name_after_prefix.partition(delimiter)[0] + delimiter
                folders.append(folder)
            else:
                objects[key] = names[key]
                last = key
        return Page(objects, folders, None)

    def _listed(self) -> dict[str, _Object]:
        return dict(self._objects)

    def begin_upload(self) -> str:
        """Begin an object that is put in parts; return its id."""
        upload = uuid.uuid4().hex
        self._uploads[upload] = {}
        return upload

    def put_part(self, upload: str, number: int, content: bytes) -> str | None:
        """Put a part; return its tag, None if there is no such upload."""
        if upload not in self._uploads:
            return None
        self._uploads[upload][number] = content
        return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'

    def end_upload(self, upload: str) -> bytes | None:
        """Forget an upload; return what was put of it, None if there is no such upload."""
        parts = self._uploads.pop(upload, None)
        return None if parts is None else b"".join(parts[number] for number in sorted(parts))

    def uploads(self) -> int:
        """Return how many uploads are neither completed nor aborted."""
        return len(self._uploads)


@attrs.frozen
class Answer:
    """An answer: HTTP's status, the content and the headers."""

    status: int
    content: bytes = b""
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def error(cls, status: int, code: str) -> Answer:
        """Return an error as S3 has it."""
        return cls(status, f"<Error><Code>{code}</Code></Error>".encode())


_NOT_FOUND = Answer.error(404, "NoSuchKey")
_REFUSED = Answer.error(412, "PreconditionFailed")


class BucketHandler(BaseHTTPRequestHandler):
    """Serves :class:`Objects`. A subclass may count requests and make faults by :meth:`answer_to`."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes in one piece
    objects: Objects

    def answer_to(self, kind: str, serve: Callable[[], Answer]) -> Answer | None:
        """Carry out a request of a kind (PUT, GET, HEAD, LIST, DELETE); None: cut the connection."""
        del kind
        return serve()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_PUT(self) -> None:
        """Put an object, a part of one or a copy."""
        content = self._body()
        self._answer("PUT", functools.partial(self._put, content))

    def do_GET(self) -> None:
        """Read an object, or list some."""
        is_listing = not self._key.partition("/")[2]
        self._answer("LIST", self._list) if is_listing else self._answer("GET", self._get)

    def do_HEAD(self) -> None:
        """Say what an object is; every bucket exists."""
        self._answer("HEAD", self._get if self._key.partition("/")[2] else lambda: Answer(200))

    def do_DELETE(self) -> None:
        """Remove an object, or end an upload."""
        self._answer("DELETE", self._delete)

    def do_POST(self) -> None:
        """Remove several objects, or begin or end an upload."""
        content = self._body()
        query = self._query
        if "delete" in query:
            self._answer("DELETE", functools.partial(self._delete_several, content))
        else:
            self._answer("PUT", self._begin_upload if "uploads" in query else self._end_upload)

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    @property
    def _query(self) -> dict[str, str]:
        parameters = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in parameters.items()}

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":  # HTTP's chunks, around those of S3
            content = b"".join(_chunks(self.rfile))
            while self.rfile.readline().strip():
                pass  # what follows the last one
        else:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_in_chunks = self.headers.get("x-amz-content-sha256", "").startswith("STREAMING-")
        return b"".join(_chunks(io.BytesIO(content))) if is_in_chunks else content

    def _put(self, content: bytes) -> Answer:
        query, source = self._query, self.headers.get("x-amz-copy-source")
        if not self._key.partition("/")[2]:
            return Answer(200)  # a bucket
        if "uploadId" in query:
            tag = self.objects.put_part(query["uploadId"], int(query["partNumber"]), content)
            return Answer.error(404, "NoSuchUpload") if tag is None else Answer(200, headers={"ETag": tag})
        if source is not None:
            origin = self.objects.get(unquote(source).lstrip("/"))
            if origin is None:
                return _NOT_FOUND
            content = origin.read()
        tag = self._put_if_it_may(content)
        if tag is None:
            return _REFUSED
        if source is not None:
            return Answer(200, f"<CopyObjectResult><ETag>{escape(tag)}</ETag></CopyObjectResult>".encode())
        return Answer(200, headers={"ETag": tag})

    def _put_if_it_may(self, content: bytes) -> str | None:
        is_new, instead_of = self.headers.get("If-None-Match") == "*", self.headers.get("If-Match")
        return self.objects.put(self._key, content, is_new=is_new, instead_of=instead_of)

    def _get(self) -> Answer:
        stored = self.objects.get(self._key)
        if stored is None:
            return _NOT_FOUND
        etag_expected = self.headers.get("If-Match")
        if etag_expected is not None and etag_expected != stored.tag:
            return _REFUSED
        headers = {
            "ETag": stored.tag,
            "Last-Modified": email.utils.formatdate(stored.modified_secs, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        if self.command == "HEAD":
            return Answer(200, headers={**headers, "Content-Length": str(stored.size)})
        part = _RANGE.match(self.headers.get("Range", ""))
        content = stored.read()
        if part is None:
            return Answer(200, content, headers)
        first, last = part[1], part[2]
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(len(content), int(last) + 1) if first and last else len(content)
        if start >= len(content):
            return Answer.error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        return Answer(206, content[start:end], headers)

    def _list(self) -> Answer:
        query = self._query
        if "location" in query:
            return Answer(200, b"<LocationConstraint/>")
        bucket = self._key.partition("/")[0] + "/"
        after = query.get("continuation-token") or query.get("start-after", "")
        count = min(_PAGE_MAX, int(query.get("max-keys", _PAGE_MAX)))
        prefix = bucket + query.get("prefix", "")
        page = self.objects.page(prefix, query.get("delimiter", ""), bucket + after, count)

        def shown(key: str) -> str:
            name = key.removeprefix(bucket)
            return escape(quote(name, safe="/") if query.get("encoding-type") == "url" else name)

        parts = [f"<IsTruncated>{str(page.after is not None).lower()}</IsTruncated>"]
        if page.after is not None:
            token = escape(page.after.removeprefix(bucket))
            parts.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
        parts += [
            f"<Contents><Key>{shown(key)}</Key><LastModified>"
            f"{datetime.fromtimestamp(each.modified_secs, UTC):%Y-%m-%dT%H:%M:%S.%fZ}</LastModified>"
            f"<ETag>{escape(each.tag)}</ETag><Size>{each.size}</Size></Contents>"
            for key, each in page.objects.items()
        ]
        parts += [f"<CommonPrefixes><Prefix>{shown(folder)}</Prefix></CommonPrefixes>" for folder in page.folders]
        name = escape(bucket.rstrip("/"))
        return Answer(200, f"<ListBucketResult><Name>{name}</Name>{''.join(parts)}</ListBucketResult>".encode())

    def _delete(self) -> Answer:
        if "uploadId" in self._query:
            self.objects.end_upload(self._query["uploadId"])
        else:
            self.objects.delete(self._key)
        return Answer(204)

    def _delete_several(self, content: bytes) -> Answer:
        bucket = self._key.partition("/")[0]
        elements = ET.fromstring(content).iter()  # noqa: S314 - of a client on this machine
        keys = [str(element.text) for element in elements if element.tag.rpartition("}")[2] == "Key"]
        for key in keys:
            self.objects.delete(f"{bucket}/{key}")
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return Answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _begin_upload(self) -> Answer:
        bucket, _, key = self._key.partition("/")
        names = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key>"
        upload = f"<UploadId>{self.objects.begin_upload()}</UploadId>"
        return Answer(200, f"<InitiateMultipartUploadResult>{names}{upload}</InitiateMultipartUploadResult>".encode())

    def _end_upload(self) -> Answer:
        content = self.objects.end_upload(self._query.get("uploadId", ""))
        if content is None:
            return Answer.error(404, "NoSuchUpload")
        tag = self._put_if_it_may(content)
        if tag is None:
            return _REFUSED
        result = f"<CompleteMultipartUploadResult><ETag>{escape(tag)}</ETag></CompleteMultipartUploadResult>"
        return Answer(200, result.encode())

    def _answer(self, kind: str, serve: Callable[[], Answer]) -> None:
        answer = self.answer_to(kind, serve)
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204 and "Content-Length" not in answer.headers:  # noqa: PLR2004 - HTTP's "no content"
            self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)


class BucketServer(ThreadingHTTPServer):
    """Serves objects on a port of 127.0.0.1; see :func:`bucket_server`."""

    daemon_threads = True
    request_queue_size = 128

    @property
    def options(self) -> dict[str, str]:
        """What clients are given as options, and in capitals as environment."""
        return {
            "aws_endpoint": f"http://127.0.0.1:{self.server_port}",
            "aws_allow_http": "true",
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": REGION,
        }


def bucket_server(objects: Objects, port: int = 0, handler: type[BucketHandler] = BucketHandler) -> BucketServer:
    """Return a server of objects, which serves once ``serve_forever`` is called.

    Args:
        objects: what it serves.
        port: of 127.0.0.1; 0: a free one.
        handler: how it answers.

    Raises:
        ConfigError: the port can't be used.
    """
    serving = type("Handler", (handler,), {"objects": objects})
    try:
        return BucketServer(("127.0.0.1", port), serving)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"port {port} of 127.0.0.1 can't be used, {why}: give another one") from error


def _chunks(body: BufferedIOBase) -> Iterator[bytes]:
    """Yield the content of a body in chunks, each with a line before it that has its size; the last is empty."""
    while size := int(body.readline().partition(b";")[0], 16):
        yield body.read(size)
        body.readline()
