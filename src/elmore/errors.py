"""Every error that elmore raises on purpose.

A message is one line: what is wrong, with the value; what to do. No capital, no full stop.
"""

from __future__ import annotations

import signal


class ElmoreError(Exception):
    """The base of all errors below; catch it to catch whatever elmore refuses."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: where in the user's code, and the message; no frame of ours."""
        import os
        import traceback

        ours = os.path.dirname(__file__) + os.sep
        frames = [
            frame
            for frame in traceback.extract_tb(self.__traceback__)
            # The first frame of a cell is IPython's own.
            if not frame.filename.startswith(ours) and "IPython" not in frame.filename
        ]
        notes = getattr(self, "__notes__", [])
        return [*traceback.format_list(frames), f"{type(self).__name__}: {self}", *notes]


class InputError(ElmoreError):
    """Text, a dataset or a label cannot be used.

    Args:
        message: what is wrong and what to do.
        file: name of the file that holds it, if known; put in front of the message.
        line: line number from 1, if known.
    """

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None) -> None:
        self.file = file
        self.line = line
        where = file or ""
        if line is not None:
            where = f"{where}:{line}" if where else f"line {line}"
        super().__init__(f"{where}: {message}" if where else message)


class ConfigError(ElmoreError, ValueError):
    """An option, flag or recipe value is bad."""


class FormatError(ElmoreError):
    """A checkpoint is unreadable, unknown or of the wrong shape."""


class ModelNotFound(ElmoreError, FileNotFoundError):
    """A model's name is unknown, or its path leads nowhere; lists the nearest."""


class MissingExtra(ElmoreError, ImportError):
    """An optional package is not installed; names the extra that brings it."""


class NativeError(ElmoreError):
    """ELMORE_NATIVE=require cannot be met."""


class ResumeError(ElmoreError):
    """A run folder does not fit what it should resume."""


class Stopped(ElmoreError):
    """A signal asked the training to stop; everything is saved."""

    def __init__(self, number: int, step: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name} after step {step}; resume it")
