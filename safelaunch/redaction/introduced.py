"""Secrets that other words introduce: in URLs, headers, webhooks, connection strings."""

from __future__ import annotations

_DATABASE_HINTS = (
    "postgres", "mysql", "mariadb", "mongodb", "redis", "amqp", "mssql", "oracle", "clickhouse", "snowflake",
    "cockroach",
)  # fmt: skip
_DATABASES = "(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|oracle|clickhouse|snowflake|cockroachdb)"

_USER = r"(?i:uid|user id)\s?="
_ODBC = r"(?:\{[^}\n]{1,256}\}(?=[\s;\"']|\Z)|[^\s;\"']+)"
# "Password" and "secret key" in languages other than English, as they are and as JSON writes them (`\\u5bc6`).
_FOREIGN = (
    "密码", "密碼", "口令", "密钥", "令牌", "パスワード", "비밀번호", "пароль", "contraseña", "contrasena",
    "mot_de_passe", "mot de passe", "senha", "hasło", "kennwort", "wachtwoord", "lösenord", "şifre",
)  # fmt: skip
_CODES = {char: f"u{ord(char):04x}" for word in _FOREIGN for char in word if not char.isascii()}
_FOREIGN_GATES = _FOREIGN + tuple(_CODES.values())
_FOREIGN_NAMES = "|".join(
    "".join(rf"(?:{char}|\\{{1,8}}{_CODES[char]})" if char in _CODES else char for char in word) for word in _FOREIGN
)

# What a line in lower case holds of them.
FOREIGN_HINTS = _FOREIGN + tuple(r"\\" + code for code in _CODES.values())

