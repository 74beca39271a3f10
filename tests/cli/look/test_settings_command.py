"""``txtopo settings``, and the page that it makes."""

from pathlib import Path

import pytest

from txtopo import Config
from txtopo.cli.look.settings_command import page
from txtopo.cluster.settings import CLUSTER_SETTINGS, ClusterConfig
from txtopo.config import SETTINGS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def test_the_page_is_current():
    """``txtopo settings --format markdown > docs/settings.md`` was run since a setting was changed."""
    assert PAGE.read_text() == page()


def test_every_setting_is_in_the_table(command_line):
    result = command_line("settings")
    names = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert names == [*SETTINGS, *CLUSTER_SETTINGS]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("topology.max.spout.pending", "topology.max.spout.pending (a setting of Storm's)"),
        ("max_spout_pending", "  default       768; in a plain topology 500"),
        ("nimbus.seeds", "nimbus.seeds (a setting of Storm's, for daemons)"),
        ("nimbus.seeds", "  command line  --set nimbus.seeds=…"),
    ],
)
def test_a_setting_is_told_in_full(command_line, name, line):
    """By Storm's name or by ours: whose it is, its default, and how it is set."""
    assert line in command_line.told("settings", name).splitlines()


def test_a_wrong_name_is_answered_with_the_nearest(command_line):
    result = command_line("settings", "max_spout_pendin")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: there is no setting 'max_spout_pendin'; did you mean 'max_spout_pending'?\n",
    )


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        *((Config, setting) for setting in SETTINGS.values()),
        *((ClusterConfig, setting) for setting in CLUSTER_SETTINGS.values()),
    ],
    ids=[*SETTINGS, *CLUSTER_SETTINGS],
)
def test_a_default_can_be_given_as_it_is_shown(config, setting):
    """``--set NAME=DEFAULT`` is the default, but for texts that are not there."""
    if setting.default is not None:
        assert config({setting.name: setting.default_text})[setting.name] == setting.default
