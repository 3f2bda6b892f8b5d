#!/bin/sh
# Lambda's layers are on Python's path only inside its own runtime; this process is started by the Web Adapter instead.
PYTHONPATH="/opt/python${PYTHONPATH:+:$PYTHONPATH}" exec python3 -m uvicorn --factory app:make_app \
    --host 127.0.0.1 --port "${AWS_LWA_PORT:-8080}" --loop asyncio --http httptools --no-access-log --log-level warning \
    --timeout-keep-alive 900