# Group 1 stays, the rest of the match goes. In front of each, what a text has to hold in lower case.
INTRODUCED: tuple[tuple[tuple[str, ...], str], ...] = (
    # RFC 3986, 3.2.1. A password may hold what it must not: "/" where no port can be meant, "@" and "#".
    (("://",), r"(://)(?=[^/\s:@\"'<>]*:)[^/\s\"'<>]*(?:@[^/\s\"'<>]*)*(?=@)"),
    (("://",), r"(://)[^/\s:@\"'<>\[\]]{0,64}:(?![0-9]{1,5}/)[^\s\"'<>@]{1,128}(?=@[\w.-])"),
    (_DATABASE_HINTS, rf"({_DATABASES}(?:\+\w{{1,20}})?://)[^/\s:@\"'<>]{{0,64}}:[^\s\"'<>@]{{1,128}}(?=@)"),
    (("://",), r"(://)[A-Za-z0-9_-]{20,}(?=@)"),
    (
        ("authorization",),
        r"((?i:authorization)\\{0,8}[\"']?\s{0,3}[:=]\s{0,3}\\{0,8}[\"']?(?!(?:\w+\s+)?(?:\*{2}|\$|\[))"
        r"(?i:(?:bearer|basic|token|digest|apikey|negotiate|aws4-hmac-sha256)\s+)?)[^\s\"',\\]+",
    ),
    (
        ("bearer",),
        r"(\b(?i:bearer)\\{0,8}[\"']?[\s=:]{1,3}\\{0,8}[\"']?)(?=[A-Za-z0-9._~+/-]{0,200}[0-9])[A-Za-z0-9._~+/-]{16,}=*",
    ),
    (("basic",), r"(\b(?i:basic)\s+)(?=[A-Za-z0-9+/]{0,60}[A-Z0-9=])[A-Za-z0-9+/]{12,}={0,2}(?![A-Za-z0-9._-])"),
    (("cookie",), r"((?i:\b(?:set-)?cookie)\\{0,8}[\"']?\s?:\s?\\{0,8}[\"']?)(?=[^\s\"'=]+=)[^\"'\n]+"),
    (("x-", "token:", "key:"), r"(\b(?i:x-[a-z-]{0,40}(?:key|token|secret|auth|signature))\s?:\s?)[^\s\"',]{4,}"),
    (("wandb",), r"((?i:wandb)[^\n]{0,40}?(?i:login|key)[^\n]{0,20}?\b)[0-9a-f]{40}\b"),
    (("login",), r"(\blogin\s+\S+\s+password\s+)\S+"),  # .netrc
    (("hooks.slack.com",), r"(https?://hooks\.slack\.com/(?:services|workflows|triggers)/)[A-Za-z0-9/_-]+"),
    (("discord",), r"(https?://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/)[A-Za-z0-9/_-]+"),
    (
        ("webhook.office.com", "logic.azure.com"),
        r"(https?://[\w.-]{1,80}\.(?:webhook\.office|logic\.azure)\.com[:0-9]*/)[^\s\"'<>]+",
    ),
    (("api.telegram.org",), r"(https?://api\.telegram\.org/bot)[^\s\"'<>/]+"),
    (
        ("feishu", "larksuite"),
        r"(https?://open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v[0-9]/hook/)[A-Za-z0-9-]+",
    ),
    (("x-honeycomb-team",), r"((?i:x-honeycomb-team)\s?[=:]\s?)[^\s,;\"']+"),
    (("/t/",), r"(https?://[^\s\"'<>]{1,200}/t/)(?:[a-z]{2}-[0-9a-f-]{36}|[0-9a-f]{32,64})(?=/)"),  # a channel of conda
    # ~/.pgpass: host, port, database, user, password.
    ((":5432:", ":6432:"), r"((?<![\w.*-])[\w.*-]{1,200}:[56]432:[\w.*-]{1,64}:[\w.@-]{1,64}:)[^\s\"']+"),
    (("sig=",), r"(\bsig=)[A-Za-z0-9%+/]{20,}={0,2}(?=&s[a-z]=)"),
    (("create secret",), r"(--from-literal[ =][\"']?[\w.-]{1,80}=)[^\s\"']+"),
    # ODBC, where `PWD` is no working directory.
    (("uid=", "user id="), rf"(\b{_USER}[^;\"'\n]{{0,128}};\s?(?i:pwd|password)\s?=\s?){_ODBC}"),
    (("uid=", "user id="), rf"((?i:pwd|password)\s?=\s?){_ODBC}(?=;\s?{_USER})"),
    (
        _FOREIGN_GATES,
        rf"((?i:{_FOREIGN_NAMES})\\{{0,8}}[\"']?\s?(?:[:=\uff1a]|\\{{1,8}}uff1a)\s?\\{{0,8}}[\"']?)(?!<redacted>)"
        r"[^\s\"',;\uff0c\\]{4,}",
    ),
    (("hooks.zapier.com",), r"(https?://hooks\.zapier\.com/hooks/catch/)[A-Za-z0-9/_-]+"),
    (("maker.ifttt.com",), r"(https?://maker\.ifttt\.com/trigger/[^\s/]{1,80}/(?:json/)?with/key/)[A-Za-z0-9_-]+"),
    (("auth plain", "auth login"), r"(\b(?i:auth (?:plain|login)) )[A-Za-z0-9+/]{8,}={0,2}"),
    # A user and a password in brackets: `auth=("ada", "X")`.
    (
        ("auth", "cred", "login"),
        r"((?i:\b(?:\w{0,20}auth|credentials?|creds|login))\s?=?\s?\(\s?[\"'][^\"'\n]{1,64}[\"'],\s?[\"'])[^\"'\n]+",
    ),
    (("sentry", "ingest"), r"(https?://)[0-9a-f]{32}(?=@)"),
    (
        ("?", "&"),
        r"([?&](?i:x-(?:amz|goog)-(?:signature|credential|security-token)|sig|signature|AWSAccessKeyId|key|code|token"
        r"|access_token|api_?key|auth|password|secret|client_secret|sas)=)[^&\s\"'<>#]{6,}",
    ),
)
