# SPDX-License-Identifier: Apache-2.0
"""Application that http-read is compared with: the handler of a FastAPI tutorial, answering the same bytes.

python -m dev.benchmarks.harness.plain_app PORT FILE     FILE: JSON, topic to body
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import uvicorn
from fastapi import FastAPI, Response


def create(bodies: dict[str, bytes]) -> FastAPI:
    """The application."""
    app = FastAPI()

    @app.get("/v1/topics/{topic}/route")
    async def route(topic: str) -> Response:
        return Response(bodies[topic], media_type="application/json")

    return app


def main() -> None:
    """Serve it with uvicorn, as fast as that goes: uvloop, httptools, no access log."""
    texts = msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=dict[str, str])
    app = create({topic: text.encode() for topic, text in texts.items()})
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="error",
    )


if __name__ == "__main__":
    main()
