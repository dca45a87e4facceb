"""Ways to write a name and its secret, and what only looks like one: the second part of `redaction_corpus.py`."""

from __future__ import annotations

from redaction_corpus import HEX32, LETTERS, b64

BLOB = b64(LETTERS[:30])
HASH = LETTERS[:43]
PASSWORD = "Ob7,QwTD*MXFK"

# (the text, the part that must not be seen)
WRITTEN_SECRETS: list[tuple[str, str]] = [
    # tables that are drawn or marked up, and signs of other alphabets
    (f"| api_key | {BLOB} |", BLOB),
    (f"| password | {BLOB} |", BLOB),
    ("| db password | hunter2x |", "hunter2x"),
    (f"\u2502 api_key \u2502 {BLOB} \u2502", BLOB),
    (f"api_key   \u2502   {BLOB}", BLOB),
    (f"<tr><td>API_KEY</td><td>{BLOB}</td></tr>", BLOB),
    (f"<tr>\n<td>api_key</td>\n<td class='x'>{BLOB}</td>", BLOB),
    (f"<th>password</th> <td>{BLOB}</td>", BLOB),
    (f"WANDB_API_KEY\uff1a{BLOB}", BLOB),
    ("password \uff1a hunter2x", "hunter2x"),
    ("password\uff1a\nhunter2x", "hunter2x"),
    (f"api_key \u2192 {BLOB}", BLOB),
    # texts of several lines
    (f'password: """\n{BLOB}\n"""', BLOB),
    (f'token = """\n{BLOB}\n"""', BLOB),
    (f"token = '''\n\n{BLOB}\n'''\n", BLOB),
    # manifests of a cluster
    (f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\ndata:\n  uri.txt: {BLOB}\n", BLOB),
    (f"apiVersion: v1\ndata:\n  site: {BLOB}\nkind: Secret\nmetadata:\n  name: x\n", BLOB),
    ("kind: Secret\nstringData:\n  site.toml: |\n    user = ada\n    pin = hunter2\n", "hunter2"),
    (f"items:\n- apiVersion: v1\n  data:\n    conn: {BLOB}\n  kind: Secret\nkind: List\n", BLOB),
    (f"---\nkind: Secret\ndata: {{conn: {BLOB}}}\n", BLOB),
    (f"[rank0]: kind: Secret\n[rank0]: data:\n[rank0]:   conn: {BLOB}\n", BLOB),
    ('{"apiVersion": "v1", "data": {"a": "YQ==", "conn": "' + BLOB + '"}, "kind": "Secret"}', BLOB),
    ('{\n  "kind": "Secret",\n  "stringData": {\n    "conn": "hunter2"\n  }\n}', "hunter2"),
    # a name and its value in fields of their own
    ('{"value":"' + HEX32 + '","name":"DD_API_KEY"}', HEX32),
    ('{"Name": "DB_PASSWORD", "Value": "hunter2"}', "hunter2"),
    ('{"Value": "hunter2", "Key": "DB_PASSWORD"}', "hunter2"),
    ('{"key":"PIP_TOKEN","masked":true,"value":"' + HEX32 + '"}', HEX32),
    ("- value: hunter2\n  name: DB_PASSWORD", "hunter2"),
    ("- name: MY_TOKEN\n  protected: false\n  value: " + HEX32, HEX32),
    ("{name=DB_PASSWORD, value=hunter2}", "hunter2"),
    ('env {\n  name  = "DB_PASSWORD"\n  value = "hunter2"\n}', "hunter2"),
    ("ParameterKey=DbPassword,ParameterValue=hunter2", "hunter2"),
    ("<value>hunter2</value>\n  <name>db.password</name>", "hunter2"),
    ("<key>ApiToken</key>\n\t<string>" + HEX32 + "</string>", HEX32),
    ('<add value="hunter2" key="DbPassword"/>', "hunter2"),
    # changes
    ('~ auth_token         = "old-expired" -> "' + LETTERS[:32] + '"', LETTERS[:32]),
    ('~ api_key = null -> "' + LETTERS[:32] + '"', LETTERS[:32]),
    ("password: 'one1' → 'hunter2'", "hunter2"),
    ('"password": {"old": "x", "new": "hunter2"}', "hunter2"),
    ('password changed from "one1" to "hunter2"', "hunter2"),
    # calls and statements
    ('setenv("CLEARML_API_SECRET_KEY", "' + LETTERS[:40] + '")', LETTERS[:40]),
    ("pushenv('DB_PASSWORD','hunter2')", "hunter2"),
    ("setenv DB_PASSWORD hunter2", "hunter2"),
    ('setenv("DB_PASSWORD", [[hunter2]])', "hunter2"),
    ('os.environ.setdefault("DB_PASSWORD", "hunter2")', "hunter2"),
    ('System.setProperty("db.password", "hunter2")', "hunter2"),
    ('std::env::set_var("DB_PASSWORD", "hunter2");', "hunter2"),
    ("ENV['DB_PASSWORD'] ||= 'hunter2'", "hunter2"),
    ('$ENV{DB_PASSWORD} = "hunter2";', "hunter2"),
    ("set ::env(DB_PASSWORD) {hunter2}", "hunter2"),
    ('set -gx DB_PASSWORD "hunter2"', "hunter2"),
    ("ENV DB_PASSWORD hunter2", "hunter2"),
    ("gh secret set DB_PASSWORD --body hunter2", "hunter2"),
    ("#define DB_PASSWORD " + '"hunter2"', "hunter2"),
    ("builder.password(" + '"hunter2")', "hunter2"),
    ("│ DB_PASSWORD │ hunter2x │", "hunter2x"),
    # sentences
    ("Please use the following password to proceed to installation:\n\n" + HEX32 + "\n\nThis may", HEX32),
    (f"A temporary password is generated for root@localhost: {PASSWORD}", PASSWORD),
    (f"Password for the elastic user (reset it with `bin/x -u elastic`):\n  {PASSWORD}\n", PASSWORD),
    (f"The token has been created:\n{HEX32}\n", HEX32),
    (f"Copy your access token now. You will not be able to see it again!\n{HEX32}", HEX32),
    (f"Save this secret, it will not be shown again: {HEX32}", HEX32),
    (f"Use `{PASSWORD}` as your password", PASSWORD),
    (f"The root password is now: {PASSWORD}", PASSWORD),
    (f"Log in with admin / {PASSWORD}", PASSWORD),
    ("Your recovery code: " + HEX32, HEX32),
    # what is kept of passwords, tickets and cookies
    (f"login02/unix:10  MIT-MAGIC-COOKIE-1  {HEX32}", HEX32),
    (f"xauth add :1 . {HEX32}", HEX32),
    (f"ada:$6$rounds=5000$abcdefgh${HASH}:19000:0:99999:7:::", HASH),
    (f"$2b$12${HASH}", HASH),
    (f"$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ${HASH}", HASH),
    (f"pbkdf2_sha256$260000$abcDEFghi${HASH}=", HASH),
    ("ada:{SSHA}" + BLOB, BLOB),
    (f".example.org\tTRUE\t/\tTRUE\t1893456000\tsid\t{HASH}", HASH),
    (f"sent MUNGE:{BLOB}:", BLOB),
    ("kinit ada@EXAMPLE.ORG <<< hunter2", "hunter2"),
    ("requirepass hunter2", "hunter2"),
    # databases
    ("[SQL: CREATE USER 'mlflow'@'%' IDENTIFIED BY 'hunter2']", "hunter2"),
    ("alter user x identified with sha256_password by 'hunter2'", "hunter2"),
    ("CREATE ROLE x LOGIN PASSWORD 'hunter2'", "hunter2"),
    ("SET PASSWORD FOR 'x'@'%' = 'hunter2'", "hunter2"),
    ("CREATE SECRET s (TYPE S3, KEY_ID 'x', SECRET 'hunter2')", "hunter2"),
    ("mysql('h:3306', 'db', 't', 'user', 'hunter2')", "hunter2"),
    # quotes of all languages
    ("passphrase = '''hunter2'''", "hunter2"),
    ('password = R"x(hunter2)x"', "hunter2"),
    ('password = r#"hunter2"#', "hunter2"),
    ("password = $'hunter2'", "hunter2"),
    ("password = “hunter2”", "hunter2"),
    ("password <<EOF\nhunter2\nEOF", "hunter2"),
    ("api_key: |2\n    hunter2x\n", "hunter2x"),
    ("password: Optional[str] = 'hunter2'", "hunter2"),
    ('password = SecretStr("hunter2")', "hunter2"),
    ("password = &quot;hunter2&quot;", "hunter2"),
    ('password="hunter2', "hunter2"),
    ('api_password: SecretStr = Field(default="hunter2")', "hunter2"),
    ("ldap_default_authtok = hunter2", "hunter2"),
    (
        '{\n "Credentials": {\n  "AccessKeyId": "ASIA'
        + LETTERS[:16].upper()
        + '",\n  "SecretAccessKey": "'
        + HASH
        + '"}}',
        HASH,
    ),
    (f"$env:AZURE_DEVOPS_EXT_PAT = '{HEX32}'", HEX32),
]

WRITTEN_VARIABLES: list[tuple[str, str]] = [
    ("DET_USER_TOKEN", "v2" + ".public." + LETTERS), ("GITLAB_USER_TOKEN", HEX32), ("SLACK_BOT_USER_TOKEN", LETTERS),
    ("NEXT_TOKEN", LETTERS), ("userToken", LETTERS[:20]), ("END_USER_TOKEN", "hunter2x"),
]  # fmt: skip

WRITTEN_HARMLESS_VARIABLES: list[tuple[str, str]] = [
    ("INIT_PRNG_KEY", "[0 42]"), ("RNG_KEY", HEX32), ("USER_TOKEN", "<|user|>"), ("START_TOKEN", "2"),
    ("DB_SECRET_ARN", "arn:aws:secretsmanager:eu-west-1:482910337712:secret:mlflow/db-Ab3dEf"),
    ("KMS_KEY_ID", "arn:aws:kms:eu-west-1:482910337712:key/b1cc5438-fdd2-4ebf-acbd-0cd1c385ed18"),
    ("IMAGE_TOKEN", "<image>"), ("NEXT_TOKEN", "hello"), ("DROPOUT_KEY", "[1, 2]"),
]  # fmt: skip

WRITTEN_HARMLESS: list[str] = [
    'setenv("OMP_NUM_THREADS", "8")', "setenv HF_TOKEN $MY_TOKEN", 'os.environ.get("HF_TOKEN", "")',
    'os.getenv("WANDB_API_KEY", "not set")', 'parser.add_argument("--token", "-t", help="the token")',
    'getattr(config, "pad_token", "<pad>")', 'd.setdefault("token", "hello")', 'cfg.set("sort_key", "val_loss")',
    "export HF_TOKEN before you run the script", "ENV TOKENIZERS_PARALLELISM false",
    'required = ["API_KEY", "DB_PASSWORD"]', '{"name": "num_tokens", "value": 512}', '{"value": 0.5, "name": "loss"}',
    "- name: EPOCHS\n  value: run_2024x11\n- name: HF_TOKEN\n  valueFrom:\n    secretKeyRef:\n      name: hf",
    "kind: Secret\nmetadata:\n  name: x\n---\nkind: ConfigMap\ndata:\n  a: hello world\n",
    '{"kind":"Secret","metadata":{"name":"x"}},{"kind":"ConfigMap","data":{"lr":"0.1"}}',
    "kind: ServiceAccount\nsecrets:\n- kind: Secret\n  name: regcred\n- name: other",
    "token_dim: 64 -> 128", "renamed token -> tokens", 'pad_token: "<pad>" -> "[PAD]"',
    "A password is required to continue:", "Enter password for user ada:",
    "password authentication failed for user: ada",
    "Password reset link sent to: ada@example.org", "The API key is read from: WANDB_API_KEY",
    "Use the following token file:\n/home/ada/.token", "Generated 512 tokens in 3.2s:\nOnce upon a time",
    "using password authentication", "Error from server (NotFound): secrets \"hf-token\" not found",
    'secret "wandb-creds" not found', "Nodes are identified by their GUID", "jobs are identified by 'rank'",
    "CREATE TABLE users (id INT, password VARCHAR(64) NOT NULL)", "CREATE USER 'x' IDENTIFIED BY '%s'",
    "MIT-MAGIC-COOKIE-1 is not supported", "echo $1 $2 $3", "kinit: Password incorrect while getting credentials",
    'password = getpass.getpass("Password: ")', 'password: str = ""', "token: str = \"<pad>\"", 'password == ""',
    "if access_token == self.dummy_token:", 'class Token:\n    """A token of the text."""', 'Secret("db-creds")',
    "Token: '#dddddd'", "rng_key = [0, 42]", f"[fx_graph_cache] cache miss for key {LETTERS[:40].lower()}",
    f"cache hit key={HEX32}", f"triton cache key: {HEX32}", f"(key=ray:gcs:node:{HEX32})",
    '{"\\u0120password": 9206, "\\u0120secret": 5123, "\\u0120token": 11241}', "##password 3344",
    "| HF_TOKEN | str | the token of the hub |", "Log in with SSO: https://sso.example.org",
    "encryption key id: 1a2b3c4d-1a2b", "auth key file: /etc/munge/munge.key",
    "token server listening on: node-a12:8080",
    "<key>CFBundleVersion</key><string>1.2.3</string>", "Param name: blocks.0.attn.key.weight, value: 1.234e-05",
    'headers = {"Authorization": f"Bearer {api_key}"}', "  --wandb-api-key TEXT  API key for W&B  [env var: X]",
    'db_password: SecretStr = Field(..., alias="DB_PASSWORD")', 'generated token: "Hello" (id=9906)',
    'top-5 tokens: [" the": 0.312, " password": 0.021, "key": 0.003]', 'token: "##ing"',
    'export WANDB_API_KEY="${WANDB_API_KEY:?not set}"',
    'TCPStore get key "worker/rank_3", value "10.0.0.1:1234"',
    "| key | value |", "| tokens | 12,345 |", "| token | embedding |", "\u2502 password \u2502 str \u2502",
    "<td>password</td><td>required</td>", "<td>tokens/s</td><td>12345.6</td>",
    "| key | d41d8cd98f00b204e9800998ecf8427e |",
    "token \u2192 embedding", "num_tokens \u2192 512", "| pass | 12 | | fail | 0 |",
]  # fmt: skip
