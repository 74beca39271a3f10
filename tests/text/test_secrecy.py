"""What is hidden, and what is not."""

import json
import logging
import re
import shlex
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from txtopo.cluster.settings import CLUSTER_SETTINGS
from txtopo.config import SETTINGS
from txtopo.text import secrecy
from txtopo.text.secrecy import HIDDEN, SecretFilter, command_line, is_secret, secrets_kept, shown, without_secrets

PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0\n-----END PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N"


SECRETS = """
    shop.password shop.passwd shop.passphrase shop.pwd dbPwd db_pass DB_PASSWORD file.system.password
    fs.s3a.session.token spark.hadoop.fs.s3a.access.key spark.hadoop.fs.s3a.secret.key AWS_ACCESS_KEY_ID aws.credentials sas
    fs.azure.account.key.store.dfs.core.windows.net account.key AccountKey private_key privateKey ssl.key apiKey api-key
    spark.ssl.keyPassword sasl.jaas.config basic.auth.user.info Authorization provider.class.secret
    storm.zookeeper.auth transactional.zookeeper.auth
"""
NO_SECRETS = """
    shop.discount author authors topology.message.timeout.secs bypass keyboard monkey passenger.count compass key
    ssl.keystore.location password.file
"""


@pytest.mark.parametrize("name", SECRETS.split())
def test_name_of_a_secret(name: str) -> None:
    """Its value is hidden, whatever it looks like."""
    assert shown(name, "plain") == HIDDEN


def test_settings_of_txtopo() -> None:
    """Of txtopo's settings, the credentials are secrets, and nothing else is."""
    secret = [name for name in (*SETTINGS, *CLUSTER_SETTINGS) if is_secret(name)]
    assert secret == ["transactional.zookeeper.auth", "storm.zookeeper.auth"]


