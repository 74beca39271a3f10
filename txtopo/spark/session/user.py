"""A user without an entry in ``/etc/passwd``, as containers run processes: Java and Hadoop ask for one."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import MutableMapping

_OPTIONS = "SPARK_SUBMIT_OPTS"


def name_user(variables: MutableMapping[str, str] = os.environ, uid: int | None = None) -> None:
    """Give a user without an entry a name and a home, by the variables of the JVM that is started next.

    Without a name, Hadoop ends Spark's start with "invalid null input: name"; without a home, Java's is ``?``, where
    Spark can't keep packages. What is set already stays.

    Args:
        variables: of this process.
        uid: the user's number; None: that of this process.
    """
    uid = os.getuid() if uid is None else uid
    try:
        pwd.getpwuid(uid)
    except KeyError:
        for name in ("HADOOP_USER_NAME", "SPARK_USER"):
            variables.setdefault(name, f"user-{uid}")
        home = variables.setdefault("HOME", tempfile.gettempdir())
        options = variables.get(_OPTIONS, "")
        if "-Duser.home=" not in options:
            variables[_OPTIONS] = f"{options} -Duser.home={home}".strip()
