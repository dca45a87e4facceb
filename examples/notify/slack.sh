#!/bin/sh
# Writes to a channel of Slack, or of whatever takes its webhook format (Mattermost, Discord's /slack, Rocket.Chat):
#   [notify]
#   on_verdict = "SLACK_WEBHOOK_FILE=~/.slack_webhook ./examples/notify/slack.sh"
# The URL is a secret: it lies in a file (mode 0600), and not in the profile. Needs curl and python3.
set -eu
python3 -c '
import json, sys
told = json.load(sys.stdin)
verdict = told["verdict"] or {"code": "done", "summary": "exit %s" % told.get("exit_code"), "host": told["host"]}
lines = ["*%(code)s* %(summary)s" % verdict, "run %(run_id)s on %(host)s: `%(run_dir)s`" % told]
lines += [verdict["remedy"]] if verdict.get("remedy") else []
print(json.dumps({"text": "\n".join(lines)}))
' | curl --silent --show-error --fail --max-time 8 --header 'Content-Type: application/json' --data @- \
    "$(cat "${SLACK_WEBHOOK_FILE:-$HOME/.slack_webhook}")"
