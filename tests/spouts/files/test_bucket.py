"""The files spout over a bucket: what it promises for folders, and what it asks the store for."""

import bz2
import gzip
import itertools
import logging
import os
import pickle
import uuid
from collections import Counter

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("obstore")

from spouts.files.file_system import DISK
from spouts.files.spout import FilesTransactionalSpout
from tests.object_server import object_store
from tests.spouts.files.growing import Growing
from tests.spouts.reading import collected, plan, read
from txtopo.api.data.fields import Fields
from txtopo.errors import BucketUnreachable, ConfigError, InputError
from txtopo.files.objects import ObjectFolder
from txtopo.testing.conformance.spout import TransactionalSpoutConformance

BUCKET = "TXTOPO_BUCKET"
"""The variable with the address of a bucket."""

_PLACES = itertools.count()


@pytest.fixture
def bucket():
    return ObjectFolder(f"memory:///in/{next(_PLACES)}")


@pytest.fixture(scope="module")
def server():
    with object_store() as server:
        yield server


@pytest.fixture
def on_server(server):
    return ObjectFolder(f"s3://bucket/{next(_PLACES)}", tuple(server.options.items()))


def filled(folder, contents):
    for name, content in contents.items():
        folder.put(name, content if isinstance(content, bytes) else content.encode())
    return str(folder)


class TestConformance(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, bucket):
        names = (("a.txt", 40), ("b/c.txt", 1), ("b/d.txt", 0), ("z é#.txt", 300))
        filled(bucket, {name: "".join(f"{name} line {n}\n" for n in range(count)) for name, count in names})
        return FilesTransactionalSpout(str(bucket), batch_bytes=333)


class TestConformanceOnS3(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, on_server):
        contents = {name: "".join(f"{name} line {n}\n" for n in range(40)) for name in ("a.txt", "b/c d%20.txt")}
        return FilesTransactionalSpout(
            filled(on_server, contents), batch_bytes=333, storage_options=dict(on_server.options)
        )


@pytest.mark.slow
@pytest.mark.skipif(BUCKET not in os.environ, reason=f"{BUCKET} names no bucket to try it in")
@pytest.mark.parametrize("watch", [False, True])
class TestConformanceElsewhere(TransactionalSpoutConformance):
    """In a bucket of any kind, with the options in the environment."""

    is_endless = True
    transactions_max = 7

    @pytest.fixture
    def spout(self, watch):
        folder = ObjectFolder(f"{os.environ[BUCKET]}/{uuid.uuid4()}")
        filled(folder, {name: "".join(f"{name} {n}\n" for n in range(40)) for name in ("a.txt", "b/c d%20é.txt")})
        return FilesTransactionalSpout(str(folder), batch_bytes=100, watch=watch, settle_secs=0)


class TestConformanceOfGrowing(TransactionalSpoutConformance):
    is_endless = True
    transactions_max = 9

    @pytest.fixture
    def spout(self, bucket):
        names = ("part-00007-ab", "a.txt", "sub/z.txt")
        filled(bucket, {name: "".join(f"{name} line {n}\n" for n in range(40)) for name in names})
        return FilesTransactionalSpout(str(bucket), batch_bytes=200, watch=True, settle_secs=0)


CSV = "word,n\n" + "".join(f'"w{n}\n",{n}\n' for n in range(300))


def parquet_bytes():
    sink = pa.BufferOutputStream()
    table = pa.table({"word": [f"w{n}" for n in range(300)], "n": range(300)})
    pq.write_table(table, sink, row_group_size=70)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV.encode()),
        ("a.csv.gz", gzip.compress(CSV.encode())),
        ("a.csv.bz2", bz2.compress(CSV.encode())),
        ("a.json", "".join(f'{{"word": "w{n}", "n": {n}}}\n' for n in range(300)).encode()),
        ("a.parquet", parquet_bytes()),
    ],
)
def test_every_format_reads_what_it_reads_of_a_disk(bucket, tmp_path, name, content):
    """Also when an object is read in many small parts."""
    filled(bucket, {name: content})
    (tmp_path / name).write_bytes(content)
    fields = Fields("word: string", "n: long")
    there, here = (FilesTransactionalSpout(each, fields, batch_bytes=999) for each in (str(bucket), tmp_path))
    there.files = attrs.evolve(there.files, read_bytes_min=64, read_bytes_max=300)
    assert read(there, 2) == read(here, 2) != []


