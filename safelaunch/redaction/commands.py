"""Secrets that stand behind options of known commands whose names do not tell."""

from __future__ import annotations

import functools
import re

REDACTED = "<redacted>"
_QUOTED = r"\"[^\"\n]{1,256}\"|'[^'\n]{1,256}'"

# Commands whose options have no name that tells: a word that is in the line, the programs, what stands between them and
# the secret, the secret (by default a word). A space stands for what is between words.
_WORD = r"[^\s\0]+"
_COMMANDS: tuple[tuple[str, str, str, str], ...] = (
    (
        "curl",
        "curl|xh|https?",
        r"(?:-u|--user|--proxy-user|-U|-a|--auth)(?: |=)?[\"']?[^\s:\"'\0]{1,64}:",
        r"[^\s\"'\0]+",
    ),
    # A key in the place of the user, and no password.
    ("curl", "curl", r"(?:-u|--user)(?: |=)?[\"']?", r"[^\s:\"'\0]{12,256}(?=:[\"']?(?:[\s\0]|\Z))"),
    ("mysql", "mysql(?:dump|admin|import)?|mycli|xtrabackup", "-p", r"[\"']?(?![\s\0])[^\s\"'\0]+"),
    ("mariadb", "mariadb(?:-dump|-admin)?", "-p", r"[\"']?(?![\s\0])[^\s\"'\0]+"),
    ("sshpass", "sshpass", "-p(?: )?", rf"(?:{_QUOTED}|{_WORD})"),
    ("redis-cli", "redis-cli", "-a ", _WORD),
    (
        "login",
        "docker|podman|buildah|skopeo|helm|oras|crane|az|oc|vault|npm|nerdctl|singularity|apptainer",
        r"(?:login|registry login)\b[^\n|;]{0,300}? -[pt] ",
        _WORD,
    ),
    (
        "login",
        "wandb|vault|comet|neptune|clearml|hf auth|huggingface-cli",
        r"login (?:--relogin )?(?![-\[<])",
        r"[^\s\0]{8,}",
    ),
    ("config", "ossutil(?:64)?|obsutil|tosutil", "-k(?: |=)", _WORD),
    ("coscmd", "coscmd", "-s ", _WORD),
    ("sudo -s", "echo|printf", r"[\"']?", r"[^\s\"'|\0]+(?=(?:\\n)?[\"']? \| sudo -S)"),
    ("mongo", "mongo(?:sh|dump|restore|export|import)?", "-p ", _WORD),
    ("ldap", "ldap(?:search|modify|add|delete|whoami|passwd)", "-w ", _WORD),
    ("sqlcmd", "sqlcmd|bcp", "-P(?: )?", _WORD),
    ("smbclient", "smbclient|rpcclient", r"-U [^\s%\0]{1,64}%", r"[^\s\"'\0]+"),
    ("lftp", "lftp", r"-u [^\s,\0]{1,64},", _WORD),
    ("ssh-keygen", "ssh-keygen", "-[NP] ", _WORD),
    ("keytool", "keytool", "-(?:store|key|new|src|dest|srcstore|deststore)pass ", _WORD),
    ("rclone", "rclone", "obscure ", _WORD),
    ("zip", "zip|unzip", "-P ", _WORD),
    ("7z", "7z[ar]?", "-p", _WORD),
    ("ipmitool", "ipmitool", "-P ", _WORD),
    ("openssl", "openssl", r"(?:-[kK] |-pass(?:in|out)? pass:)", _WORD),
    ("htpasswd", "htpasswd", r"-[a-zA-Z]*b[a-zA-Z]* [^\s\0]{1,99} [^\s\0]{1,64} ", _WORD),
    ("chpasswd", "echo", r"[\"']?\w{1,32}:", r"[^\s\"'\0]+(?=[\"']? \| (?:sudo )?chpasswd)"),
    ("kinit", "echo|printf", r"(?:[\"']%s[\"'] )?[\"']?(?!\$)", r"[^\s\"'|\0]+(?=(?:\\n)?[\"']? \| kinit)"),
    ("kinit", "kinit", r"<<< ?[\"']?(?!\$)", r"[^\s\"'\0]+"),
    (
        "-stdin",
        "echo|printf",
        r"(?:-n |[\"']%s[\"'] )?[\"']?(?!\$)",
        r"[^\s\"'|\0$`]+(?=(?:\\n)?[\"']? \| [^\n|]{0,100}stdin)",
    ),
    ("mc", "mc", r"(?:alias set|config host add) [^\s\0]{1,64} [^\s\0]{1,200} [^\s\0]{1,128} ", _WORD),
    ("aws", "aws", r"configure set [^\s\0]{0,60}(?:secret|key|token)[^\s\0]{0,40} ", _WORD),
    (
        "config",
        "npm|yarn|pip|git|poetry",
        r"config (?:--\w{1,20} )?(?:set )?[^\s\0]{0,80}(?:token|passw|auth|secret)[^\s\0]{0,20}[\s=\0]",
        r"[^\s\0]{6,}",
    ),
)


def without(value: str, between: str = r"\s+") -> str:
    """A line without what follows such options.

    Args:
        value: the line.
        between: a pattern of what stands between its words.
    """
    low = value.lower()
    for hint, pattern in _commands(between):
        if hint in low:
            value = pattern.sub(rf"\g<1>{REDACTED}", value)
    return value


@functools.cache
def _commands(between: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (
            hint,
            re.compile(
                rf"((?<![\w-])(?:{programs})(?: [^\n|;]{{0,300}}?)?? {option})(?!<redacted>)({secret})".replace(
                    " ", between
                )
            ),
        )
        for hint, programs, option, secret in _COMMANDS
    )
