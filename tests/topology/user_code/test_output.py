"""What user code prints and logs: whose it is, in lines, bounded; everything else stays as it was."""

import io
import logging
import re
import subprocess
import sys
import threading

import pytest

from txtopo.attempts import TransactionAttempt, attempt_number
from txtopo.topology.user_code.blame import user_code
from txtopo.topology.user_code.output import (
    CHARACTERS_MAX,
    LINE_CHARACTERS_MAX,
    LINES_MAX,
    PRINT,
    USER_LOGGER,
    Capture,
    Line,
    capturing,
    ended,
    user_output_logged,
)

FIRST = TransactionAttempt(7, 1)
logger = logging.getLogger("mine")


@pytest.fixture
def lines():
    return []


def of(text, source="stdout", level=PRINT, attempt=FIRST):
    return Line(level, text, source, "bolt", 2, attempt.txid, attempt.attempt)


def test_prints_are_lines_of_their_task(lines, capsys):
    """Parts of a line are one line, several lines are several; both streams; what is left is told at the end."""
    with capturing(Capture(lines.append)):
        with user_code("bolt", FIRST, 2):
            print("a", "b", end="")
            print(" c\nd")
            print("wrong", file=sys.stderr)
            print("begun", end="")
        assert lines == [of("a b c"), of("d"), of("wrong", "stderr")]
        ended(FIRST)
        assert lines[3:] == [of("begun")]
    assert capsys.readouterr() == ("", "")


def test_output_of_others_stays_as_it_was(lines, capsys):
    """In the driver, what is printed outside of user code is not taken; nor is anything afterwards."""
    before = sys.stdout, sys.stderr
    with capturing(Capture(lines.append)):
        taken = sys.stdout
        print("of the main thread")
        with user_code("bolt", FIRST):
            pass
        sys.stderr.write("its error\n")
    assert (sys.stdout, sys.stderr) == before
    print("afterwards", file=taken)
    assert capsys.readouterr() == ("of the main thread\nafterwards\n", "its error\n")
    assert lines == []


def test_a_stream_that_user_code_deletes_is_put_back(lines, capsys):
    """A bolt that deletes ``sys.stdout`` does not fail the run at its end."""
    before = sys.stdout
    with capturing(Capture(lines.append)), user_code("bolt", FIRST):
        del sys.stdout
    assert sys.stdout is before
    print("afterwards")
    assert capsys.readouterr().out == "afterwards\n"


def test_a_bolt_within_an_emitter_has_its_own_lines(lines):
    """Code that is called within other code prints as itself; a line that the outer has begun stays the outer's."""
    with capturing(Capture(lines.append)), user_code("spout", FIRST, 0):
        print("begun", end="")
        with user_code("bolt", FIRST, 2):
            print("inner")
        print("outer")
    assert [(line.component, line.text) for line in lines] == [
        ("spout", "begun"),
        ("bolt", "inner"),
        ("spout", "outer"),
    ]


def test_a_thread_of_a_bolt_prints_for_it(lines):
    """In a worker all output is user code's: a thread's is that of the task at hand."""
    with capturing(Capture(lines.append, is_worker=True)):
        with user_code("bolt", FIRST, 2):
            thread = threading.Thread(target=print, args=("of a thread",))
            thread.start()
            thread.join()
        print("between two tasks")
    assert lines == [of("of a thread"), Line(PRINT, "between two tasks", "stdout")]


def test_an_attempt_is_bounded_and_what_is_dropped_counted(lines):
    """So many lines of an attempt, and not one more; the next attempt has as many again."""
    with capturing(Capture(lines.append)):
        for attempt in (FIRST, TransactionAttempt(7, 2)):
            with user_code("bolt", attempt, 2):
                for number in range(LINES_MAX + 5):
                    print(number)
            ended(attempt)
    texts = [line.text for line in lines]
    assert len(lines) == 2 * (LINES_MAX + 2)
    assert texts[: LINES_MAX + 1][-2] == str(LINES_MAX - 1)
    assert "further lines are dropped" in texts[LINES_MAX]
    assert texts[LINES_MAX + 1] == texts[-1] == "5 more lines of this attempt were dropped"
    assert lines[-1].attempt == 2


