"""The command: `dpd-router CONFIG`, or `python -m dpd_router CONFIG`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from typing import Any, NoReturn

from .app import Router
from .config import Config, load
from .sections import ConfigError
from .tokenizing import load_tokenizer

_log = logging.getLogger("dpd_router")


def main() -> int:
    """Run the router until a signal; return the exit status."""
    parser = argparse.ArgumentParser(prog="dpd-router", description=__doc__)
    parser.add_argument("config", help="path of router.yaml")
    arguments = parser.parse_args()
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    try:
        config = load(arguments.config)
        pod_ip = os.environ.get("POD_IP", "")
        if not pod_ip:
            raise ConfigError(
                "POD_IP: not set; set this environment variable to the pod's own IP, "
                "where engines send their notices"
            )
    except ConfigError as error:
        _log.error("%s", error)
        return 2
    return asyncio.run(serve(config, pod_ip))


class OneLine(logging.Formatter):
    """Keeps each message on one line, whatever a client or an engine put into it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line for a record."""
        if not record.message.isprintable():
            record.message = "".join(
                c if c.isprintable() else c.encode("unicode_escape").decode()
                for c in record.message
            )
        return super().formatMessage(record)


async def serve(config: Config, pod_ip: str) -> int:
    """Serve until SIGTERM or SIGINT, then let open requests finish; return the exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    router = Router(config, pod_ip=pod_ip, load_tokenizer=load_tokenizer)
    try:
        await router.start()
        return await serve_until(stop, router, config)
    except ConfigError as error:
        _log.error("%s", error)
        return 2
    except OSError as error:
        _log.error("cannot listen: %s", error)
        return 1
    finally:
        await router.stop()


async def serve_until(stop: asyncio.Event, router: Router, config: Config) -> int:
    """Load the tokenizer and serve until told to stop; return the exit status."""
    stopping = asyncio.create_task(stop.wait())
    failing = asyncio.create_task(router.failed())
    loading = asyncio.create_task(router.load())
    tasks: set[asyncio.Task[Any]] = {stopping, failing, loading}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if loading.done() and (error := loading.exception()) is not None:
            _log.error("model.tokenizer: %r cannot be loaded: %s", config.model.tokenizer, error)
            return 1
        await asyncio.wait({stopping, failing}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            return 1
        await router.drain()
        return 0
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run() -> NoReturn:
    """Run the command and end the process, even if a thread is still loading or counting."""
    status = main()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
