"""What may be shown of a variable."""

from __future__ import annotations

import pytest

from safelaunch.redaction import is_secret, redact


@pytest.mark.parametrize("name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "DB_PASSWORD", "FI_COOKIE",
                                  "KEY", "SSH_PASSPHRASE", "SMTP_PASS", "MY_PWD", "API_KEYS"])  # fmt: skip
def test_secrets_by_their_names(name: str) -> None:
    assert redact(name, "s3cret") == "<redacted>"
    assert is_secret(name, "s3cret")


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "PWD", "PATH", "KEYBOARD", "NCCL_PROTO", "OMP_NUM_THREADS"])
def test_what_is_no_secret(name: str) -> None:
    assert redact(name, "value") == "value"
    assert not is_secret(name, "value")


@pytest.mark.parametrize(("value", "shown"), [
    ("http://bob:s3cret@proxy:8080", "http://<redacted>@proxy:8080"),
    ("postgres://u:s3@cret@db/x", "postgres://<redacted>@db/x"),
    ("http://a:b@c,http://d:e@f", "http://<redacted>@c,http://<redacted>@f"),
    ("http://proxy:8080/a@b", "http://proxy:8080/a@b"),
])  # fmt: skip
def test_credentials_in_a_url(value: str, shown: str) -> None:
    assert redact("HTTPS_PROXY", value) == shown
    assert is_secret("HTTPS_PROXY", value) == (shown != value)
