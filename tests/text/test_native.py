"""Errors of native libraries."""

import pytest
from deltalake import DeltaTable

from txtopo.text.native import native_text


def test_a_dump_is_left_out() -> None:
    """Neither stack frames nor dumps of objects, which may hold secrets, nor styles of terminals are shown."""
    error = OSError("Generic error: \x1b[31mno\x1b[0m answer\n\nDebug source:\nGeneric {\n  token: 1\n}")
    assert native_text(error) == "Generic error: no answer"
    assert native_text(OSError("gone\n   0: native::frame\n   1: another")) == "gone"
    assert native_text(OSError()) == "OSError"


def test_missing_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store without credentials is told in one sentence that says how to give them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(OSError, match="credential") as raised:
        DeltaTable("s3://bucket/table", storage_options={"aws_region": "eu-west-1"})
    of_a_machine = OSError("Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 5 ms")
    for error in (raised.value, of_a_machine):
        assert native_text(error).startswith("no credentials for it were found; set them in the environment")


def test_an_endpoint_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store's library says of it names no setting, so the error does."""
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    options = {"aws_endpoint": "http://127.0.0.1:1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    with pytest.raises(OSError) as found:  # noqa: PT011 - delta-rs' own
        DeltaTable("s3://data/t", storage_options={**options, "aws_region": "here", "max_retries": "0"})
    assert native_text(found.value).endswith("; an endpoint that begins with http:// needs AWS_ALLOW_HTTP=true")
