"""Building submitted code in a process of its own."""

import zipfile
from pathlib import Path

import pytest

from txtopo.cluster.code.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission
from txtopo.cluster.driver.child import check_code
from txtopo.errors import SubmissionError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "secs", "why"),
    [
        ("import time\ntime.sleep(10_000)\n", 2.0, "is not built within the.setting"),
        ("import os\nos._exit(3)\n", 60.0, "ended with status 3"),
    ],
)
def test_code_that_gives_no_answer(tmp_path: Path, text: str, secs: float, why: str) -> None:
    """Whether it hangs or ends the process, that is an error, and nothing of it is left."""
    code = tmp_path / "code"
    code.mkdir()
    with zipfile.ZipFile(code / ARCHIVE_NAME, "w") as archive:
        archive.writestr("words.py", text)
    (code / DESCRIPTION_NAME).write_bytes(Submission("words", "words", "words").to_bytes())
    with pytest.raises(SubmissionError, match=why):
        check_code(code, secs, limit="the.setting", folder=tmp_path)
    assert list(tmp_path.iterdir()) == [code]
