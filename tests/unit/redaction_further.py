"""Secrets that stand in pieces, behind escapes, at logins and in what programs refuse: the third part of
`redaction_corpus.py`."""

from __future__ import annotations

from redaction_corpus import HEX32, HEX40, HEX64, LETTERS
from redaction_written import BLOB

KEY = LETTERS[:36]
UUID = "8a1a4499-1f1c-24a0-60fd-a252e4ced3ea"
HALF, OTHER = LETTERS[:18], LETTERS[18:36]
WORDS = "ozone drill grab fiber curtain grace pudding thank cruise elder eight picnic"

# (the text, the part that must not be seen)
FURTHER_SECRETS: list[tuple[str, str]] = [
    # escapes within or around a name or a value
    (f"\x1b[01;31m\x1b[KWANDB_API_KEY\x1b[m\x1b[K={KEY}", KEY),
    (f"api_key\x1b[m\x1b[K: \x1b[0K{KEY}", KEY),
    (f"api_\x1b[1mkey\x1b[0m={HALF}\x1b[7m{OTHER}\x1b[0m", OTHER),
    (f"secret\x1b(B\x1b[m = {KEY}", KEY),
    (f"tok\u200ben={KEY}", KEY),
    (f"\u2067password\u2069: {KEY}", KEY),
    (f"pass\u00adword={KEY}", KEY),
    (f"password\x08\x08={KEY}", KEY),
    (f"\x9b31mpassword\x9b0m={KEY}", KEY),
    (r'{"log": "\u001b[36mapi_key\u001b[0m=\u001b[35m' + KEY + r'\u001b[0m"}', KEY),
    # on another line
    (f"> Authorization: Bearer\n> {KEY}", KEY),
    (f"[rank2]: authorization: Bearer\n[rank2]:   {KEY}", KEY),
    (f"WANDB_API_KEY={HALF}\\\n{OTHER} python train.py", OTHER),
    (f"[rank0]: export HF_TOKEN={HALF}\\\n[rank0]: {OTHER}", OTHER),
    (f"7: export OPENAI_API_KEY=\\\n8: {KEY}", KEY),
    (f"--api-key\n{KEY}\n--lr\n0.1", KEY),
    (f"[rank1]: --db-password\n[rank1]: {KEY}", KEY),
    (f"args:\n- train.py\n- --hub-token\n- {KEY}\n- --lr", KEY),
    (f'args:\n  - "--hub-token"\n  - "{KEY}"\n', KEY),
    # sessions
    (f"sid={KEY}; HttpOnly", KEY),
    (f"JSESSIONID={HEX32.upper()}.worker1", HEX32.upper()),
    (f"PHPSESSID={KEY}", KEY),
    (f"Set-Cookie2 sessionid={KEY}", KEY),
    (f"_lab_session={HEX32}", HEX32),
    (f"connect.sid={KEY}", KEY),
    # what programs refuse
    (f"1 validation error for Config\nhub_token\n  too short [type=x, input_value='{KEY}', input_type=str]", KEY),
    (f"[rank0]: 1 error\n[rank0]: db.password\n[rank0]:   too long [input_value='{KEY}', input_type=str]", KEY),
    (f"train.py: error: argument --hub-token: invalid Token value: '{KEY}'", KEY),
    (f"error: argument -k/--api-key: invalid choice: '{KEY}' (choose from a, b)", KEY),
    (f"Value '{KEY}' of type 'str' could not be converted to Integer\n    full_key: hub.token\n    object_type=X", KEY),
    # commands
    (f"echo {KEY} | gh auth login --with-token", KEY),
    (f"printf '%s' '{KEY}' | sudo cryptsetup luksOpen /dev/sdb x", KEY),
    (f"gh auth login --with-token <<< {KEY}", KEY),
    ("sudo su -c id <<< 'Hunter2x!'", "Hunter2x!"),
    (f"vault kv put kv/train a={HALF} note={OTHER}", OTHER),
    (f"aws ssm put-parameter --name x --type SecureString --value {KEY}", KEY),
    (f"aws ssm put-parameter --name x --value '{KEY}' --type SecureString", KEY),
    (f"flyctl secrets set ONE={HALF} TWO={OTHER}", OTHER),
    (f"swanlab login -k {KEY}", KEY),
    (f"snowsql -a x -u ada -p{HALF}", HALF),
    (f"sqlplus -s ada/{HALF}@db.example", HALF),
    (f"usermod -p '{HALF}' ada", HALF),
    (f"net use X: \\\\nas\\data {HALF} /user:ada", HALF),
    (f"net use \\\\host.example\\data {HALF} /user:ada", HALF),
    (f"wpa_passphrase lab {HALF}", HALF),
    (f"rsync --password-file=<(echo {HALF}) a rsync://h/m", HALF),
    # names and pairs
    (f"base dc=x\nbindpw {HALF}", HALF),
    (f"jdbc:oracle:thin:ada/{HALF}@db:1521:X", HALF),
    (f"broker ada:{HALF}@mq.example:5672", HALF),
    ("username: ada, pw: hunter2x", "hunter2x"),
    (f"pass_phrase={KEY}", KEY),
    (f"SIGNING_SALT={KEY}", KEY),
    (f"rtmp://live.example/a?streamkey={KEY}", KEY),
    (f"AKIA{'ABCD2345' * 2}:{LETTERS[:40]}", LETTERS[:40]),
    (f"export HF_TOKEN='{HALF}''{OTHER}'", OTHER),
    (f"export HF_TOKEN=\"{HALF}\"'{OTHER}'", OTHER),
    # statements
    (f"f = Fernet(b'{BLOB}')", BLOB),
    (f"jwt.encode(payload, '{HALF}', algorithm='HS256')", HALF),
    (f'claims = jwt.decode(token, "{HALF}", ["HS256"])', HALF),
    (f"hmac.new(b'{HEX64}', text, sha256)", HEX64),
    (f"mnemonic: {WORDS}", "curtain grace"),
    (f'seed phrase = "{WORDS}"', "curtain grace"),
    (f'Authorization: Digest username="ada", realm="a", nc=00000001, response="{HEX32}"', HEX32),
    (f"PAGERDUTY_ROUTING_KEY={HEX32}", HEX32),
    (f'{{"routing_key": "{HEX32}"}}', HEX32),
    # workflows
    (f"::add-mask::{HALF}", HALF),
    (f"[rank0]: ::add-mask::{HALF} {OTHER}", OTHER),
    (f"##vso[task.setvariable variable=x;issecret=true]{HALF}", HALF),
    (f"codecov -t {UUID}", UUID),
    (f"codecovcli upload-process -t {UUID} --flag unit", UUID),
    (f"bash <(curl -s https://codecov.io/bash) -t {UUID}", UUID),
    # blocks
    (f"db_note: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  {HEX64}\n  {HEX40}\nport: 5432", HEX40),
    (f"[rank0]: $ANSIBLE_VAULT;1.2;AES256;dev\n[rank0]: {HEX64}\n[rank0]: {HEX64[:32]}\nend", HEX64[:32]),
    (f'variable "hf_token" {{ default = "{HALF}" }}', HALF),
    (f'variable "db_password" {{\n  type      = string\n  sensitive = true\n\n  default   = "{HALF}"\n}}', HALF),
    (f"passphrase: >-\n  {HALF} {OTHER}\n", OTHER),
    (f"db:\n  password: |\n    {HALF} mind\n    the {OTHER}\n\n    gap\n  port: 5432", OTHER),
    (f"[rank1]: - password: |\n[rank1]:     {HALF} mind\n[rank1]:     the {OTHER}\n[rank1]:   port: 1", OTHER),
    (f"client-key-data: {BLOB * 4}", BLOB),
    # by what beside them tells
    ("vault write auth/approle/login role-id=1 --secret-id s9d8f7g6h5j4k3", "s9d8f7g6h5j4k3"),
    ("train.py --secret-id=s9d8f7g6h5j4k3", "s9d8f7g6h5j4k3"),
    (f'{{"auth": ["ada", "{HALF}"]}}', HALF),
    ('{"basic_auth": ["ada", "hunter2!Xy"]}', "hunter2!Xy"),
    (f'{{"variable": "DB_PASSWORD", "content": "{HALF}"}}', HALF),
    ("recovery code: KQZM-TRPX-WNVB", "KQZM-TRPX-WNVB"),
    ("Your recovery code is 8K2M-9X4P", "8K2M-9X4P"),
]

