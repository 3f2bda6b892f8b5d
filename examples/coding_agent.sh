#!/bin/sh
# Run Codex with a model of moorage: sh coding_agent.sh "Fix the failing test."
# Codex edits the files of the current folder on this machine; moorage serves its model. `npm install -g @openai/codex` installs it.
set -eu
: "${OPENAI_BASE_URL:?run '. .moorage/env' first}" "${OPENAI_API_KEY:?run '. .moorage/env' first}"
[ $# -gt 0 ] || { echo "usage: coding_agent.sh TASK" >&2; exit 2; }

# A home of its own, so that your settings of Codex stay as they are.
CODEX_HOME=$(mktemp -d)
export CODEX_HOME
trap 'rm -rf "$CODEX_HOME"' EXIT
cat >"$CODEX_HOME/config.toml" <<CONFIG
model = "${MOORAGE_MODEL:-demo}"
model_provider = "moorage"

[model_providers.moorage]
name = "moorage"
base_url = "$OPENAI_BASE_URL"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
CONFIG
"${CODEX:-codex}" exec --skip-git-repo-check --sandbox "${CODEX_SANDBOX:-workspace-write}" "$1" </dev/null
