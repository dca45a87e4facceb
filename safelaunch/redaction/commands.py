"""Secrets that stand behind options of known commands whose names do not tell."""

from __future__ import annotations

import functools
import re

REDACTED = "<redacted>"
SEVERAL = ("vault", "secrets set")  # commands that are given several secrets at once
MOST = 8  # of them
_QUOTED = r"\"[^\"\n]{1,256}\"|'[^'\n]{1,256}'"

# What reads a secret from its standard input.
_READERS = (
    r"(?:gh (?:auth login|secret set)|cryptsetup|kinit|vncpasswd|chpasswd|passwd|htpasswd|wrangler secret put|gpg"
    r"|(?:docker|podman|helm|oras) login|vault login|wandb login|hf auth login)"
)

# Commands whose options have no name that tells: a word that is in the line, the programs, what stands between them and
# the secret, the secret (by default a word). A space stands for what is between words.
_WORD = rf"(?:{_QUOTED}|(?:\\{{0,8}}[\"'])?[^\s\"'\0]*[^\s\"'\0\\])"
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
    *(
        (
            program,
            program,
            r"(?:-n |[\"']%s[\"'] )?[\"']?(?!\$)",
            rf"[^\s\"'|\0$`]+(?=(?:\\n)?[\"']? \| (?:sudo )?{_READERS})",
        )
        for program in ("echo", "printf")
    ),
    ("<<<", f"{_READERS}|(?:sudo )?su", r"<<< ?[\"']?(?!\$)", r"[^\s\"'\0]+"),
    ("vault", "vault", r"(?:kv put|write) [^\s\0=]{1,200} (?:[^\n|;]{0,300}? )??[\w.-]{1,64}=(?!@)", _WORD),
    (
        "put-parameter",
        "aws",
        r"ssm put-parameter (?=[^\n|;]{0,400}SecureString)[^\n|;]{0,300}?--value(?: |=)",
        rf"(?:{_QUOTED}|{_WORD})",
    ),
    ("secrets set", "fly|flyctl|doppler|infisical|supabase", r"secrets set (?:[^\n|;]{0,300}? )??[\w.-]{1,80}=", _WORD),
    ("codecov", r"codecov(?:cli|\.io/\w{1,20}\))?", "-t(?: |=)", r"[\"']?(?![$<])[\w-]{20,64}"),
    ("swanlab", "swanlab", r"login (?:[^\n|;]{0,200}? )??-k ", _WORD),
    ("snowsql", "snowsql", "-p(?: )?", r"[^\s\"'\0]{6,}"),
    *(
        (program, program, r"(?:[^\n|;]{0,100}? )??[\"']?[\w.$]{1,64}/", r"[^\s@\"'/\0]+(?=@|[\"']?(?:[\s\0]|\Z))")
        for program in ("sqlplus", "expdp", "impdp")
    ),
    ("useradd", "useradd", "(?:-p|--password)(?: |=)", rf"(?:{_QUOTED}|{_WORD})"),
    ("usermod", "usermod", "(?:-p|--password)(?: |=)", rf"(?:{_QUOTED}|{_WORD})"),
    # A place in a network may begin with what looks like an escaped end of a line.
    ("net use", "net", r"use (?:[A-Za-z*]:? )?(?:\\{2,16}|\n[\ue000-\ue00f])[^\s\0]{1,200} (?![/*])", _WORD),
    ("wpa_passphrase", "wpa_passphrase", rf"(?:{_QUOTED}|[^\s\0=]{{1,64}}) ", r"[^\s\"'\0]{8,63}(?<!\\)"),
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
        for _ in range(MOST if hint in low else 0):
            value, count = pattern.subn(rf"\g<1>{REDACTED}", value)
            if not count or hint not in SEVERAL:
                break
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