@pytest.mark.parametrize("name", NO_SECRETS.split())
def test_name_that_only_looks_like_it(name: str) -> None:
    """Its value is shown."""
    assert shown(name, "plain") == "plain"


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("jdbc:postgresql://shop:hunter2@db:5432/x?ssl=true", "jdbc:postgresql://…@db:5432/x?ssl=true"),
        ("postgres://shop:hun/te@r2@db/x", "postgres://…@db/x"),
        ("https://hunter2token@host/x", "https://…@host/x"),
        ("redis://:hunter2@host", "redis://…@host"),
        ("https://host/x?user=me&password=hunter2&n=1", "https://host/x?user=me&password=…&n=1"),
        ("https://s.blob.core.windows.net/c?sv=1&sig=hunter2%3D", "https://s.blob.core.windows.net/c?sv=1&sig=…"),
        (
            'org.apache.kafka.PlainLoginModule required username="me" password="hunter2 and more";',
            'org.apache.kafka.PlainLoginModule required username="me" password="…";',
        ),
        ("AccountName=me;AccountKey=hunter2==;End=x", "AccountName=me;AccountKey=…;End=x"),
        ("{'shop.pwd': 'hunter2', 'n': '1'}", "{'shop.pwd': '…', 'n': '1'}"),
        (
            "-Xmx1g -Dpw=hunter2 -Djavax.net.ssl.keyStorePassword=hunter2",
            "-Xmx1g -Dpw=… -Djavax.net.ssl.keyStorePassword=…",
        ),
        ("--set=shop.password=hunter2", "--set=shop.password=…"),
        ("error: token: hunter2", "error: token: …"),
        ("the token hunter12 is used up", "the token … is used up"),
        ("url=http://host/?token=hunter2&x=1", "url=http://host/?token=…&x=1"),
        ("{'options': 'password=hunter2 n=1'}", "{'options': 'password=… n=1'}"),
        ("options=-Dpw=hunter2", "options=-Dpw=…"),
        (f"{'x' * 300}.password=hunter2", f"{'x' * 300}.password=…"),
        ("https://hooks.slack.com/services/T0/B0/hunter2", "https://hooks.slack.com/services/…"),
        ("https://discord.com/api/webhooks/17/hunter2", "https://discord.com/api/webhooks/…"),
        ("https://api.telegram.org/bot17:hunter2/sendMessage", "https://api.telegram.org/bot…/sendMessage"),
        ("login --user me --password hunter2 --verbose", "login --user me --password … --verbose"),
        ("java -pw hunter2 -jar x", "java -pw … -jar x"),
        (
            "Command '['psql', '--password', 'hunter2', '-x']' failed",
            "Command '['psql', '--password', '…', '-x']' failed",
        ),
        ('{"secret": {"value": "hunter2", "n": [1, "hunter2"]}, "n": 1}', '{"secret": …, "n": 1}'),
        ('{"secret": {"value": "hunter2} and more', '{"secret": …'),
        ('"tokens": ["hunter2", "hunter2"]', '"tokens": …'),
        ('{"name": "DB_PASSWORD", "value": "hunter2"}', '{"name": "DB_PASSWORD", "value": "…"}'),
        ("- name: DB_PASSWORD\n  value: hunter2\n", "- name: DB_PASSWORD\n  value: …\n"),
        ("[('fs.s3a.secret.key', 'hunter2'), ('n', '1')]", "[('fs.s3a.secret.key', '…'), ('n', '1')]"),
        ("<name>db.password</name><value>hunter2</value>", "<name>db.password</name><value>…</value>"),
        ("<password>hunter2</password>", "<password>…</password>"),
        ("{'pwd': b'hunter2', 'n': 1}", "{'pwd': b'…', 'n': 1}"),
        ('{"options": "{\\"pwd\\": \\"hunter2\\", \\"n\\": 1}"}', '{"options": "{\\"pwd\\": \\"…\\", \\"n\\": 1}"}'),
        ("""password="it's hunter2" n=1""", 'password="…" n=1'),
        ("password => hunter2, n => 1", "password => …, n => 1"),
        ("back=%2Fx%3Fpassword%3Dhunter2&n=1", "back=%2Fx%3Fpassword%3D…&n=1"),
        ("the password is hunter2", "the password is …"),
        ("its password was 'hunter2 and more', said db", "its password was '…', said db"),
        ("shop.password is hunter2", "shop.password is …"),
        ("the API key is hunter2", "the API key is …"),
        ("user me passwd hunter2", "user me passwd …"),
        ("user me, pw hunter2", "user me, pw …"),
        ("user me password hunter2", "user me password …"),
        ("no access with secret key hunter2hunter2", "no access with secret key …"),
        (PEM, HIDDEN),
        (f"Authorization: Bearer {JWT}", "Authorization: …"),
        (JWT, HIDDEN),
        ("AKIAIOSFODNN7EXAMPLE", HIDDEN),
        ("sk_live_4eC39HqLyjWDarjtT1", HIDDEN),
        ("glpat-4eC39HqLyjWDarjtT1zd", HIDDEN),
        ("Login(user='me', secret=Text('hunter2'), n=1)", "Login(user='me', secret=…, n=1)"),
        ("To(host='h', credentials=auth.Login('me', key='hunter2'))", "To(host='h', credentials=…)"),
        ("[(b'x-api-key', b'hunter2'), (b'n', b'1')]", "[(b'x-api-key', b'…'), (b'n', b'1')]"),
    ],
)
def test_value_that_holds_a_secret(value: str, left: str) -> None:
    """The secret in it is hidden, whatever its name; the rest is shown."""
    hidden = shown("shop.plain", value)
    assert "hunter2" not in hidden
    assert hidden.replace("Bearer …", "…").replace("… …", "…") == left


@pytest.mark.parametrize(
    "value",
    [
        "s3a://bucket/folder",
        "abfss://container@account.dfs.core.windows.net/x",
        "env:SHOP_PASSWORD",
        "file:/etc/shop/password",
        "127.0.0.1:2181,127.0.0.2:2181",
        "me@example.com",
        "KeyError: 'words'",
        "AuthenticationException: the broker is away",
        "a bearer of news",
        'File "words.py", line 3, in key: value',
        "the password is wrong",
        "password is missing, and passwd is not set",
        "a password of the shop must be given",
        "SyntaxError: unexpected token ')' at 17",
        "(key, value)",
        "run --token-file /etc/token --verbose",
    ],
)
def test_value_that_holds_none(value: str) -> None:
    """It is shown as it is."""
    assert shown("shop.place", value) == value


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "part", ["v", " ", "\\", "(", "password ", "password: ", "--", "'", "<", "a=", '{"', "x ,value", "v "]
)
def test_long_text(part: str) -> None:
    """It takes time in proportion to its length, for whoever reaches a daemon's port can ask for it again and again."""
    started = time.process_time()
    assert HIDDEN in without_secrets(f"{part * (200_000 // len(part))} password=hunter2")
    assert time.process_time() - started < 20.0


