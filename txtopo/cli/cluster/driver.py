"""``txtopo driver``: the process that a supervisor starts to run a topology, or to check one. Not for people."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from txtopo.cli.command import Command, CommandLineError
from txtopo.cluster.driver.process import build, kind_of, run_driver
from txtopo.errors import TxtopoError
from txtopo.files.durable import write_whole
from txtopo.text.secrecy import without_secrets


@click.command(cls=Command, hidden=True)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--check", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The code to check.")
@click.option("--answer", type=click.Path(dir_okay=False, path_type=Path), help="Where to write what came of it.")
@click.option("--settings", type=click.Path(dir_okay=False, path_type=Path), help="Settings to check it with.")
def driver(folder: Path | None, check: Path | None, answer: Path | None, settings: Path | None) -> None:
    """Run the driver of FOLDER, or check the code of a topology."""
    if folder is not None:
        click.get_current_context().exit(run_driver(folder))
    if check is None or answer is None:
        raise CommandLineError("give a FOLDER, or --check and --answer")
    # The parent takes a missing answer for a death of this process: so it must appear whole.
    checked = _checked(check, None if settings is None else json.loads(settings.read_bytes()))
    write_whole(answer, json.dumps(checked).encode())


def _checked(code: Path, settings: Mapping[str, str] | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            target = build(code, Path(folder) / "code", settings)
        except TxtopoError as error:
            why = error.message
        except Exception as error:  # noqa: BLE001 - code of users: whatever it is, it does not build
            why = f"{type(error).__name__}: {error}"
        else:
            return {"topologyId": target.topology.id, "kind": kind_of(target.topology).value}
        return {"error": "SubmissionError", "errorMessage": without_secrets(why, settings), "leader": None}
