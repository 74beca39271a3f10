"""``txtopo submit``: hand a topology to a cluster."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import attrs
import click

from txtopo.cli.cluster.asking import Connect, takes_cluster
from txtopo.cli.command import Command, CommandLineError, needs_extra, parse_pairs
from txtopo.errors import SubmissionError
from txtopo.topology.user_code.loading import DEFAULT_ATTRIBUTE, Target, load_target

_CHECK_SECS = 300.0
"""How long the topology may take to build from the archive here; a supervisor may allow less."""


@click.command(cls=Command)
@click.argument("source", metavar="MODULE[:ATTRIBUTE]|WHEEL|FOLDER")
@click.option("--name", help="Its name in the cluster; by default the topology's id.")
@click.option("--module", metavar="MODULE[:ATTRIBUTE]", help="What to run of a WHEEL or FOLDER with several modules.")
@click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A parameter or setting, as for 'txtopo run'."
)
@click.option("--inactive", "is_inactive", is_flag=True, help="Do not begin before 'txtopo activate'.")
@takes_cluster
def submit(  # noqa: PLR0913, PLR0917 - options of the command line
    connect: Connect,
    source: str,
    name: str | None,
    module: str | None,
    pairs: tuple[str, ...],
    is_inactive: bool,  # noqa: FBT001 - a flag of the command line
) -> None:
    """Submit a topology to a cluster, which keeps it running.

    A MODULE is packed with all imported modules that are not installed; what they import besides must be installed
    where drivers run. The topology is built here, and once more from nothing but the archive, before it is sent.
    """
    with needs_extra("cluster"):
        from txtopo.cluster.code.submission import Submission, check_archive, check_name  # noqa: PLC0415 - the extra
        from txtopo.cluster.driver.process import kind_of  # noqa: PLC0415 - as above
        from txtopo.text.extras import version  # noqa: PLC0415 - as above
    if name is not None:
        check_name(name)
    with tempfile.TemporaryDirectory() as folder:
        packed = _packed(source, module, pairs, Path(folder))
        check_archive(packed.archive)
        kind = kind_of(packed.target.topology)
        config = packed.target.config.of_kind(kind)
        main, _, attribute = packed.text.partition(":")
        submission = Submission(
            name or packed.target.topology.id,
            packed.target.topology.id,
            main,
            attribute or DEFAULT_ATTRIBUTE,
            dict(packed.target.values),
            config.message_timeout_secs,
            not is_inactive,
            kind.value,
            version(),
        )
        check_name(submission.name)
        # Before the connection: a mistake in the archive needs no cluster to be found.
        _check(submission.to_bytes(), packed.archive, Path(folder) / "checked")
        with connect() as client:
            after = client.submit(submission, packed.archive)
    click.echo(f"{after.id} is {after.status}")
    if after.warning:
        click.echo(f"warning: {after.warning}", err=True)


@attrs.frozen
class _Packed:
    """An archive, and the topology that was built from its sources."""

    archive: Path
    text: str
    """``MODULE[:ATTRIBUTE]``."""
    target: Target


def _packed(source: str, module: str | None, pairs: tuple[str, ...], folder: Path) -> _Packed:
    from txtopo.cluster.packaging import modules_in, pack_folder, pack_modules, top_of  # noqa: PLC0415 - the extra

    archive, values = folder / "code.zip", parse_pairs(pairs)
    path = Path(source)
    # The name of a package is a module's, as for 'txtopo run'; with a slash it is a folder.
    is_package = source.isidentifier() and (path / "__init__.py").is_file() and module is None
    if path.is_dir() and not is_package:
        main = module or top_of(modules_in(path), source)
        pack_folder(path, archive)
        return _Packed(archive, main, load_target(main, values, path.absolute()))
    if path.suffix in {".whl", ".zip"}:
        if not path.is_file():
            raise CommandLineError(f"there is no file {source}")
        unpacked = folder / "wheel"
        _unpack(path, unpacked)
        main = module or top_of(modules_in(unpacked), source)
        archive.write_bytes(path.read_bytes())
        return _Packed(archive, main, load_target(main, values, unpacked))
    if module is not None:
        raise CommandLineError("--module is for a WHEEL or FOLDER; a MODULE names itself")
    target = load_target(source, values)
    pack_modules(target.module.__name__, archive)
    return _Packed(archive, source, target)


def _unpack(path: Path, folder: Path) -> None:
    from txtopo.cluster.code.submission import check_archive  # noqa: PLC0415 - the extra

    check_archive(path)  # a wheel from elsewhere may try to write outside the folder
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)


def _check(description: bytes, archive: Path, folder: Path) -> None:
    """Build the topology from the archive alone, in a separate process, as a driver would.

    Here a missing module shows at once; in this process it would be imported from the working folder.
    """
    from txtopo.cluster.code.submission import ARCHIVE_NAME, DESCRIPTION_NAME  # noqa: PLC0415 - as above
    from txtopo.cluster.driver.child import check_code  # noqa: PLC0415 - as above

    folder.mkdir()
    (folder / ARCHIVE_NAME).write_bytes(archive.read_bytes())
    (folder / DESCRIPTION_NAME).write_bytes(description)
    answer = check_code(folder, _CHECK_SECS, output=sys.stderr)
    if "error" in answer:
        raise SubmissionError(f"the archive alone does not build the topology: {answer['errorMessage']}")
