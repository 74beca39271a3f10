"""The API's answers about an invented run, in the form of its contract; names and texts are the caller's."""

from typing import Any

START = 1_790_000_000.0
NOW = START + 400.0
BASE_MS = START * 1000


class Answers:
    """What the API says of one topology: 600 transactions, of which some failed once and the last ones are open."""

    def __init__(self, kind: str = "transactional", name: str = "words", text: str = "ValueError: bad record") -> None:
        self.kind, self.text = kind, text
        self.topology = name
        self.component = self.stream = self.state = self.key = self.value = self.file = name
        self.component = f"{name} split" if name != "words" else "split"
        self.state = f"{name} counts" if name != "words" else "word-counts"
        self.status = "running"
        self.can: dict[str, bool] = {}

    def header(self) -> dict[str, Any]:
        is_plain = self.kind == "plain"
        return {
            "slug": "words", "id": self.topology, "kind": self.kind, "past": None, "now": NOW, "status": self.status,
            "statusText": f"{self.status}, as of 0.4 s ago", "startedAt": START, "updatedAt": NOW - 0.4, "endedAt": None,
            "process": {"pid": 4711, "host": "box", "epoch": 3, "isAlive": True},
            "committed": None if is_plain else 12_345, "begun": None if is_plain else 12_371, "deadLetters": 1,
            "transactions": 12_001, "attempts": 12_060, "failures": 4, "tuples": 6_150_000,
            "pending": None if is_plain else {"ready": 3, "processing": 12, "processed": 8, "committing": 3},
            "rate": {"transactions": 498.2, "tuples": 249_100.0}, "latency": {"p50Secs": 0.31, "p99Secs": 0.9},
            "lag": 120, "lagFiles": None, "lagBytes": None, "remaining": None,
            "lowest": None if is_plain else {
                "txid": 595, "status": "processing", "attempt": 2, "sinceSecs": 3.2,
                "waitsFor": f"component '{self.component}', which is running for it now"},
            "lastFailure": {"txid": None if is_plain else 590, "attempt": 1, "component": self.component,
                            "error": self.text, "at": NOW - 21},
            "isFailing": True, "check": None, "damage": [self.text], "timeline": {"isThere": not is_plain, "why": "" if not is_plain else "a plain topology has none"},
            "can": {"audit": not is_plain, "replay": not is_plain, "activate": False, "rebalance": False, "kill": False, **self.can},
            "isActive": None,
            "roots": {"emitted": 10_100, "acked": 10_000, "failed": 40, "pending": 60} if is_plain else None,
            "workers": {"wanted": 4, "running": 3, "restarts": 1, "killed": 0, "cpuSecs": 12.5} if is_plain else None,
            "components": [],
        }  # fmt: skip

    def topologies(self) -> dict[str, Any]:
        one = {
            "slug": "words", "id": self.topology, "kind": self.kind, "status": self.status,
            "statusText": f"{self.status}, as of 0.4 s ago", "committed": 12_345, "rate": 498.2, "lag": 120, "lagFiles": None, "lagBytes": None,
            "lastError": self.text, "startedAt": START, "updatedAt": NOW,
        }  # fmt: skip
        other = {
            **one,
            "slug": "other",
            "id": "other",
            "status": "killed",
            "statusText": "killed 3 min ago",
            "lastError": None,
        }
        return {"version": "0.2.0", "place": f"/data/{self.file}", "isCluster": True, "topologies": [one, other]}

    def cluster(self) -> dict[str, Any]:
        nimbus = {
            "address": "10.0.0.1:6627",
            "isLeader": True,
            "isAlive": True,
            "startedAt": START,
            "version": "0.2.0",
            "codeHeld": [self.topology],
        }
        return {
            "now": NOW,
            "nimbuses": [nimbus, {**nimbus, "address": "10.0.0.2:6627", "isLeader": False}, {**nimbus, "address": self.key + ".3:6627", "isAlive": False}],
            "supervisors": [{"host": "10.0.0.4:6701", "startedAt": START, "slots": 4, "used": 1, "drivers": [{"slug": "words", "id": "words", "pid": 99}]}],
            "why": "",
        }  # fmt: skip

    def timeline(self, since: int = 0) -> dict[str, Any]:
        """Transactions 1 to 600, 20 ms apart; each tenth fails once; 595 is stuck, and those after it wait for it."""
        names = ("txid", "try", "epoch", "outcome", "job", "group", "tuples", "component", "text", "available", "begun",
                 "metadata", "started", "processed", "grouped", "phases", "ended")  # fmt: skip
        rows = [] if since else [row for txid in range(1, 601) for row in self._attempts_of(txid)]
        groups = sorted({row[5] for row in rows if row[5]})
        writes = [
            (2, g, 18 + n, 280.0 + 80 * g, 300.0 + 80 * g, 302.0 + 80 * g, 310.0 + 80 * g + 12 * n, 40, 0)
            for g in groups
            for n in (0, 1)
        ]
        write_names = ("epoch", "group", "state", "prepared", "decided", "from", "to", "rows", "removed")
        return {
            "head": 999, "lost": False, "base": BASE_MS, "now": 13_200.0, "epoch": 2,
            "runs": [{"epoch": 2, "pid": 4711, "at": -50.0}],
            "attempts": {name: [row[at] for row in rows] for at, name in enumerate(names)},
            "writes": {name: [row[at] for row in writes] for at, name in enumerate(write_names)},
            "texts": {"16": self.component, "17": self.text, "18": self.state, "19": "buckets"},
        }  # fmt: skip

    def _attempts_of(self, txid: int) -> list[tuple[Any, ...]]:
        begun = 20.0 * txid
        wave = 80.0 * ((txid - 1) // 4) + 180
        if txid >= 595:
            processed = 0 if txid == 595 else begun + 110
            return [(txid, 1, 2, 0, 77, 0, 500, 0, 0, begun, begun, begun + 3, begun + 40, processed, 0, 0, 0)]
        rows = []
        if txid % 10 == 0:
            rows.append((txid, 1, 2, 2, 70, 0, 0, 16, 17, begun, begun, begun + 3, begun + 20, 0, 0, 0, begun + 60))
        group = (txid - 1) // 4 + 1
        done = wave + 80
        rows.append((txid, len(rows) + 1, 2, 1, 70, group, 500, 0, 0, begun, begun, begun + 3, begun + 25 + 60 * len(rows),
                     min(begun + 130 + 40 * len(rows), done), done, done + 18, done + 62))  # fmt: skip
        return rows

    def transaction(self, txid: int = 590) -> dict[str, Any]:
        at = START + 11.8
        attempt = {
            "try": 1, "epoch": 2, "outcome": "failed", "job": 77, "group": None, "tuples": 0, "component": self.component,
            "error": f'{self.text}\n  File "{self.file}", line 7, in execute\n    raise ValueError', "availableAt": at,
            "begunAt": at, "metadataAt": at + 0.003, "startedAt": at + 0.02, "processedAt": None, "groupedAt": None,
            "phasesAt": None, "endedAt": at + 0.06,
        }  # fmt: skip
        good = {**attempt, "try": 2, "outcome": "visible", "error": None, "component": None, "group": 148, "tuples": 500,
                "startedAt": at + 0.085, "processedAt": at + 0.17, "groupedAt": at + 0.22, "phasesAt": at + 0.238,
                "endedAt": at + 0.28}  # fmt: skip
        write = {"state": self.state, "rows": 120, "removed": 0, "preparedAt": at + 0.238, "decidedAt": at + 0.25,
                 "fromAt": at + 0.252, "toAt": at + 0.262}  # fmt: skip
        return {
            "txid": txid, "headline": f"transaction {txid}: committed",
            "story": [{"label": "attempt", "text": f"attempt 2, epoch 2, of topology {self.topology!r}"},
                      {"label": "next", "text": "nothing: it is done; the last committed transaction is 12345"}],
            "attempts": [attempt, good], "writes": [write, {**write, "state": "buckets", "toAt": at + 0.28}],
            "journal": {"group": [589, 592], "metadata": {"file": self.file}, "plannedAt": at,
                        "references": {"customers": {"table": "c0ffee", "version": 7, "insteadOf": None}},
                        "waited": ["orders"], "ranges": {self.file: [0, 500]}, "skipped": {"p0": [[3, 4]]},
                        "tuples": {"spout": 500, self.component: 3000}, "isDeadLetter": False},
            "can": {"audit": True, "replay": True}, "previous": txid - 1, "next": txid + 1,
        }  # fmt: skip

    def transactions(self) -> dict[str, Any]:
        one = {"txid": 590, "status": "committed", "attempts": 2, "epoch": 2, "group": 148, "tuples": 500,
               "beganAt": START + 11.8, "endedAt": START + 12.1, "secs": 0.28, "component": self.component, "error": self.text}  # fmt: skip
        return {"transactions": [{**one, "txid": txid} for txid in range(600, 590, -1)] + [one], "isCut": True}

    def errors(self) -> dict[str, Any]:
        error = {"at": NOW - 21, "txid": 590, "attempt": 1, "epoch": 2, "component": self.component,
                 "text": f'{self.text}\n  File "{self.file}", line 7, in execute\n    raise ValueError'}  # fmt: skip
        group = {"component": self.component, "first": self.text, "count": 4, "firstAt": NOW - 300, "lastAt": NOW - 21,
                 "errors": [error, {**error, "txid": 580}]}  # fmt: skip
        return {"total": 4, "groups": [group, {**group, "component": "", "first": "a second one"}]}

    def states(self) -> dict[str, Any]:
        one = {"name": self.state, "kind": "keyed", "class": "DeltaState", "key": "word: string, at: decimal(10,2)", "value": "count: long",
               "path": f"/data/{self.file}/counts", "rows": 12_000, "files": 8, "bytes": 819_200, "version": 77, "txid": 12_345,
               "updatedAt": NOW - 0.2, "diskFiles": 1_234, "diskBytes": 98_304_000, "points": [{"txid": 7, "writtenAt": NOW - 86_400}],
               "allSince": {"txid": 12_000, "writtenAt": None}, "advice": self.text, "error": None}  # fmt: skip
        return {
            "states": [one, {**one, "name": "buckets", "key": "", "rows": None, "error": self.text}],
            "isLive": True,
            "why": "",
        }

    def rows(self) -> dict[str, Any]:
        return {"name": self.state, "txid": None, "columns": ["word", "count", "txid"], "types": ["string", "int64", "int64"],
                "rows": [[self.key, self.value, "1180"], ["storm", None, "7"]], "found": 2, "total": 1200, "isCut": True,
                "lastTxid": 1234, "error": None}  # fmt: skip

    def graph(self) -> dict[str, Any]:
        is_plain = self.kind == "plain"

        def component(
            name: str, kind: str, phase: str, given: int | None = None, states: tuple[str, ...] = (), failed: int = 0
        ):
            counts = {"in": None if kind == "spout" else 500, "out": {"default": given} if given else None, "transferred": None, "executed": 500,
                      "acked": 490 if is_plain else None, "failed": failed, "queued": 7 if is_plain else None}  # fmt: skip
            return {"id": name, "kind": kind, "class": "Split", "tasks": 4, "phase": None if is_plain else phase, "committer": bool(states),
                    "streams": {"default": "word: string"}, "states": list(states), "counts": counts,
                    "lastError": self.text if failed else None, "lastFailedAt": NOW - 21 if failed else None, "isFailing": bool(failed)}  # fmt: skip

        def edge(source: str, target: str, grouping: str = "shuffle", stream: str = "default"):
            return {"source": source, "stream": stream, "target": target, "grouping": grouping}

        def state(kind: str):
            return {"class": "DeltaState", "kind": kind, "key": "word: string", "value": "count: long", "path": "/data"}

        tables = () if is_plain else (self.state,)
        return {
            "topology": self.topology, "kind": self.kind, "why": "",
            "components": [
                component("spout", "spout", "processing", 500), component(self.component, "bolt", "processing", 3000, failed=4),
                component("count", "batch bolt", "commit", 3000, tables), component("bucketize", "basic bolt", "commit", 80),
                component("buckets", "batch bolt", "commit", None, () if is_plain else ("buckets",)),
            ],
            "edges": [edge("spout", self.component), edge(self.component, "count", "fields(word)", self.stream), edge("count", "bucketize", "none"),
                      edge("bucketize", "buckets", "fields(bucket)"), edge("spout", "buckets", "all", "ticks")],
            "states": {} if is_plain else {self.state: state("keyed"), "buckets": state("keyed")},
        }  # fmt: skip

    def plots(self, until: int = int(NOW)) -> dict[str, Any]:
        at = list(range(until - 299, until + 1))

        def wave(size: float, gap: bool = False) -> list[float | None]:
            return [None if gap and 100 < n < 130 else size * (1 + (n * 7919 % 13) / 26) for n in range(300)]

        plots = [
            ("committed", "transactions/s", {"committed": wave(480, gap=True)}), ("tuples", "tuples/s", {"spout": wave(249_000)}),
            ("latency", "s", {"p50": wave(0.3), "p99": wave(0.8)}),
            ("Delta writes", "s", {self.state: wave(0.04), **{f"table {n}": wave(0.01 * n) for n in range(1, 7)}}),
            ("failures", "/s", {"failed": [1.0 if n % 90 == 0 else 0.0 for n in range(300)]}), ("memory", "MiB", {"driver": wave(512)}),
        ]  # fmt: skip
        named = ({"name": title, "title": title, "unit": unit, "lines": lines} for title, unit, lines in plots)
        again = {"name": "gauge latency", "title": "latency", "unit": "", "lines": {self.component: wave(3.0)}}
        return {"secs": 300, "until": at[-1], "isLast": until >= int(NOW), "at": at, "plots": [*named, again]}

    def runs(self) -> dict[str, Any]:
        one = {**self.header(), "past": None, "why": ""}
        ended = {"past": 4, "slug": "words@4", "status": "failed", "why": self.text, "endedAt": NOW}
        return {"runs": [one, {**one, **ended}, {**one, **ended, "past": 3, "startedAt": None, "process": None}]}

    def settings(self) -> dict[str, Any]:
        one = {"name": "topology.max.spout.pending", "inPython": "max_spout_pending", "value": "32", "default": "8", "isDefault": False,
               "purpose": "how many transactions may be pending", "isSecret": False}  # fmt: skip
        return {
            "settings": [one, {**one, "name": "spark.master", "value": self.value, "isDefault": True}],
            "arguments": {"input": self.file},
            "why": "",
        }

    def check(self, state: str = "same") -> dict[str, Any]:
        """An audit, which has found two faults unless all is the same; or as far as it is."""
        proof = {"state": self.state, "first": 1, "last": 12_345, "groups": 600, "versions": 612, "rowsPut": 7_200, "rowsRemoved": 3,
                 "unread": 2, "between": 0, "believed": 0, "repairs": 1, "begunAfter": None, "backfilledTo": None, "leftAfter": None, "away": []}  # fmt: skip
        found = [{"text": f"it lacks {self.text}", "transaction": 7, "state": self.state, "version": 9},
                 {"text": f"a gap in {self.file}", "transaction": 8, "state": None, "version": None}]  # fmt: skip
        audit = {"topology": self.topology, "isProved": state == "same", "findings": found if state == "differs" else [], "leftOut": 0,
                 "withRows": True, "first": 1, "last": 12_345, "groups": 600, "epochs": 3, "deadLetters": 1, "dropped": 2,
                 "input": {"partitions": 2, "ranges": 24_690, "untold": 0}, "skipped": {self.file: [{"transaction": 3, "start": 0, "end": 9}]},
                 "references": {"customers": {"first": 1, "last": 7}}, "replanned": [], "inFlight": None, "renames": [], "tablesRead": 1,
                 "tables": [proof], "notProved": {"elsewhere": None}}  # fmt: skip
        return {"check": 7, "kind": "audit", "slug": "words", "txid": None, "state": state, "startedAt": NOW - 3,
                "endedAt": None if state == "running" else NOW, "progress": {"state": self.state, "done": 7, "versions": 612} if state == "running" else None,
                "audit": None if state == "running" else audit, "replay": None, "reason": "", "output": self.text}  # fmt: skip
