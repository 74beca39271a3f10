"""Azurite, the emulator of Azure Blob Storage, as a server of the tests' own, where npm has installed it."""

import base64
import email.utils
import hashlib
import hmac
import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.processes import ROOT
from tests.waiting import wait_for
from txtopo.servers.server import Server, free_port

ABSENT = "Azurite is not installed: npm install --prefix build/azurite azurite@3"

_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which its documentation gives."""
_VERSION = "2021-08-06"


def binary() -> Path | None:
    """Return the emulator; None if it is not installed."""
    own = ROOT / "build/azurite/node_modules/.bin/azurite-blob"
    found = shutil.which(os.environ.get("TXTOPO_AZURITE", "azurite-blob"))
    return own if own.exists() else None if found is None else Path(found)


class AzuriteServer(Server):
    """An emulator with the one container ``az://bucket``, whose objects are in memory."""

    def __init__(self) -> None:
        found = binary()
        if found is None:
            pytest.skip(ABSENT)
        self._binary = found
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> dict[str, str]:
        """Those of a table there, and in capitals the environment."""
        return {
            "azure_storage_account_name": _ACCOUNT,
            "azure_storage_account_key": _KEY,
            "azure_endpoint": f"http://127.0.0.1:{self.port}/{_ACCOUNT}",
            "azure_allow_http": "true",
        }

    def start(self) -> None:
        """Start it, and wait until it has made the container."""
        words = f"--silent --blobHost 127.0.0.1 --blobPort {self.port} --skipApiVersionCheck --inMemoryPersistence"
        self._process = subprocess.Popen([self._binary, *words.split()], cwd="/", start_new_session=True)
        wait_for("Azurite", self._has_container)

    def kill(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _has_container(self) -> bool:
        date = email.utils.formatdate(usegmt=True)
        headers = f"x-ms-date:{date}\nx-ms-version:{_VERSION}"
        what = f"PUT{chr(10) * 12}{headers}\n/{_ACCOUNT}/{_ACCOUNT}/bucket\nrestype:container"
        signed = base64.b64encode(hmac.new(base64.b64decode(_KEY), what.encode(), hashlib.sha256).digest()).decode()
        try:
            answer = httpx.put(
                f"http://127.0.0.1:{self.port}/{_ACCOUNT}/bucket?restype=container",
                headers={
                    "x-ms-date": date,
                    "x-ms-version": _VERSION,
                    "Authorization": f"SharedKey {_ACCOUNT}:{signed}",
                },
                trust_env=False,
            )
        except httpx.TransportError:
            return False
        return answer.status_code in {201, 409}
