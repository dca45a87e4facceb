"""What of a text may be handed to a colleague: secrets in known shapes and behind known names go, all else stays."""

from __future__ import annotations

import time

import pytest

from safelaunch import redaction
from safelaunch.redaction import arguments, text


def made(*parts: str) -> str:
    """A token of a known shape, put together here so that no scanner takes this file for a leak."""
    return "".join(parts)


LETTERS = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYz1cD3eF5gH7jK9"
HEX = "0123456789abcdef0123456789abcdef01234567"
JWT = made(
    "ey", "JhbGciOiJIUzI1NiJ9.", "ey", "JzdWIiOiIxMjM0NTY3ODkwIn0.", "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)
BLOCK = made(
    "-----BEGIN ", "RSA PRIVATE KEY-----\n", "MIIEpAIBAAKCAQEA7\nabcdef\n", "-----END ", "RSA PRIVATE KEY-----"
)

# (the text, the part of it that must not be seen)
SECRETS = [
    *[(f"error: {token} was refused", token) for token in (
        made("hf", "_", LETTERS[:34]),
        made("gh", "p_", LETTERS[:36]),
        made("gh", "o_", LETTERS[:36]),
        made("gh", "s_", LETTERS[:36]),
        made("github", "_pat_", LETTERS[:22], "_", LETTERS),
        made("gl", "pat-", LETTERS[:20]),
        made("gl", "rt-", LETTERS[:20]),
        made("sk", "-", LETTERS),
        made("sk", "-proj-", LETTERS, "_", LETTERS),
        made("sk", "-ant-api03-", LETTERS),
        made("sk", "_live_", LETTERS[:24]),
        made("rk", "_test_", LETTERS[:24]),
        made("whsec", "_", LETTERS[:32]),
        made("AKIA", "IOSFODNN7EXAMPLE"),
        made("ASIA", "IOSFODNN7EXAMPLE"),
        made("xox", "b-123456789012-123456789012-", LETTERS[:24]),
        made("xox", "p-123456789012-", LETTERS[:24]),
        made("xapp", "-1-A0123-", LETTERS[:24]),
        JWT,
        made("AI", "za", LETTERS[:35]),
        made("ya", "29.", LETTERS),
        made("GOC", "SPX-", LETTERS[:28]),
        made("npm", "_", LETTERS[:36]),
        made("pypi", "-AgEIcHlwaS5vcmc", LETTERS),
        made("dckr", "_pat_", LETTERS[:27]),
        made("SG", ".", LETTERS[:22], ".", LETTERS[:43]),
        made("r8", "_", LETTERS[:37]),
        made("gsk", "_", LETTERS[:46], "abcdef"),
        made("nv", "api-", LETTERS, LETTERS),
        made("dapi", HEX[:32]),
        made("dop", "_v1_", HEX, HEX[:24]),
        made("hvs", ".", LETTERS),
        made("tskey", "-auth-", LETTERS[:30]),
        made("shp", "at_", HEX[:32]),
        made("wandb", "_v1_", LETTERS),
    )],
    ("Authorization: Bearer abc.def-123", "abc.def-123"),
    ('{"Authorization": "Bearer abcdef123"}', "abcdef123"),
    ("headers={'authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
    ("sent Bearer 0123456789abcdefgh to the server", "0123456789abcdefgh"),
    ("Cookie: session=abcdef0123; other=1", "abcdef0123"),
    ("X-Api-Key: 0a1b2c3d4e", "0a1b2c3d4e"),
    (f"wandb login {HEX}", HEX),
    (f"wandb: using API key {HEX} from ~/.netrc", HEX),
    ("machine api.wandb.ai login user password s3cr3tvalue", "s3cr3tvalue"),
    ("curl -s -u bob:hunter2 https://x.example", "hunter2"),
    ("https://hooks.slack.com/services/T00/B00/XXXXYYYYZZZZ", "XXXXYYYYZZZZ"),
    ("https://discord.com/api/webhooks/123/abcDEF", "abcDEF"),
    ("https://b.s3.amazonaws.com/x?X-Amz-Expires=1&X-Amz-Signature=0011aabbccdd", "0011aabbccdd"),
    ("https://a.blob.core.windows.net/c?sv=2024&sig=abc%2Bdef%3D99", "abc%2Bdef%3D99"),
    ("connecting to postgres://ada:pa55@db.example/x", "pa55"),
    ("redis://:pa55word@cache:6379/0", "pa55word"),
    (f"git clone https://{LETTERS[:24]}@git.example/x.git", LETTERS[:24]),
    (f"loaded {BLOCK} ok", "MIIEpAIBAAKCAQEA7"),
    (BLOCK[:70], "MIIEpAIBAAKC"),
    ("train.py --api-key abc123 --lr 1e-4", "abc123"),
    ("train.py --api_key=abc123", "abc123"),
    ("train.py --token=qwerty", "qwerty"),
    ("train.py --hub-token qwertyuiop", "qwertyuiop"),
    ("train.py --wandb-key Zm9vYmFy", "Zm9vYmFy"),
    ('["train.py", "--password", "hunter2"]', "hunter2"),
    ("password=hunter2", "hunter2"),
    ('"password": "hunter2 with spaces"', "hunter2"),
    ("{'db_passwd': 'hunter2'}", "hunter2"),
    (r'{\"secret\": \"hunter2\"}', "hunter2"),
    ("export MY_SECRET='hunter2'", "hunter2"),
    ("WANDB_API_KEY=abcdef0123", "abcdef0123"),
    ("HF_TOKEN=abcdef0123", "abcdef0123"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "wJalrXUtnFEMI"),
    ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9vYmFyYmF6cXV4==;", "Zm9vYmFyYmF6cXV4"),
    ("//registry.npmjs.org/:_authToken=abcdef-0123", "abcdef-0123"),
    ("access_token: abcd1234efgh5678ijkl", "abcd1234efgh5678ijkl"),
    ("client_secret=abcd1234", "abcd1234"),
    ("requests.get(url, auth_token='abcd1234')", "abcd1234"),
    ("PGPASSWORD=abcd1234 psql", "abcd1234"),
    ("SMTP_PASS=abcd1234", "abcd1234"),
    ('{"message": {"message": "ValueError: x password=hunter2", "rank": 1}}', "hunter2"),
    ("cmd: 'train.py --api-key abc123 --lr 1'", "abc123"),
    ("url=x=y=password=hunter2", "hunter2"),
    ("raise ValueError('token=abcdefgh1 was refused')", "abcdefgh1"),
    # Lines within a text of JSON, once and twice.
    (r"login user password s3cr3tvalue\ncurl -s -u bob:hunter2 https://x.example", "hunter2"),
    (r"done\nCookie: session=abcdef0123; other=1", "abcdef0123"),
    (r"done\\nCookie: session=abcdef0123; other=1", "abcdef0123"),
    (r'{\"text\": \"{\\\"Authorization\\\": \\\"Bearer abcdef123\\\"}\"}', "abcdef123"),
    (r'{\\\"db_password\\\": \\\"hun ter2\\\"}', "hun ter2"),
    (BLOCK.replace("\n", "\\n"), "MIIEpAIBAAKCAQEA7"),
]  # fmt: skip

HARMLESS = [
    f"git commit {HEX}",
    f"wandb: git commit {HEX}",
    "/home/ada/keys/public/train.py:88 in train_step",
    "tensor([0.1234, 5.6789], device='cuda:0', dtype=torch.float32)",
    "TOKENIZERS_PARALLELISM=false",
    "max_tokens=512",
    "MAX_TOKENS=512",
    "num_tokens: 1,048,576",
    "tokens per second: 12345.6",
    "tokens=tensor([101, 2023, 102])",
    "train.py --tokenizer meta-llama/Llama-3-8B --lr 1e-4",
    "train.py --tokenizer-path /data/tokenizer.model",
    "train.py --max-tokens 4096",
    "train.py --eos-token </s> --pad-token <pad>",
    "pad_token='[PAD]', bos_token_id=1",
    'eos_token: "<|endoftext|>"',
    "next_token: hello",
    "KeyError: 'model.layers.0.self_attn.q_proj.weight'",
    "Missing key(s) in state_dict: \"fc.weight\"",
    "Unexpected token: identifier",
    "token=None, password=None, api_key=''",
    "password: ********",
    "api_key=<redacted>",
    "export HF_TOKEN=$MY_HF_TOKEN",
    "api_key=${API_KEY}",
    "ssh://git@github.com/org/repo.git",
    "git@github.com:org/repo.git",
    "tcp://127.0.0.1:29500",
    "see https://pytorch.org/docs/stable/distributed.html?highlight=all_reduce#torch",
    "http://node-a:8080/path?step=3&rank=2",
    "scikit-learn-sk-estimator-benchmark-suite",
    "the run sk-learn-estimator-benchmarks-of-everything",
    "sort_key=name, key=value, keys: 3",
    "ncclUniqueId 0x7f2a1c004b20 rank 3",
    "uuid GPU-8a1b2c3d-1234-5678-9abc-def012345678",
    f"sha256:{HEX}{HEX[:24]}",
    "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, Timeout(ms)=600000)",
    "eyJ is how base64 of JSON begins",
    "hf_hub_download(repo_id='x', filename='config.json')",
    "AKIA is a prefix",
    "author: Ada Lovelace",
    "bearer of bad news",
    "basic block 3",
    "credentials: /home/ada/.config/gcloud/key.json",
    "passed 12 tests; pass: 3",
    "the secretary of the board: Ada",
    "  File \"/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py\", line 1553, in _call_impl",
    "SSH_AUTH_SOCK=/tmp/ssh-abc/agent.42",
    "PWD=/home/ada OLDPWD=/tmp",
    "keyboard interrupt: ranks end",
]  # fmt: skip


def test_there_are_enough_of_both() -> None:
    assert len(SECRETS) >= 50
    assert len(HARMLESS) >= 30


@pytest.mark.parametrize(("value", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_secrets_go(value: str, secret: str) -> None:
    assert secret in value
    shown = text(value)
    assert secret not in shown
    assert "<redacted>" in shown
    assert text(shown) == shown


@pytest.mark.parametrize("value", HARMLESS)
def test_what_only_looks_like_one_stays(value: str) -> None:
    assert text(value) == value


@pytest.mark.parametrize(
    "said",
    ['if args.password != "hunter22":', 'os.getenv("PASSWORD") != "hunter22"',
     'os.getenv("DB_PASSWORD", "a1b2c3d4") == "hunter22"',
     'os.environ.get("PASSWORD", "hunter22") != "hunter22"'],
)  # fmt: skip
def test_what_a_secret_is_compared_with_goes(said: str) -> None:
    assert "hunter22" not in text(said)


def test_a_command_line_word_by_word() -> None:
    words = ["train.py", "--api-key", "s3 cret", "--lr", "0.1", "--token=abcdef", "--tokenizer", "gpt2", "--verbose"]
    assert arguments(words) == [
        "train.py", "--api-key", "<redacted>", "--lr", "0.1", "--token=<redacted>", "--tokenizer", "gpt2", "--verbose",
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["token=", "a" * 50, "--a-", "://a:", "wandb ", "curl -u ", '"', "-----BEGIN ", "eyJ",
                                  "x.", "Bearer ", "\\'", "\\n", "a log line\\n",
                                  "a=", "a: '", "a=\"b "])  # fmt: skip
def test_it_takes_no_endless_time(unit: str) -> None:
    long = (unit * (200_000 // len(unit)))[:200_000]
    started = time.process_time()
    text(long)
    assert time.process_time() - started < 10  # a pattern that backtracks takes minutes


def test_lines_without_a_word_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    plain = redaction._plain
    monkeypatch.setattr(redaction, "_plain", lambda value: searched.append(value) or plain(value))
    assert (
        text("a line\n" * 9 + "password=hunter2" + "\na line" * 9)
        == "a line\n" * 9 + "password=<redacted>" + "\na line" * 9
    )
    assert searched == ["password=hunter2"]


def test_a_colour_within_a_name_does_not_hide_it() -> None:
    assert "hunter2" not in redaction.text("pa\x1b[0mssword=hunter2")


def test_what_stands_below_a_name_that_tells_goes_with_it() -> None:
    document = {"password": [{"now": "hunter2"}], "token": {"max_length": 512, "path": "/data/x.json"}}
    assert redaction.document(document) == {
        "password": [{"now": "<redacted>"}], "token": {"max_length": 512, "path": "/data/x.json"},
    }  # fmt: skip


@pytest.mark.parametrize("said", ["password:\n", "Use the following password:\n\n", "The password is:\n\n"])
def test_lines_that_end_as_on_windows_hide_nothing(said: str) -> None:
    whole = f"loss 2.31\n{said}    Zq8vT3nLw9Xk2mPr\n"

    assert "Zq8v" not in text(whole)
    assert "Zq8v" not in text(whole.replace("\n", "\r\n"))


KEY = [
    f"-----BEGIN {'RSA'} PRIVATE KEY-----",
    *(["MIIEowIBAAKCAQEAq7Zq8vT3nLw9Xk2mPrMIIEowIBAAKCAQEAq7Zq8vT3nLw9Xk2m"] * 9),
]
LINES = {
    "a key": ["loading", *KEY, f"-----END {'RSA'} PRIVATE KEY-----", "done"],
    "a key that is cut off": ["loading", *KEY],
    "what is announced": ["The token has been created:", "Zq8vT3nLw9Xk2mPr", "done"],
    "what a name has on the next line": ["password:", "  Zq8vT3nLw9Xk2mPr"],
}


@pytest.mark.parametrize("said", LINES.values(), ids=LINES)
def test_lines_in_a_list_are_one_text(said: list[str]) -> None:
    for shown in (redaction.lines(said), redaction.document({"last_lines": said})["last_lines"]):
        assert len(shown) == len(said)
        assert "Zq8v" not in "".join(shown)
        assert [line for line in said if line in ("loading", "done")] == [
            line for line in shown if line in ("loading", "done")
        ]


def test_texts_of_several_lines_come_back_as_they_were_divided() -> None:
    said = ["a\nb", *LINES["a key"], "", "c\nd\n", "api_key=Zq8vT3nLw9Xk2mPr\ne"]

    shown = redaction.lines(said)

    assert len(shown) == len(said)
    assert (shown[0], shown[-3:]) == ("a\nb", ["", "c\nd\n", "api_key=<redacted>\ne"])


def test_a_command_line_in_a_document_is_none_of_lines() -> None:
    said = {"argv": ["--note", "use the password:", "train.py"], "words": ["train.py", "--api-key", "hunter2"]}

    assert redaction.document(said) == said | {"words": ["train.py", "--api-key", "<redacted>"]}
