"""``txtopo bucket``: a bucket to try things with."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from txtopo.cli.command import Command, WholeNumber
from txtopo.cli.run.asked import stop_asked
from txtopo.errors import ConfigError
from txtopo.servers.bucket import KEY, REGION, SECRET, Objects, bucket_server


@click.group("bucket")
def bucket() -> None:
    """Run a server of buckets for development."""


@bucket.command("dev", cls=Command)
@click.option("--port", type=WholeNumber(1), default=9000, show_default=True, help="The port on 127.0.0.1.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out/bucket"),
    show_default=True,
    help="The folder of the objects; the next start continues with them.",
)
def dev(port: int, folder: Path) -> None:
    """Serve buckets by S3's protocol on this machine until Ctrl-C.

    Any bucket exists, any credentials will do, and nothing is synced: for development and tests only.
    """
    try:
        objects = Objects(folder)
    except OSError as error:
        raise ConfigError(f"the folder {folder} can't be used, {error.strerror}: give another folder") from error
    with stop_asked() as stop, bucket_server(objects, port) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        click.echo(f"buckets are served on {server.options['aws_endpoint']}; their objects are in {folder}; in another")
        click.echo("shell, give these to whatever uses them, such as 'txtopo run … --set output=s3://bucket/shop':")
        click.echo(f"  export AWS_ENDPOINT={server.options['aws_endpoint']} AWS_ALLOW_HTTP=true AWS_REGION={REGION}")
        click.echo(f"  export AWS_ACCESS_KEY_ID={KEY} AWS_SECRET_ACCESS_KEY={SECRET}")
        click.echo("Ctrl-C stops it")
        stop.wait()
        server.shutdown()
        serving.join()
