"""What somebody else may do to a table itself, so that txtopo can't write to it any more."""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Field

from state.delta.log.growth import metadata_of

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""Those of Z85, in which the log has a deletion vector."""


def put_entry(table: DeltaTable, *actions: Mapping[str, Any]) -> None:
    """Write the next version's log entry."""
    path = Path(table.table_uri.removeprefix("file://")) / "_delta_log" / f"{table.version() + 1:020d}.json"
    path.write_text("\n".join(map(json.dumps, ({"commitInfo": {"operation": "SOMETHING"}}, *actions))))


def with_features(*features: str, is_read: bool = True) -> Mapping[str, Any]:
    """Return the action for a protocol with some features."""
    readers = list(features) if is_read else []
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": readers,
            "writerFeatures": ["appendOnly", "invariants", *features],
        }
    }


def with_properties(table: DeltaTable, schema_json: str | None = None, **properties: str) -> Mapping[str, Any]:
    """Return the action for metadata with some properties of Delta."""
    metadata = {**metadata_of(table), **({"schemaString": schema_json} if schema_json else {})}
    metadata["configuration"] |= {f"delta.{name}": value for name, value in properties.items()}
    return {"metaData": metadata}


def map_columns(table: DeltaTable) -> None:
    """Turn on column mapping by name, as before there were features, and rename a column."""
    schema = json.loads(table.schema().to_json())
    for number, field in enumerate(schema["fields"], 1):
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        field["metadata"].update(mapping)
    schema["fields"][1]["name"] = "renamed"
    properties = {"columnMapping.mode": "name", "columnMapping.maxColumnId": "9"}
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    put_entry(table, protocol, with_properties(table, json.dumps(schema), **properties))


def track_rows(table: DeltaTable) -> None:
    """Turn on row tracking, which adds every file anew."""
    root = Path(table.table_uri.removeprefix("file://"))
    lines = [line for path in sorted((root / "_delta_log").glob("*.json")) for line in path.read_text().splitlines()]
    held = {Path(uri).name for uri in table.file_uris()}
    adds = [json.loads(line)["add"] for line in lines if '"add"' in line]
    again = [{"add": {**add, "baseRowId": 0, "dataChange": False}} for add in adds if Path(add["path"]).name in held]
    protocol = with_features("rowTracking", "domainMetadata", is_read=False)
    domain = {"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{}", "removed": False}}
    put_entry(table, protocol, with_properties(table, enableRowTracking="true"), domain, *again)


def delete_by_vector(table: DeltaTable) -> None:
    """Turn on deletion vectors, and delete a row of each file by one."""
    track_rows(table)
    table.update_incremental()
    root = Path(table.table_uri.removeprefix("file://"))
    lines = (root / "_delta_log" / f"{table.version():020d}.json").read_text().splitlines()
    adds = [json.loads(line)["add"] for line in lines if '"add"' in line]
    vector = vector_of([0])
    removed = [{"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}} for add in adds]
    added = [{"add": {**add, "deletionVector": vector, "dataChange": True}} for add in adds]
    properties = with_properties(table, enableDeletionVectors="true")
    put_entry(table, with_features("deletionVectors"), properties, *removed, *added)


def vector_of(rows: Sequence[int]) -> Mapping[str, Any]:
    """Return an inline deletion vector of a file's first rows."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + b"".join(struct.pack("<H", row) for row in rows)
    content = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = content + bytes(-len(content) % 4)
    numbers = [int.from_bytes(padded[first : first + 4], "big") for first in range(0, len(padded), 4)]
    text = "".join(_DIGITS[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(content), "cardinality": len(rows)}


def _properties(**properties: str) -> Callable[[DeltaTable], None]:
    texts = {f"delta.{name}": value for name, value in properties.items()}
    return lambda table: table.alter.set_table_properties(texts)


ALTERATIONS: Mapping[str, Callable[[DeltaTable], None]] = {
    "a change data feed": _properties(enableChangeDataFeed="true"),
    "the table feature 'deletionVectors'": delete_by_vector,
    "the property delta.appendOnly": _properties(appendOnly="true"),
    "column mapping by name": map_columns,
    "the table feature 'domainMetadata'": track_rows,
    "the table feature 'typeWidening'": lambda table: put_entry(table, with_features("typeWidening")),
    "the constraint 'small'": lambda table: table.alter.add_constraint({"small": "n < 99999"}),
    "extra: string": lambda table: table.alter.add_columns([Field("extra", "string")]),
}
"""By what a refusal names, what to do to a table."""
