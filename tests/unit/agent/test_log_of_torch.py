"""Torch's own words go to the agent's log, also where its loggers follow `sys.stderr`."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from safelaunch.agent.elastic import keep_words_in_log


class Following(logging.Handler):
    """As torch 2.15 has it."""

    @property
    def stream(self) -> object:
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


def test_what_follows_stderr_is_kept_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log, console, elsewhere = io.StringIO(), io.StringIO(), io.StringIO()
    logger = logging.getLogger("test.torch.of.2.15")
    following, other = Following(logging.WARNING), logging.StreamHandler(elsewhere)
    following.setFormatter(logging.Formatter("E %(message)s"))
    logger.addHandler(following)
    logger.addHandler(other)
    logger.propagate = False
    try:
        keep_words_in_log(log)
        monkeypatch.setattr(sys, "stderr", console)
        logger.error("failed (exitcode: 3)")
        logger.debug("nothing of note")
    finally:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)

    assert (log.getvalue(), console.getvalue()) == ("E failed (exitcode: 3)\n", "")
    assert elsewhere.getvalue() == "failed (exitcode: 3)\n"
