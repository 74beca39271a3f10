"""What was restored from a backup after a rewind: at a txid that fits, and yet of another timeline."""

import shutil

import pytest

from tests.acceptance.topologies import counts_of, make_data, read_total, read_words, words_topology
from tests.transactional.recovery.divergences import Place
from tests.variants import variants
from txtopo import Config
from txtopo.servers.zookeeper import running_zookeeper
from txtopo.testing.inline import run_inline

DATA = make_data(2, 24)
FORMER, LATTER = 4, 6
"""How many tuples of a partition a transaction takes, before and after the rewind."""

MODULE = """
from tests.acceptance.topologies import make_data, words_topology

def topology(output: str = ".", take: int = 4):
    return words_topology(output, make_data(2, 24), take=int(take))
"""

BACKUPS = range(1, 7)


@pytest.fixture
def place(command_line, tmp_path):
    command_line.write_module("counting", MODULE)
    return Place(tmp_path)


def ran(place, take, until=None, folder=None):
    topology = words_topology(folder or place.folder, DATA, take=take)
    return run_inline(topology, Config(group_transactions_max=1), until=until)


def back_up(place, txid):
    shutil.copytree(
        place.folder,
        place.folder / "backups" / str(txid),
        ignore=shutil.ignore_patterns("backups", "*.py", "__pycache__"),
    )


def restore(place, txid, *names):
    for name in names:
        shutil.rmtree(place.folder / name)
        shutil.copytree(place.folder / "backups" / str(txid) / name, place.folder / name)


@pytest.fixture(scope="module")
def before_the_rewind(tmp_path_factory):
    """A folder whose topology ran with backups at every transaction: it is the same for all tests."""
    place = Place(tmp_path_factory.mktemp("before"))
    for txid in BACKUPS:
        ran(place, FORMER, until=txid)
        back_up(place, txid)
    return place.folder


@pytest.fixture
def rewound(command_line, place, before_the_rewind):
    """Return a function that runs with backups at every transaction, rewinds, and runs on with other batches."""

    def prepare(to, until):
        shutil.copytree(before_the_rewind, place.folder, dirs_exist_ok=True)
        command_line.told("rewind", "counting", str(to), "--yes", "--set", f"take={LATTER}")
        return ran(place, LATTER, until=until)

    return prepare


def restore_store(place, txid):
    """Bring back the coordinator state alone: it lies in another place than the journal."""
    place.wipe_store()
    backup = place.folder / "backups" / str(txid) / "_txtopo"
    for path in backup.glob("coordinator*"):
        shutil.copy(path, place.metadata_dir / path.name)


def check_repaired(command_line, place):
    """A start refuses or is right; so is the run after a repair, and the audit says so."""
    settings = ("--set", f"take={LATTER}")
    unasked = command_line("repair", "counting", *settings)
    assert unasked.exit_code or " run again" not in unasked.output.partition("safe: ")[2], unasked.output
    if unasked.exit_code:
        told = command_line("repair", "counting", "--yes", *settings)
        assert told.exit_code == 0, told.output
    ran(place, LATTER)
    assert (read_words(place.folder), read_total(place.folder)) == (counts_of(DATA), sum(counts_of(DATA).values()))
    audited = command_line("audit", ".")
    assert "nothing to repair" in command_line.told("repair", "counting", *settings)
    return audited


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("to", "txid"),
    variants(
        (3, 2), (3, 5), long=[(to, txid) for to in (1, 3) for txid in BACKUPS if (to, txid) not in {(3, 2), (3, 5)}]
    ),
)
@pytest.mark.parametrize(
    "kind",
    [
        "store",
        "store and journal",
        "all but the store",
        "store and a table",
        "journal and a table",
        "all tables",
        "journal",
        "a table",
    ],
)
def test_nothing_is_lost_or_doubled(command_line, place, rewound, to, txid, kind):
    """Whatever comes back from before a rewind, at any transaction: each row counts once after the repair."""
    rewound(to, to + 2)
    match kind:
        case "store":
            restore_store(place, txid)
        case "store and journal":
            restore(place, txid, "_txtopo")
        case "all but the store":
            restore(place, txid, "_txtopo/journal", "words", "total")
        case "store and a table":
            restore(place, txid, "_txtopo", "words")
        case "journal and a table":
            restore(place, txid, "_txtopo/journal", "words")
        case "all tables":
            restore(place, txid, "words", "total")
        case "journal":
            restore(place, txid, "_txtopo/journal")
        case "a table":
            restore(place, txid, "words")
    if kind != "journal":
        told = command_line("run", "counting", "--set", f"take={LATTER}", "--until", "1")
        assert told.exit_code == 1, told.output
    if kind in {"store and journal", "store and a table", "journal and a table", "all but the store"}:
        # There are transactions that nobody knows the input of: all of the backup has to be restored.
        said = command_line.refusal("repair", "counting", "--yes", "--set", f"take={LATTER}")
        assert f"the journal no longer has transactions {min(txid, to) + 1} to {to + 2}" in said
        assert "restore the coordinator state and all tables from the same one" in said
        restore(place, txid, "_txtopo", "words", "total")
    audited = check_repaired(command_line, place)
    # A journal that was restored alone lacks what was committed since, and the audit says so; otherwise all is proved.
    assert audited.exit_code == (kind == "journal"), audited.output