def test_output_of_no_attempt_has_a_share_for_each_interval():
    """A worker that runs for days prints again after a burst, and says what was dropped of it."""
    texts: list[str] = []
    capture = Capture(lambda line: texts.append(line.text))
    for burst in range(2):
        for number in range(LINES_MAX + 5):
            capture.print("stdout", f"{burst} {number}\n", None)
        capture.renew()
    assert texts[LINES_MAX + 1] == texts[-1] == "5 more lines were dropped"
    assert texts[LINES_MAX + 2] == "1 0"


def test_a_huge_print_is_cut(lines):
    """One line of a million characters shows its beginning and end; many long lines end at the bound."""
    with capturing(Capture(lines.append)):
        with user_code("bolt", FIRST, 2):
            print("a" * 1_000_000 + "z")
            for _ in range(CHARACTERS_MAX // LINE_CHARACTERS_MAX + 2):
                print("b" * LINE_CHARACTERS_MAX)
        ended(FIRST)
    assert len(lines[0].text) <= LINE_CHARACTERS_MAX
    assert (lines[0].text[:2], lines[0].text[-2:]) == ("aa", "az")
    begin, left_out, end = re.split(r" … (\d+) characters left out … ", lines[0].text)
    assert len(begin) + int(left_out) + len(end) == 1_000_001
    assert sum(len(line.text) for line in lines) < CHARACTERS_MAX + 2 * LINE_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("\x1b[2Jcleared", "\\x1b[2Jcleared"),
        ("10%\r20%\r", "20%"),
        ("\udcff", "\\udcff"),
        ("tab\täß漢", "tab\täß漢"),
    ],
)
def test_lines_harm_no_terminal(lines, printed, shown):
    """Control characters and what UTF-8 can't hold are shown as escapes; of a bar that is drawn anew, the last one."""
    with capturing(Capture(lines.append)), user_code("bolt", FIRST, 2):
        print(printed)
    assert lines == [of(shown)]


def test_logging_in_a_worker(lines, monkeypatch):
    """Records of any logger are taken from the level on; a traceback comes along; a wrong message harms nothing."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own raise what logging passes over
    with capturing(Capture(lines.append, is_worker=True), logging.INFO), user_code("bolt", FIRST, 2):
        logger.debug("too fine")
        logger.info("so %s", "far")
        try:
            int("bad")
        except ValueError:
            logger.exception("failed")
        logger.info("%d", "no number")
    assert lines[0] == of("so far", "mine", logging.INFO)
    assert lines[1].text.startswith("failed\nTraceback")
    assert lines[1].text.endswith("literal for int() with base 10: 'bad'")
    assert "--- Logging error ---" in [line.text for line in lines]


def test_a_record_that_a_handler_prints_comes_once(lines):
    """A bolt that gives its logger a handler to standard error has each record shown once."""
    with capturing(Capture(lines.append, is_worker=True), logging.INFO), user_code("bolt", FIRST, 2):
        handler = logging.StreamHandler()
        logger.addHandler(handler)
        try:
            logger.warning("once")
        finally:
            logger.removeHandler(handler)
    assert lines == [of("once", "stderr")]


class _Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


def test_all_comes_through_one_logger():
    """Prints and records of the driver's user code reach handlers once, with where they come from."""
    kept, root = _Kept(), logging.getLogger()
    late = TransactionAttempt(7, attempt_number(3, 0))
    root.addHandler(kept)
    try:
        with user_output_logged({}), user_code("bolt", late, 2):
            print("printed")
            logger.warning("logged %d", 1)
            logging.getLogger(USER_LOGGER).warning("by its name")
            logging.getLogger("txtopo").warning("the framework's")
        logger.warning("not user code")
    finally:
        root.removeHandler(kept)
    origin = "[component 'bolt', task 2, txid 7, attempt 1, epoch 3]"
    assert [(record.name, record.levelname, record.getMessage()) for record in kept.records] == [
        (USER_LOGGER, "PRINT", f"{origin} printed"),
        (USER_LOGGER, "WARNING", f"{origin} logged 1"),
        (USER_LOGGER, "WARNING", f"{origin} by its name"),
        ("txtopo", "WARNING", "the framework's"),
        ("mine", "WARNING", "not user code"),
    ]
    record = kept.records[0]
    told = (record.component, record.task, record.txid, record.attempt, record.epoch, record.source)
    assert told == ("bolt", 2, 7, 1, 3, "stdout")


