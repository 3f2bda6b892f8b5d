#!/bin/sh
# Whether the stack of this container answers, at the address that it told its clients.
. "$MOORAGE_STATE_DIR/env" && exec curl --fail --silent --insecure --max-time 4 --output /dev/null "${OPENAI_BASE_URL%/v1}/healthz"
