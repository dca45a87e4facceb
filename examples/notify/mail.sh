#!/bin/sh
# Sends a mail:
#   [notify]
#   on_end = "./examples/notify/mail.sh me@example.org"
# Needs a sendmail, which every mail server and msmtp bring; Slurm's own MailType knows nothing of the verdict.
set -eu
{
    printf 'To: %s\nSubject: [safelaunch] %s\n' "$1" "$SAFELAUNCH_HEADLINE"
    printf 'Content-Type: text/plain; charset=utf-8\n\n'
    python3 -m json.tool  # the message, from the standard input
} | ${SENDMAIL:-sendmail} -t