FURTHER_HARMLESS = [
    f"token_hash={HEX40}", f"data_token_hash: {HEX64}", "key: 99697129ab2deb71 shard 3", "key=0x7f3ab2c19d00",
    f"api_key_hash={HEX64}", "sid=12 speaker=ada", "sid: T2334", "session_id=5", "inside=" + LETTERS[:20],
    "tmux_session=" + LETTERS[:20], "salt=3",
    "1 validation error for Config\nlr\n  not a number [input_value='x7Kd92mQ']",
    "error: argument --lr: invalid float value: 'x7Kd92mQpP3aZ9Lw'",
    "usage: train.py [-h]\n  --api-key\n        The key of the hub to use\n  --token TOKEN",
    "--password\n    asks for it", "--auth\n--lr 0.1",
    "echo done | tee log", "cat <<< done", "vault status", "aws ssm put-parameter --type String --value plain",
    "image registry.example/a:24.05-py3@sha256:" + HEX64, "10.0.0.1:4001@worker:29500", "rank:3@node-1:29500",
    "emoji \U0001f468\u200d\U0001f4bb and \u0645\u06cc\u200c\u0634\u0648\u062f", "a\x08b\x0cc",
    "re.compile('\\x1b[0m')", "mnemonic: loss of the head", "hmac.new(key, text, sha256)", "Fernet(key)",
    "killed by sig=SIGTERM", "sig=SIGRTMIN+1 rank=3", "routing_key=orders.created", 'response="ok"',
    "recovery code: 17", "recovery code: ERROR", "error code: KQZM-TRPX",
    "jwt.decode(token, key)", "the argument --token: invalid value",
    "::add-mask::$HF_TOKEN", "::add-mask::${{ secrets.HF_TOKEN }}", "::group::" + LETTERS[:20],
    "##vso[task.setvariable variable=epoch]" + "17 of 90", "codecov -t $CODECOV_TOKEN",
    "codecov -f coverage.xml -F unit",
    "codecov --flags unit -n train-" + UUID, "job -t " + UUID, "$ANSIBLE_VAULT;1.1;AES256 is the header of a vault",
    "digest of the vault:\n  " + HEX64[:30], 'variable "max_tokens" { default = "4096" }',
    'variable "hf_token" {\n  type = string\n}\nvariable "region" {\n  default = "eu-central-1"\n}',
    'variable "token_path" { default = "/run/secrets/hf" }', 'variable "db_password" { default = "changeme" }',
    "one of the variables needed for gradient computation has been modified by default",
    "note: |\n  the pass over all data\n  took 3 h", "tokens: |\n  <s> the end </s>\n  and so on",
    "password: |\nuser: ada\nport: 1", "client-certificate-data: " + LETTERS[:10], "train-key-data: 17 rows",
    "aws secretsmanager get-secret-value --secret-id prod/db", "--secret-id train-secret-2",
    "--secret-id=hf2024token1",
    '{"auth": ["basic", "oauth2"]}', '{"auth": ["scram-sha-256", "scram-sha-512"]}', '{"auth": ["ada", "grace"]}',
    '{"variable": "loss", "content": "x7Kd92mQpP3aZ9Lw of 3"}',
    '{"name": "get_token", "content": "the token of the word"}',
]  # fmt: skip
