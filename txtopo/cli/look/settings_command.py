"""``txtopo settings``: list the settings and their values; also generates ``docs/settings.md``."""

from __future__ import annotations

import attrs
import click
from rich.table import Table
from rich.text import Text

from txtopo.cli.command import Command, CommandLineError, format_option
from txtopo.cli.console import table_console
from txtopo.cluster.settings import CLUSTER_SETTINGS
from txtopo.config import SETTINGS, find_setting
from txtopo.errors import ConfigError
from txtopo.settings.setting import Setting

PAGE = """\
# Settings

<!-- Made by `txtopo settings --format markdown > docs/settings.md`; don't change it by hand. -->

You can give every setting in Python, `Config(max_spout_pending=8)`, by its dotted name,
`Config({{"topology.max.spout.pending": 8}})`, or on the command line, `--set max_spout_pending=8`. If a name is wrong,
the error suggests the nearest right one. `txtopo settings` prints this table, `txtopo settings NAME` one setting.

| in Python | dotted name | value | default | meaning |
|---|---|---|---|---|
{rows}

Names in bold are Storm's; the others are txtopo's own.

- Names that begin with `spark.` go to the Spark session, as in `--set spark.driver.memory=3g`.
- Other dotted names are your own, for your bolts and spouts to read: `config["shop.discount"]`.
- `--set` also sets the parameters of the function that makes the topology. A value is converted to the parameter's
  annotation or, without one, to the type of its default: `def topology(every: int = 3)` takes `--set every=7` as the
  number 7. Supported types are str, int, float, bool (true, false), Path, Literal, Enum, each `| None` (none), and
  lists, tuples and sets of them (1,2,3).

## Daemons of a cluster

Daemons, and the commands that talk to them, take these from a TOML file, `--config FILE`, or as `--set NAME=VALUE`.

| name | value | default | meaning |
|---|---|---|---|
{daemon_rows}
"""


@click.command("settings", cls=Command)
@click.argument("name", required=False)
@format_option("table", "markdown")
def settings_command(name: str | None, form: str) -> None:
    """List all settings, or describe the setting NAME.

    NAME is a setting's dotted name, which is Storm's if Storm has the setting, or its name in Python.
    """
    if name is not None and name in CLUSTER_SETTINGS:
        click.echo(in_full(CLUSTER_SETTINGS[name]))
    elif name is not None:
        try:
            setting = find_setting(name)
        except ConfigError as error:
            raise CommandLineError(str(error)) from error
        click.echo(in_full(setting))
    elif form == "markdown":
        click.echo(page(), nl=False)
    else:
        _print_table()


def page() -> str:
    """Return the page ``docs/settings.md``."""
    rows = "\n".join(map(_row, SETTINGS.values()))
    return PAGE.format(rows=rows, daemon_rows="\n".join(map(_daemon_row, CLUSTER_SETTINGS.values())))


def in_full(setting: Setting) -> str:
    """Return the full description of a setting, in lines."""
    origin = "a setting of Storm's" if setting.is_storms else "txtopo's own"
    is_of_daemons = setting.name in CLUSTER_SETTINGS
    return "\n".join(
        [
            f"{setting.name} ({origin}{', for daemons' if is_of_daemons else ''})",
            f"  meaning       {setting.purpose}",
            f"  value         {setting.kind.words}",
            f"  default       {setting.default_text}{_plain_default(setting)}",
            *([] if is_of_daemons else [f"  in Python     Config({setting.keyword}=…)"]),
            f"  command line  --set {setting.name if is_of_daemons else setting.keyword}=…",
        ]
    )


def _plain_default(setting: Setting) -> str:
    if setting.plain_default == setting.default:
        return ""
    return f"; in a plain topology {attrs.evolve(setting, default=setting.plain_default).default_text}"


def _row(setting: Setting) -> str:
    name = f"**`{setting.name}`**" if setting.is_storms else f"`{setting.name}`"
    default = f"`{setting.default_text}`{_plain_default(setting)}"
    cells = (f"`{setting.keyword}`", name, setting.kind.words, default, setting.purpose)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _daemon_row(setting: Setting) -> str:
    name = f"**`{setting.name}`**" if setting.is_storms else f"`{setting.name}`"
    return f"| {name} | {setting.kind.words} | `{setting.default_text}` | {setting.purpose} |"


def _print_table() -> None:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "default", "value", "meaning"):
        drawn.add_column(Text(title), overflow="fold", no_wrap=title == "name")
    for setting in (*SETTINGS.values(), *CLUSTER_SETTINGS.values()):
        texts = (setting.name, setting.default_text, setting.kind.words, setting.purpose)
        drawn.add_row(*map(Text, texts))
    table_console().print(drawn)
