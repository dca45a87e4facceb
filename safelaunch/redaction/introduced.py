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

_MARK = "[\ue000-\ue00f]?"  # see `told.MARKS`
# The next line, behind what a log puts in front.
_NEXT = rf"[ \t]{{0,16}}\r?\n{_MARK}(?:\[[\w .:-]{{1,40}}\]:?|[0-9]{{1,6}}[:|]|[<>*](?=[ \t]))?[ \t]{{0,80}}"
# How databases write `CREATE USER` and its like.
_MADE = r"(?i:\b(?:(?:create|alter)\s+(?:user|role|login|server|secret|database|foreign)\b|options\s?\()"
_BY = r"(?:by|as)\s+(?:(?:password|values)\s+)?"
_WITH = r"(?:with\s+[\w'\"`]{1,60}\s+)?"
# What crypt(3), and what programs like it, put in front of a password that they have hashed.
_CRYPT = r"(?:[1567y]|2[abxy]|gy|sha1|apr1|argon2[a-z]{1,2}|scrypt|bcrypt|pbkdf2(?:-sha[0-9]{1,3})?)"

# What a line in lower case holds of passwords that are hashed, of tickets, and of databases.
KEPT_HINTS = (
    r"\$(?:[1567y]|2[abxy]|gy|sha1|apr1|argon2[a-z]{1,2}|scrypt|bcrypt|pbkdf2[a-z0-9-]{0,8})\$",
    r"pbkdf2[_:]", r"scrypt:", r"\{s?sha[0-9]{0,3}\}", r"\{ssha[0-9]{0,3}\}", r"\{crypt\}", r"\{s?md5\}", r"scram-sha-",
    r"aad3b435b51404ee", r"magic-cookie", r"xdm-auth", r"xauth",
    r"munge:[a-z0-9+/]{20}",
    r"ttrue\\{1,8}t/", r"tfalse\\{1,8}t/", r"true\t[\ue000-\ue00f]?/", r"false\t[\ue000-\ue00f]?/",
    r"kinit", r"requirepass", r"masterauth", r"\+@all", r"'md5[0-9a-f]{32}", r"\"md5[0-9a-f]{32}", r"\*[0-9a-f]{40}",
    r"identified", r"pragma (?:re|hex)?key", r"pgp_sym", r"s3\(", r"mysql\(", r"postgresql\(",
    r"remote\(", r"remotesecure\(",
    r"password\s{1,3}[ne]?'", r"secret\s{1,3}[ne]?'", r"token\s{1,3}[ne]?'", r"_key\s{1,3}[ne]?'", r"set password",
)  # fmt: skip

