"""The settings of a run, as the page shows them."""

import pytest

from spouts import MemoryTransactionalSpout
from txtopo import Config, Fields, TransactionalTopologyBuilder
from txtopo.assembly.snapshot import Writer
from txtopo.config import SETTINGS
from txtopo.engine.timeline.observer import Timeline
from txtopo.engine.timeline.records import RunRecord
from txtopo.inspect.run.known import KnownRun
from txtopo.inspect.run.settings import settings
from txtopo.inspect.timeline.timeline import TimelineReader


def shown(folder, given):
    """Return what is shown of a run with some settings."""
    spout = MemoryTransactionalSpout([["a"]], Fields("word"), 1)
    with Timeline(TransactionalTopologyBuilder("t", "spout", spout, 1).build(), Config(given), folder) as recording:
        recording.leads("life", 1)
    timeline = TimelineReader(folder)
    listed = settings(KnownRun("t", timeline, timeline.run(), None, None), {}).settings
    return {setting.name: setting for setting in listed}


def test_what_is_set_to_its_default_is_not_changed(tmp_path):
    """As a value, as a text, or in another form of either."""
    given = {setting.name: setting.default for setting in SETTINGS.values()} | {
        "transactional.zookeeper.servers": ["127.0.0.1"],
        "topology.message.timeout.secs": "30.0",
    }
    found = shown(tmp_path, given)
    assert [setting for setting in found.values() if not setting.is_default] == []
    assert {name: setting.value for name, setting in found.items()} == {
        name: setting.default for name, setting in found.items()
    }


def test_what_a_run_of_before_recorded(tmp_path):
    """It recorded values as Python shows them."""
    recorded = {
        **{setting.name: str(setting.converted(setting.default)) for setting in SETTINGS.values()},
        "transactional.zookeeper.servers": "['127.0.0.1']",
        "topology.message.timeout.secs": "60.0",
    }
    run = RunRecord("t", "transactional", Writer(1, "life", "host", 1, None, 0.0), 0.0, {}, recorded)
    listed = settings(KnownRun("t", TimelineReader(tmp_path), run, None, None), {}).settings
    assert [setting.name for setting in listed if not setting.is_default] == ["topology.message.timeout.secs"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("transactional.zookeeper.servers", ["a", "b:1"], "a,b:1"),
        ("topology.message.timeout.secs", 1234567.5, "1234567.5"),
        ("topology.lineage", "true", "true"),
        ("shop.password", "hunter2", "…"),
        ("transactional.zookeeper.auth", "user:hunter2", "…"),
        ("shop.servers", ["a", {"password": "hunter2"}], "['a', {'password': '…'}]"),
    ],
)
def test_what_is_changed_is_shown_as_it_can_be_set(tmp_path, name, value, text):
    """But for secrets, in whatever they are."""
    setting = shown(tmp_path, {name: value})[name]
    assert (setting.value, setting.is_default) == (text, False)
