"""The logger of this package."""

from __future__ import annotations

import logging
import os

LOGGER = logging.getLogger("trilake")

_FORMAT = "%(asctime)s %(name)s [%(levelname)s] %(filename)s:%(lineno)d %(funcName)s : %(message)s"


def set_logger(
    file_path: str | os.PathLike[str] = "pylance.log",
    name: str = LOGGER.name,
    level: int | str = logging.INFO,
    format_string: str | None = None,
    log_handler: logging.Handler | None = None,
) -> None:
    r"""Write log messages to a file, or to a handler of your own.

    Parameters
    ----------
    file_path: file to append to.
    name: name of the logger, by default that of this package.
    level: lowest level to write.
    format_string: format of the messages, by default with their time and source.
    log_handler: handler to use instead of ``file_path``.

    >>> import io, logging
    >>> out = io.StringIO()
    >>> set_logger(name="trilake.example", format_string="%(message)s", log_handler=logging.StreamHandler(out))
    >>> logging.getLogger("trilake.example").info("done")
    >>> out.getvalue()
    'done\n'
    """
    handler = logging.FileHandler(file_path) if log_handler is None else log_handler
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(format_string or _FORMAT))
    logger = logging.getLogger(name)
    logger.setLevel(level)
    logger.addHandler(handler)