def test_without_any_configuration_prints_show(monkeypatch):
    """Where nobody has configured logging, lines go to standard error; nothing of that stays behind."""
    out, root, ours = io.StringIO(), logging.getLogger(), logging.getLogger(USER_LOGGER)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(sys, "stderr", out)
    with user_output_logged({}), user_code("bolt", FIRST, 2):
        print("hello")
        logger.info("not asked for")
    assert out.getvalue() == "[component 'bolt', task 2, txid 7, attempt 1, epoch 1] hello\n"
    assert (ours.handlers, ours.level, root.handlers) == ([], logging.NOTSET, [])


@pytest.mark.parametrize("name", ["mine", USER_LOGGER])
def test_a_huge_record_of_the_driver_is_cut(name):
    """As a worker's is, before anybody looks for secrets in it."""
    kept, root = _Kept(), logging.getLogger()
    root.addHandler(kept)
    try:
        with user_output_logged({}), user_code("bolt", FIRST, 2):
            try:
                int("4" * 5_000_000 + "x")
            except ValueError:
                logging.getLogger(name).exception("5" * 5_000_000)
    finally:
        root.removeHandler(kept)
    (record,) = kept.records
    assert len(logging.Formatter().format(record)) < 3 * LINE_CHARACTERS_MAX


@pytest.mark.parametrize("name", ["mine", USER_LOGGER])
def test_secrets_are_hidden(capsys, name):
    """Those of the run's settings, whatever prints or logs them, and others by their form."""
    kept, root = _Kept(), logging.getLogger()
    root.addHandler(kept)
    try:
        with user_output_logged({"shop.password": "open sesame", "n": 3}), user_code("bolt", FIRST, 2):
            print({"shop.password": "open sesame", "n": 3}, "or open sesame")
            try:
                int("no open sesame")
            except ValueError:
                logging.getLogger(name).exception("jdbc:x://me:hunter2@db and %s", "open sesame")
        with user_output_logged({}), user_code("bolt", FIRST, 2):
            print("open sesame")
    finally:
        root.removeHandler(kept)
    formatter = logging.Formatter()
    told = [
        formatter.format(record).removeprefix("[component 'bolt', task 2, txid 7, attempt 1, epoch 1] ")
        for record in kept.records
    ]
    assert told[0] == "{'shop.password': '…', 'n': 3} or …"
    assert told[1].splitlines()[0] == "jdbc:x://…@db and …"
    assert told[1].splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'no …'"
    assert told[2:] == ["open sesame"]


def test_a_handler_that_prints_is_not_taken_for_user_code(capsys):
    """A handler that writes to whatever standard output is at the time does so: no line comes twice or for ever."""

    class Printing(logging.Handler):
        def emit(self, record):
            print(record.getMessage())

    handler, root = Printing(), logging.getLogger()
    root.addHandler(handler)
    try:
        with user_output_logged({}), user_code("bolt", FIRST):
            print("printed")
            logger.warning("logged")
            logging.getLogger("txtopo").warning("the framework's")
    finally:
        root.removeHandler(handler)
    origin = "[component 'bolt', txid 7, attempt 1, epoch 1]"
    assert capsys.readouterr().out.splitlines() == [f"{origin} printed", f"{origin} logged", "the framework's"]


def test_two_runs_of_a_process(lines):
    """A run that ends does not take the output of another one from it."""
    one, two = capturing(Capture(lines.append)), capturing(Capture(lines.append))
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    with user_code("bolt", FIRST, 2):
        print("still taken")
    two.__exit__(None, None, None)
    assert lines == [of("still taken")]


def test_own_warnings_without_logging() -> None:
    """Where nobody has configured logging, txtopo's warnings go to standard error, as Python's do."""
    code = (
        "import logging\n"
        "from txtopo.topology.user_code.output import user_output_logged\n"
        "with user_output_logged({}):\n"
        "    logging.getLogger('txtopo.spark').warning('look')\n"
        "    logging.getLogger('txtopo.spark').info('nothing')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "look\n"
