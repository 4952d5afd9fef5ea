"""Exit statuses of commands, each defined once."""

from refblend.errors import RefblendError

FIXABLE = RefblendError.exit_status
"""The command has said what is wrong and what the user can do."""


def of_signal(signum: int) -> int:
    """The shell's status of a command that a signal has ended."""
    return 128 + signum


def of_child(code: int) -> int:
    """The status to pass on for a child, from ``os.waitstatus_to_exitcode``."""
    return code if code >= 0 else of_signal(-code)