def test_message_that_quotes_a_setting() -> None:
    """Its secrets are hidden by their values, too; those of settings that are none stay."""
    settings = {"shop.password": "open sesame", "shop.pin": "12", "shop.discount": "three", "shop.token": "env:TOKEN"}
    message = "ValueError: 'open sesame' is wrong at 12 for three with env:TOKEN"
    assert without_secrets(message, settings) == "ValueError: '…' is wrong at 12 for three with env:TOKEN"


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_traceback_that_quotes_a_setting(level: int) -> None:
    """A record with a traceback shows no secret of a setting in either; nor with ``debug``, when all are shown."""
    secret = "open sesame"
    record = logging.LogRecord("db", level, "", 0, "no access by %s", (secret,), None)
    with pytest.raises(ValueError, match="is wrong") as failure:
        raise ValueError(f"{secret!r} is wrong")
    record.exc_info = (failure.type, failure.value, failure.tb)
    assert SecretFilter({"shop.password": secret}).filter(record)
    shown_text = logging.Formatter().format(record)
    assert "no access by …" in shown_text
    assert "ValueError: '…' is wrong" in shown_text
    assert secret not in shown_text


@pytest.mark.parametrize("arguments", [("open sesame",), (1, "open sesame")])
def test_record_that_does_not_fit_its_arguments(arguments: tuple[object, ...]) -> None:
    """It says which line logs it, without them: as without a filter, whoever logs it goes on."""
    record = logging.LogRecord("db", logging.INFO, "shop.py", 7, "%d rows", arguments, None)
    assert SecretFilter().filter(record)
    assert record.getMessage().startswith("shop.py:7 logs what can't be written: TypeError: ")


@pytest.mark.parametrize(
    "value",
    [
        {"db": {"password": "hunter2", "n": 1}},
        [{"password": ["hunter2"]}],
        '{"db": {"password": "hunter2"}, "url": "a=b"}',
        '[["x"], {"credentials": {"type": "refused", "me": "hunter2"}}]',
    ],
)
def test_secret_inside_a_value(value: object) -> None:
    """It is hidden where the setting is shown, and wherever else it stands; other parts are not."""
    assert "hunter2" not in str(shown("shop", value))
    assert without_secrets("n=1: hunter2 is refused", {"shop": value}) == f"n=1: {HIDDEN} is refused"


def test_value_that_is_no_json() -> None:
    """It is taken as it is, however deep it seems to be."""
    for value in ("{", "[" * 100_000, "{password}"):
        assert without_secrets("hunter2", {"shop": value}) == "hunter2"


@pytest.mark.parametrize("names", [("a.token", "b.token"), ("b.token", "a.token")])
def test_secret_that_begins_another(names: tuple[str, str]) -> None:
    """Of neither is anything shown, whichever setting comes first."""
    settings = dict(zip(names, ("abcd", "abcdefgh"), strict=True))
    assert without_secrets("'abcdefgh' and 'abcd' are wrong", settings) == "'…' and '…' are wrong"


def test_secrets_of_a_command() -> None:
    """Whoever makes a text fit for people hides them while it runs, and no longer."""
    with secrets_kept({"password": "open sesame"}), secrets_kept({"db.pwd": "open", "name": "shop"}):
        assert without_secrets("open sesame or open at the shop", {"token": "or open"}) == "… … at the shop"
    assert without_secrets("open sesame") == "open sesame"


@pytest.mark.parametrize("written", [repr, json.dumps, quote, quote_plus], ids=lambda each: each.__name__)
def test_secret_as_others_write_it(written: Callable[[str], str]) -> None:
    """A setting's secret is hidden in texts that escape what it holds, too."""
    secret = "hun\"ter\\2 '+é/"
    assert "ter" not in without_secrets(f"refused: {written(secret)}", {"shop.password": secret})


def test_command_line() -> None:
    """What a command is told as can be used again, but for its secrets, which are hidden whole."""
    words = ["run", "shop", "--set", "shop.password=open sesame", "--set=db.pwd=a b", "--set", "n=1", "--token", "abc"]
    words += ["--set", "key.password=env:KEY", "--set", "url=http://me:hunter2@host"]
    assert shlex.split(command_line(words)) == [
        *("run", "shop", "--set", "shop.password=…", "--set=db.pwd=…", "--set", "n=1", "--token", "…"),
        *("--set", "key.password=env:KEY", "--set", "url=http://…@host"),
    ]


@pytest.mark.parametrize("pattern", [each for each in vars(secrecy).values() if isinstance(each, re.Pattern)])
def test_no_group_is_repeated_possessively(pattern):
    """Python 3.11.2, which Debian 12 has, matches such a pattern wrongly, and showed secrets."""
    assert not re.search(r"\)(\+\+|\*\+|\?\+)", pattern.pattern)
