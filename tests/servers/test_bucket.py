"""``txtopo bucket dev`` and the server that it starts, as clients of S3 see it."""

import contextlib
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs
import pytest

pytest.importorskip("obstore")

from tests.processes import python
from txtopo.files.objects import ObjectFolder
from txtopo.servers.bucket import Objects
from txtopo.servers.server import free_port


@contextlib.contextmanager
def bucket_dev(folder: Path, port: int) -> Iterator[dict[str, str]]:
    """Run the command; yield the options that it tells people to set."""
    with python("-m", "txtopo", "bucket", "dev", "--port", str(port), "--folder", str(folder)) as child:
        said = ""
        while "Ctrl-C" not in said:
            line = child.stdout.readline()
            assert line, said
            said += line
        exports = [line.split()[1:] for line in said.splitlines() if "export" in line]
        yield {name.lower(): value for line in exports for name, _, value in (each.partition("=") for each in line)}
        child.send_signal(signal.SIGINT)
    assert child.returncode == 0


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with bucket_dev(tmp_path_factory.mktemp("bucket"), free_port()) as options:
        yield options


@pytest.mark.slow
def test_the_command_keeps_its_objects(tmp_path: Path) -> None:
    """It says what clients need, serves until it is asked to stop, and its next start continues with its objects."""
    port = free_port()
    for start in range(2):
        with bucket_dev(tmp_path / "bucket", port) as options:
            folder = ObjectFolder("s3://any/where", tuple(options.items()))
            found = sorted(folder.names())
            folder.put(f"{start}/é #", b"x")
            folder.put(str(start), b"a" * start)
    assert found == ["0"]


def test_what_a_crash_leaves_of_a_put_is_removed(tmp_path: Path) -> None:
    """And all else is there."""
    Objects(tmp_path).put("b/k", b"1")
    (tmp_path / "x.draft").write_bytes(b"{")
    again = Objects(tmp_path)
    found = again.get("b/k")
    assert found is not None
    assert (found.read(), [file.suffix for file in tmp_path.iterdir()]) == (b"1", [""])
    again.delete("b/k")
    assert Objects(tmp_path).get("b/k") is None


@pytest.mark.slow
def test_long_listings_and_large_objects(options: dict[str, str]) -> None:
    """Listings come in pages of 1,000 names, with and without folders; large objects are put in parts."""
    folder = ObjectFolder("s3://bucket/many", tuple(options.items()))
    in_folders = [f"f{number % 540}/{number:04d}" for number in range(700)]
    names = [*in_folders, *map(str, range(500))]
    for name in names:
        folder.put(name, b"1")
    with folder._store("") as (library, store, key):
        found = [each["path"].removeprefix(f"{key}/") for some in library.list(store, key) for each in some]
    assert (len(found), set(found)) == (1_200, set(names))
    assert (len(folder.folders()), sorted(folder.names())) == (540, sorted(map(str, range(500))))
    content = bytes(range(256)) * 40_000
    with folder._store("large") as (library, store, key):
        library.put(store, key, content, chunk_size=5 * 1024 * 1024)
    assert folder.get("large") == content


@pytest.mark.slow
def test_two_writers_of_one_name(options: dict[str, str]) -> None:
    """The second is refused, be it a put of a name that is taken or one in place of a version of before."""
    folder = ObjectFolder("s3://bucket/writers", tuple(options.items()))
    version = folder.replace("a", b"1", None)
    assert version is not None
    assert not folder.put_if_absent("a", b"2")
    assert folder.replace("a", b"3", version) is not None
    assert folder.replace("a", b"4", version) is None
    assert folder.get("a") == b"3"


@pytest.mark.slow
def test_chunks_of_http(options: dict[str, str]) -> None:
    """pyarrow sends a body of unknown length, with the chunks of S3 within those of HTTP."""
    there = pyarrow.fs.S3FileSystem(
        access_key=options["aws_access_key_id"],
        secret_key=options["aws_secret_access_key"],
        region=options["aws_region"],
        endpoint_override=options["aws_endpoint"].removeprefix("http://"),
        scheme="http",
    )
    content = bytes(range(256)) * 1000
    with there.open_output_stream("bucket/x") as stream:
        stream.write(content)
    with there.open_input_stream("bucket/x") as stream:
        assert stream.read() == content


@pytest.mark.slow
def test_a_body_in_chunks(options: dict[str, str]) -> None:
    """SDKs that sign what they stream send it so."""
    url = f"{options['aws_endpoint']}/bucket/chunks"
    body = b"5;chunk-signature=0\r\nhello\r\n3;chunk-signature=0\r\n, w\r\n0;chunk-signature=0\r\n\r\n"
    headers = {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}
    request = urllib.request.Request(url, body, headers, method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
    assert ObjectFolder("s3://bucket", tuple(options.items())).get("chunks") == b"hello, w"