@pytest.mark.parametrize("store", variants("newer", slow=["wiped"]))
def test_transactions_do_not_run_again_unasked(command_line, place, store):
    """No table is rolled back, and yet whatever else took their rows, a topic or a state in memory, gets them twice."""
    ran(place, FORMER, until=2)
    back_up(place, 2)
    ran(place, FORMER, until=5)
    restore(place, 2, "words", "total")
    if store == "wiped":
        place.wipe_store()
    before = place.seen()
    result = command_line("repair", "counting")
    again = f"at transaction 2, and transactions 3 to {5 if store == 'newer' else 4} run again"
    assert f"needs your agreement: no table is changed; the coordinator state is rebuilt, {again}" in result.stdout
    assert (result.exit_code, place.seen()) == (1, before)
    command_line.told("repair", "counting", "--yes")
    ran(place, FORMER)
    assert read_words(place.folder) == counts_of(DATA)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["store", "store and journal"])
def test_a_fork_of_two_timelines_is_refused(command_line, place, rewound, kind):
    """It would begin with transactions, or go on from metadata, that are undone."""
    rewound(3, 5)
    if kind == "store":
        restore_store(place, 5)
    else:
        restore(place, 5, "_txtopo")
    settings = ("--set", f"take={LATTER}")
    for txid in ("2", "5"):
        assert "of another timeline: a rewind" in command_line.refusal("fork", "counting", txid, "side", *settings)
    assert not (place.folder / "side").exists()
    if kind != "store":
        restore(place, 5, "words", "total")
    command_line.told("repair", "counting", "--yes", *settings)
    command_line.told("fork", "counting", "3", "side", *settings)


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("txid", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["store", "store and a table", "a table"])
def test_with_a_shortened_journal(command_line, place, rewound, txid, kind):
    """It begins with the rewind: what is restored is repaired if nothing before that is needed, and refused otherwise."""
    rewound(3, 5)
    if kind != "a table":
        restore_store(place, txid)
    if kind != "store":
        restore(place, txid, "words")
    for path in sorted((place.metadata_dir / "journal" / "words").iterdir())[:-1]:
        path.unlink()
    settings = ("--set", f"take={LATTER}")
    command_line.refusal("run", "counting", *settings, "--until", "1")
    if kind == "store" or txid >= 3:
        assert check_repaired(command_line, place).exit_code == 0
    else:
        command_line.refusal("repair", "counting", "--yes", *settings)
        assert place.txids() == {"words": txid, "total": 5}


@pytest.mark.long
@pytest.mark.parametrize("to", [1, 3])
def test_a_real_zookeeper_that_was_restored_from_a_backup(command_line, place, tmp_path_factory, to):
    """Its data are from before a rewind, at any transaction: a start refuses, and after a repair each row counts once."""
    folder = tmp_path_factory.mktemp("zookeeper")
    with running_zookeeper(folder / "server", tick_time_ms=500) as server:
        values = {"topology.state.store": "zookeeper", "transactional.zookeeper.servers": server.hosts}
        settings = (
            "--set",
            f"take={LATTER}",
            *(word for name, value in values.items() for word in ("--set", f"{name}={value}")),
        )
        config = Config(group_transactions_max=1).with_settings(values)

        def copied(moment: str, *names: str, is_back: bool = False) -> None:
            """Copy the data of the server, which is down meanwhile, and what else is named; or bring them back."""
            server.kill()
            for own in (server.data, *(place.folder / name for name in names)):
                kept = folder / moment / own.name
                source, copy = (kept, own) if is_back else (own, kept)
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(source, copy)
            server.start()

        for txid in BACKUPS:
            run_inline(words_topology(place.folder, DATA, take=FORMER), config, until=txid)
            copied(str(txid))
        command_line.told("rewind", "counting", str(to), "--yes", *settings)
        run_inline(words_topology(place.folder, DATA, take=LATTER), config, until=to + 2)
        copied("latter", "words", "total", "_txtopo")
        for txid in BACKUPS:
            copied("latter", "words", "total", "_txtopo", is_back=True)
            copied(str(txid), is_back=True)
            told = command_line("run", "counting", "--until", "1", *settings)
            assert told.exit_code == 1, told.output
            unasked = command_line("repair", "counting", *settings)
            assert "safe: " in unasked.output, "the journal knows what was committed, and where it ended"
            run_inline(words_topology(place.folder, DATA, take=LATTER), config)
            assert read_words(place.folder) == counts_of(DATA), txid
            assert read_total(place.folder) == sum(counts_of(DATA).values())
            command_line.told("audit", ".")
