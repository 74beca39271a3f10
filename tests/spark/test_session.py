"""Sessions: a machine without Java, or with too old a one, is told what to install."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from txtopo.errors import ConfigError
from txtopo.spark.session import check_java


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Without Java: one line that says which package to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="openjdk-17-jre-headless") as raised:
        check_java()
    assert "\n" not in str(raised.value)


def test_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Java 8 and 11 are refused by their version."""
    for version in ("1.8.0_292", "11.0.2"):
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2021' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        with pytest.raises(ConfigError, match=version):
            check_java()


def test_command_line_without_java(tmp_path: pathlib.Path) -> None:
    """``txtopo run`` without Java prints the line, and no traceback."""
    environment = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "txtopo.cli", "run", "examples.global_count"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "openjdk-17-jre-headless" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
