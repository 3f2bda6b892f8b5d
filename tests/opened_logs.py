"""The log of moorage's modules, taken back after a test that has opened it."""

import logging


def close_log(handler: logging.Handler) -> None:
    """Take ``open_log`` or ``log_to_file`` back."""
    logger = logging.getLogger("moorage")
    logger.removeHandler(handler)
    handler.close()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True
