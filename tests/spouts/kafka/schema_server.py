"""A schema registry in this process: subjects with versions, ids, references, compatibility, and ways to fail."""

import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any

import attrs

NOT_FOUND = {"subject": 40401, "version": 40402, "schema": 40403}


@attrs.define(eq=False, slots=False)
class SchemaServer:
    """What Confluent's registry answers, by its documentation; ``fails`` answers in its place while it is set."""

    fails: Callable[[Any], None] | None = None
    refuses: Callable[[str, dict[str, Any]], bool] = lambda _subject, _schema: False
    """Whether a subject's compatibility forbids a new version."""
    asked: list[str] = attrs.Factory(list)
    """The paths of all requests."""
    schemas: list[dict[str, Any]] = attrs.Factory(list)
    """By id, from 1 on."""
    subjects: dict[str, list[int]] = attrs.Factory(dict)
    """The ids of a subject's versions."""

    def __attrs_post_init__(self) -> None:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Print nothing."""

            def do_GET(self) -> None:
                self.answered(None)

            def do_POST(self) -> None:
                self.answered(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answered(self, given: Any) -> None:
                self.given = given
                outer.asked.append(self.path)
                if outer.fails is not None:
                    self.close_connection = True
                    outer.fails(self)
                else:
                    self.send(*outer.answer(self.path, given))

            def send(
                self, status: int, content: Any, kind: str = "application/json", length: int | None = None
            ) -> None:
                body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                if self.close_connection:  # so that the next request does not take a connection that is about to end
                    self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._start()

    def _start(self) -> None:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        """Answer no more: connections are refused, and those that are open end."""
        self.fails = lambda _: None
        self.server.shutdown()
        self.server.server_close()

    def register(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a version of a subject, and return its id."""
        given = {"schema": schema, "schemaType": kind, "references": [*references]}
        return int(self.answer(f"/subjects/{subject}/versions", given)[1]["id"])

    def answer(self, path: str, given: Any) -> tuple[int, Any]:
        """Return the status and content for a request; ``given`` is what was posted."""
        parts = [urllib.parse.unquote(part) for part in re.split("/", path.partition("?")[0])[1:]]
        match parts:
            case ["schemas", "ids", number]:
                if not number.isdigit() or int(number) > 2**31 - 1:  # as Java's server: no path is of that form
                    return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
                if not 0 < int(number) <= len(self.schemas):
                    return _none("schema")
                return 200, self.schemas[int(number) - 1]
            case ["subjects", subject, "versions", version]:
                ids = self.subjects.get(subject)
                if ids is None:
                    return _none("subject")
                at = len(ids) if version == "latest" else int(version)
                if not 0 < at <= len(ids):
                    return _none("version")
                return 200, self._version(subject, at)
            case ["subjects", subject, "versions"]:
                return self._registered(subject, given)
            case ["subjects", subject]:
                ids = self.subjects.get(subject, [])
                wanted = _schema_of(given)
                at = next((at for at, each in enumerate(ids, 1) if self.schemas[each - 1] == wanted), None)
                return _none("subject" if not ids else "schema") if at is None else (200, self._version(subject, at))
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _registered(self, subject: str, given: dict[str, Any]) -> tuple[int, Any]:
        schema = _schema_of(given)
        for each in schema.get("references", ()):
            if each["version"] > len(self.subjects.get(each["subject"], [])):
                return 422, {"error_code": 42201, "message": f"Invalid schema: no {each['subject']}"}
        ids = self.subjects.get(subject, [])
        if schema not in [self.schemas[each - 1] for each in ids] and self.refuses(subject, schema):
            return 409, {"error_code": 409, "message": f"Schema being registered is incompatible with {subject}"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        if number not in ids:
            self.subjects[subject] = [*ids, number]
        return 200, {"id": number}

    def _version(self, subject: str, at: int) -> dict[str, Any]:
        number = self.subjects[subject][at - 1]
        return {"subject": subject, "version": at, "id": number, **self.schemas[number - 1]}


def _schema_of(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("schema", "schemaType", "references") if given.get(name)}


def _none(what: str) -> tuple[int, Any]:
    return 404, {"error_code": NOT_FOUND[what], "message": f"{what.capitalize()} not found"}
