"""The command line: one module per group of commands; nothing else imports it."""

from refblend.cli.main import app, main

__all__ = ["app", "main"]
