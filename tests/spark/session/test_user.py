"""Users of containers."""

from __future__ import annotations

import os
import pwd
import tempfile

from txtopo.spark.session.user import name_user

UNKNOWN = next(uid for uid in range(54_321, 60_000) if uid not in {each.pw_uid for each in pwd.getpwall()})


def test_a_user_without_an_entry_gets_a_name_and_a_home() -> None:
    """Java and Hadoop find them; what somebody has set stays, and so does all of a user with an entry."""
    variables: dict[str, str] = {}
    name_user(variables, UNKNOWN)
    name, home = f"user-{UNKNOWN}", tempfile.gettempdir()
    assert variables == {
        "HADOOP_USER_NAME": name,
        "SPARK_USER": name,
        "HOME": home,
        "SPARK_SUBMIT_OPTS": f"-Duser.home={home}",
    }
    before = dict(variables)
    name_user(variables, UNKNOWN)
    assert variables == before
    given = {"SPARK_USER": "shop", "HOME": "/h", "SPARK_SUBMIT_OPTS": "-Dx=1"}
    name_user(given, UNKNOWN)
    assert given == {
        "SPARK_USER": "shop",
        "HADOOP_USER_NAME": name,
        "HOME": "/h",
        "SPARK_SUBMIT_OPTS": "-Dx=1 -Duser.home=/h",
    }
    known: dict[str, str] = {}
    name_user(known, os.getuid())
    assert known == {}