# Group 1 stays, the rest of the match goes. In front of each, what a text has to hold in lower case.
INTRODUCED: tuple[tuple[tuple[str, ...], str], ...] = (
    # RFC 3986, 3.2.1. A password may hold what it must not: "/" where no port can be meant, "@" and "#".
    (("://",), r"(://)(?=[^/\s:@\"'<>]*:)[^/\s\"'<>]*(?:@[^/\s\"'<>]*)*(?=@)"),
    (("://",), r"(://)[^/\s:@\"'<>\[\]]{0,64}:(?![0-9]{1,5}/)[^\s\"'<>@]{1,128}(?=@[\w.-])"),
    (_DATABASE_HINTS, rf"({_DATABASES}(?:\+\w{{1,20}})?://)[^/\s:@\"'<>]{{0,64}}:[^\s\"'<>@]{{1,128}}(?=@)"),
    (("://",), r"(://)[A-Za-z0-9_-]{20,}(?=@)"),
    (
        ("authorization",),
        r"((?i:authorization)\\{0,8}[\"']?\s{0,3}[:=]\s{0,3}\\{0,8}[\"']?(?!(?:\w+[ \t]+)?(?:\*{2}|\$|\[|\{\w)"
        r"|[rbfRBF]{1,2}\\{0,8}[\"']|(?i:digest)\s{1,3}\w+=)"
        r"(?i:(?:bearer|basic|token|digest|apikey|negotiate|aws4-hmac-sha256)"
        rf"(?:{_NEXT}|\s+))?)[^\s\"',\\]+",
    ),
    (
        ("bearer",),
        r"(\b(?i:bearer)\\{0,8}[\"']?[\s=:]{1,3}\\{0,8}[\"']?)(?=[A-Za-z0-9._~+/-]{0,200}[0-9])[A-Za-z0-9._~+/-]{16,}=*",
    ),
    # Digest (RFC 7616): passwords are guessed from it.
    (("response=",), r"(\bresponse=\\{0,8}\")[0-9a-f]{32}(?:[0-9a-f]{32})?(?=\\{0,8}\")"),
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
    (("bindpw", "rootpw"), r"(\b(?i:bindpw|(?:olc)?rootpw)[ \t]{1,8})[^\s\"':=]{4,}"),
    (("jdbc:oracle",), r"(\bjdbc:oracle:\w{1,10}:[^\s/@\"']{1,64}/)[^\s@\"']+(?=@)"),
    (("akia", "asia"), r"(\bA[KS]IA[0-9A-Z]{16}:)[A-Za-z0-9/+]{30,}={0,2}"),
    (
        ("<(",),
        r"((?i:passw|token|secret|key|auth|cred)[\w-]{0,30}[ =]<\((?:echo|printf)(?: -n)? [\"']?)[^\s\"')$]+",
    ),
    # Statements whose argument is a key.
    (("fernet",), r"(\bFernet\(\s?(?:key=)?b?\\{0,8}[\"'])[^\"'\n\\]{16,}"),
    (("jwt",), r"(\bjwt\.(?:en|de)code\([^\n,\"']{1,200},\s?(?:key=)?b?\\{0,8}[\"'])[^\"'\n\\]{6,}"),
    (("hmac",), r"(\bhmac\.(?:new|digest)\(\s?(?:key=)?b?\\{0,8}[\"'])[^\"'\n\\]{6,}"),
    # The words of a wallet (BIP 39 has 12 to 24).
    (
        ("mnemonic", "phrase"),
        r"((?i:\b(?:mnemonic|(?:seed|recovery)[ _-]?phrase))\\{0,8}[\"']?(?: is)?\s?[:=]?\s{1,3}\\{0,8}[\"']?)"
        r"(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8}",
    ),
    # What workflows of GitHub and of Azure have masked in their logs.
    (("::add-mask::",), r"(::add-mask::)(?![$<{\s])[^\n\"'\\]{3,}"),
    (
        ("##vso[",),
        r"(?i)(##vso\[task\.setvariable [^\]\n]{0,200}issecret=true[^\]\n]{0,100}\])(?![$<{\s])[^\n\"'\\]{3,}",
    ),
    (("sentry", "ingest"), r"(https?://)[0-9a-f]{32}(?=@)"),
    (
        ("?", "&"),
        r"([?&](?i:x-(?:amz|goog)-(?:signature|credential|security-token)|sig|signature|AWSAccessKeyId|key|code|token"
        r"|access_token|api_?key|auth|password|secret|client_secret|sas)=)[^&\s\"'<>#]{6,}",
    ),
)
# The same, of what `KEPT_HINTS` finds.
KEPT: tuple[tuple[tuple[str, ...], str], ...] = (
    # ~/.Xauthority, and what `xauth` is given.
    (("magic-cookie", "xdm-auth"), r"((?i:mit-magic-cookie-1|xdm-authorization-1)[\s\"',]{1,8})[0-9a-fA-F]{16,128}"),
    (("xauth",), r"(\bxauth\b[^\n]{0,80} add \S{1,120} \S{1,40} )[0-9a-fA-F]{16,128}"),
    (("$",), rf"(\${_CRYPT}\$)[./A-Za-z0-9+=,$-]{{20,512}}"),
    (("pbkdf2", "scrypt:"), r"(\b(?:pbkdf2[_:]sha[0-9]{1,3}[:$]|scrypt:)[0-9:]{1,20}\$)[./A-Za-z0-9+=$]{16,512}"),
    (("{s", "{m", "{cr"), r"(\{(?i:s?sha(?:256|384|512)?|s?md5|crypt)\})[^\s\"',;]{20,}"),
    (("scram-sha-",), r"((?i:scram-sha-(?:1|256|512))\$[0-9]{3,7}:)[^\s\"']{20,}"),
    (("aad3b435b51404ee",), r"(:(?i:aad3b435b51404eeaad3b435b51404ee):)[0-9a-fA-F]{32}"),
    (("md5",), r"([\"']md5)[0-9a-f]{32}(?=[\"'])"),  # a role of PostgreSQL
    (("*",), r"((?<![\w*])\*)[0-9A-F]{40}(?![0-9A-Za-z])"),  # a user of MySQL
    (("munge:",), r"(\bMUNGE:)[A-Za-z0-9+/=]{20,}"),
    # A jar of cookies: seven fields, the last is the value.
    (
        ("true\t", "false\t"),
        rf"(\t{_MARK}(?:TRUE|FALSE)\t{_MARK}/[^\t\n]{{0,200}}\t{_MARK}(?:TRUE|FALSE)\t{_MARK}[0-9]{{1,12}}"
        rf"\t[^\t\n]{{0,200}}\t{_MARK})[^\s\"'\\]+",
    ),
    (("requirepass", "masterauth"), r"(\b(?i:requirepass|masterauth)[ \t]{1,8}[\"']?)(?![\"'\s])[^\s\"']+"),
    (("+@all",), r"(\buser \S{1,64} (?:on|off) (?:\S{1,64} ){0,4}>)\S+"),
    (
        ("identified",),
        r"(\bIDENTIFIED\s+(?:WITH\s+[\w'\"`]{1,60}\s+)?(?:BY|AS)\s+(?:(?:PASSWORD|VALUES)\s+)?\\{0,8}[\"'])"
        r"(?![%?:<])[^\"'\n\\]+",
    ),
    (
        ("identified",),
        rf"((?i:\b(?:create|alter|grant)\b[^\n;]{{0,200}}?\bidentified\s+{_WITH}{_BY})\\{{0,8}}[\"'])(?![%?:<])[^\"'\n\\]+",
    ),
    (("identified",), r"((?i:\b(?:create|alter)\s+user\s+\S{1,80}\s+identified\s+by\s+))(?![\"'%?:<\\])[^\s;\"']{4,}"),
    (("'",), r"(\b[A-Z_]{0,40}(?:PASSWORD|SECRET|TOKEN|_KEY)\s{1,3}[NE]?')(?![%?:<])[^'\n]+"),
    (
        ("'",),
        rf"({_MADE}[^\n;]{{0,200}}?(?:password|secret|token|api_key|access_key)\s{{1,3}}[ne]?)')(?![%?:<])[^'\n]+",
    ),
    (("set password",), r"((?i:\bset\s+password\b[^\n;=]{0,120}=\s?(?:password\s?\(\s?)?)[\"'])(?![%?:<])[^\"'\n]+"),
    (("set password",), r"((?i:\bset\s+password\s+)[\"'])(?![%?:<])[^\"'\n]+"),
    # `s3(URL, KEY, SECRET)`, `mysql(HOST, DATABASE, TABLE, USER, PASSWORD)`.
    (("s3(",), r"(\b(?i:s3|s3cluster|gcs)\(\s?'[^'\n]{0,300}'\s?,\s?'[^'\n]{1,128}'\s?,\s?')[^'\n]{12,}"),
    (
        ("mysql(", "postgresql(", "remote(", "remotesecure("),
        r"(\b(?:mysql|postgresql|remote|remoteSecure)\(\s?(?:'[^'\n]{0,200}'\s?,\s?){4}')[^'\n]+",
    ),
    (("pragma ",), r"((?i:\bpragma\s+(?:\w{1,30}\.)?(?:re|hex)?key\s?=\s?)[\"'])[^\"'\n]+"),
    (("pgp_sym",), r"(\b(?i:pgp_sym_(?:en|de)crypt)\([^\n,]{1,200},\s?')[^'\n]+"),
)