@pytest.mark.parametrize(
    "path", ["", "/*.txt", "/**/*.txt", "/**", "/2*", "/2*/b", "/2*/**/*.txt", "/_x.txt", "/2024/a.txt"]
)
def test_a_path_means_what_it_means_on_a_disk(bucket, tmp_path, path):
    """Folders with all below them, globs, single names; hidden names and empty files are left out."""
    names = [
        "_x.txt",
        ".y",
        "a.txt",
        "b.csv",
        "2024/a.txt",
        "2024/b/c.txt",
        "2024/_tmp/d.txt",
        "2025/b/e.txt",
        "2025/b.txt",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    filled(bucket, {**dict.fromkeys(names, "1\n"), "2024/": b"", "2024/empty.txt": b""})
    (tmp_path / "2024/empty.txt").touch()
    there, here = f"{bucket}{path}", f"{tmp_path}{path}"
    objects = FilesTransactionalSpout(there).files
    assert [file.name for file in objects.list_files([there]).files] == [
        file.name for file in DISK.list_files([here]).files
    ]
    root = objects.root_of(objects.folders_of([there]))
    of_disk = DISK.scan([here], DISK.root_of(DISK.folders_of([here])))
    found = objects.scan([there], root)
    assert {name for name in found.paths if found.look_at(name)} == {
        name for name in of_disk.paths if of_disk.look_at(name)
    }


@attrs.define(eq=False)
class GrowingBucket(Growing):
    """A bucket that grows."""

    objects: ObjectFolder = None

    def write(self, name, content, mtime_secs=None):
        del mtime_secs
        self.objects.put(name, content.encode())


@pytest.fixture
def growing(bucket):
    return GrowingBucket(str(bucket), objects=bucket)


def test_objects_are_taken_as_they_arrive(growing):
    """In whatever order their names sort, each once; what is not there yet is no error."""
    growing.start()
    assert (growing.wait(), growing.coordinator.is_exhausted()) == (False, False)
    names = ["part-9", "part-1", "2024/part-5", "part-0"]
    for name in names:
        growing.write(name, f"{name}\n")
        assert growing.drain()[name] == 1
        growing.start()  # by another process
    assert growing.lines == Counter(names)


def test_an_object_that_is_replaced_before_it_is_taken_is_read_as_it_is_then(growing):
    """Nothing of the former one is read, even if both have the same length."""
    growing.start()
    growing.write("a", "1\n")
    assert growing.wait()
    growing.write("a", "2\n")
    growing.wait()
    assert growing.drain() == {"2": 1}


def test_an_object_that_is_replaced_after_it_was_taken_is_not_read_again(growing, caplog):
    """A warning says so once; a name that was removed and comes back is a new object."""
    growing.start()
    growing.write("a", "1\n")
    assert growing.drain() == {"1": 1}
    growing.write("a", "2\n")
    with caplog.at_level(logging.WARNING):
        assert growing.drain() == growing.drain() == {"1": 1}
    assert caplog.text.count("/a has changed since it was read") == 1
    growing.objects.delete("a")
    growing.wait()
    growing.write("a", "3\n")
    assert growing.drain() == {"1": 1, "3": 1}


def test_an_object_that_is_replaced_while_it_is_read_is_refused(growing, monkeypatch):
    """No attempt reads a part of one and a part of another; the original put back is read."""
    spout = FilesTransactionalSpout(filled(growing.objects, {"a": "1111\n2222\n3333\n"}))
    spout.files = attrs.evolve(spout.files, read_bytes_min=4)
    made = plan(spout)
    planned, got = made[0], ObjectFolder.get_range_of

    def replaced_meanwhile(self, *arguments):
        growing.write("a", "4444\n5555\n6666\n")
        return got(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectFolder, "get_range_of", replaced_meanwhile)
        with pytest.raises(InputError, match="changed while it was read"):
            collected(spout, [planned])
    with pytest.raises(InputError, match="has changed since its transaction was planned: it had 15 bytes, version"):
        collected(spout, [planned])
    growing.objects.delete("a")
    with pytest.raises(InputError, match="is missing; it had 15 bytes"):
        collected(spout, [planned])


def test_an_original_that_is_put_back_is_the_original(on_server):
    """On S3 a version is a checksum of the content, whenever it was put."""
    spout = FilesTransactionalSpout(filled(on_server, {"a": "1\n2\n"}), storage_options=dict(on_server.options))
    (planned,) = plan(spout)
    on_server.delete("a")
    filled(on_server, {"a": "1\n2\n"})
    assert len(collected(spout, [planned]).tuples) == 2


def test_going_back_reads_the_same_objects_again(growing):
    """An owed object that is gone is named, and is forgone by its address."""
    growing.start()
    for name in ("a", "b"):
        growing.write(name, f"{name}\n")
        growing.drain()
    growing.rewind(1)
    growing.start()
    assert growing.drain() == {"a": 1, "b": 1}
    growing.rewind(1)
    growing.objects.delete("b")
    growing.start()
    with pytest.raises(InputError, match=rf"promised to read {growing.folder}/b"):
        growing.drain()
    growing.start()
    growing.forgo("b")
    growing.start()
    assert growing.drain() == {"a": 1}


def test_what_it_asks_the_store_for(on_server, server):
    """A look is one listing, however many objects are known; an object is read by one look and one read."""
    names = [f"part-{number:02d}" for number in range(20)]
    growing = GrowingBucket(str(on_server), {"storage_options": dict(on_server.options)}, objects=on_server)
    growing.start()
    filled(on_server, {name: f"{name}\n" for name in names})
    growing.wait()
    with server.counting() as planning:
        assert growing.coordinator.is_ready()
        metadata = growing.coordinator.initialize_transaction(1, None)
    assert planning == Counter()
    with server.counting() as reading:
        assert len(growing.emitted(metadata)) == 20
    assert reading == Counter(HEAD=20, GET=20)
    with server.counting() as idle:
        growing.wait()
    assert idle == Counter(LIST=2)  # at the beginning and the end of that time


def test_missing_credentials_are_said(monkeypatch):
    """In one sentence, at the start."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    options = {"aws_region": "eu-central-1", "aws_metadata_endpoint": "http://127.0.0.1:9", "aws_allow_http": "true"}
    spout = FilesTransactionalSpout("s3://bucket/in", storage_options=options)
    with pytest.raises(BucketUnreachable, match=r"^s3://bucket/in: no credentials for it were found; set them"):
        plan(spout)


def test_what_is_refused(bucket, monkeypatch):
    """A bucket without objects, several buckets, an archive, a table of bad records among the input."""
    with pytest.raises(InputError, match=f"there is no file in {bucket}/nothing"):
        plan(FilesTransactionalSpout(f"{bucket}/nothing"))
    filled(bucket, {"a.zip": b"PK"})
    with pytest.raises(InputError, match=r"a.zip is compressed, or an archive"):
        plan(FilesTransactionalSpout(str(bucket)))
    with pytest.raises(ConfigError, match="which the spout reads"):
        FilesTransactionalSpout(str(bucket), dead_letter=f"{bucket}/bad")
    assert FilesTransactionalSpout(str(bucket), dead_letter=f"{bucket}/_bad").dead_letter == f"{bucket}/_bad"
    assert FilesTransactionalSpout(f"{bucket}/in*/*.csv", dead_letter=f"{bucket}/bad").dead_letter == f"{bucket}/bad"


def test_its_options_are_shown_nowhere(bucket):
    """They may hold secrets; a pickle for executors has them, as it must."""
    spout = FilesTransactionalSpout(str(bucket), storage_options={"aws_secret_access_key": "do-not-show"})
    assert "do-not-show" not in repr(spout.files) + repr(vars(spout))
    assert pickle.loads(pickle.dumps(spout)).files == spout.files
