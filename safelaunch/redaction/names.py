"""Which names tell that a value is a secret: of variables, options, fields of documents, parameters of URLs."""

from __future__ import annotations

import functools
import re
from typing import Literal

# "password": whatever the value is, but a placeholder. "secret": any value that is none of a setting. "random": a value
# that looks drawn at random. "": the name tells nothing.
Kind = Literal["password", "secret", "random", ""]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _set(words_: str) -> frozenset[str]:
    return frozenset(words_.split())


PASSWORDS = _set("""
    password passwords passwd passwort passphrase passcode pwd pass passwds pw userpwd mysqlpwd sshpass bindpw rootpw
""")
SECRETS = _set("""
    secret secrets credential credentials creds cookie cookies jwt bearer otp totp authorization webhook pat sas psk
    authtok signature sig mnemonic seedphrase privkey
""")
GLUED = re.compile(
    r".*(?:password|passwd|passphrase|secret|(?:api|access|secret|auth|private|account|license|encryption|signing|master"
    r"|storage|service|session|host|deploy|app|subscription|function|stream)key|(?:auth|access|refresh|id|api|bearer|session"
    r"|bot|user|sas|csrf|xsrf)token|credentials?)"
)
# What makes a key one of a lock, and not one of a table.
LOCKS = _set("""
    api access secret private signing sign encryption encrypt encoding decryption account master storage ssh service
    license deploy deployment app application client admin session auth authentication webhook hmac aes rsa gpg pgp
    wandb wallet validation management write ingest integration integrations token server consumer subscription
    function functions primary_access shared ssl tls cert host age fernet jwt django flask rails cipher
""")
TABLES = _set("""
    sort primary foreign partition public cache metric group join row column index idempotency i18n translation
    dataset image images label labels text input inputs output outputs feature state dict config kv monitor hot
    query attention map lookup bucket object s3 shard dedup by pub hash range name data batch sample target
    unique composite natural surrogate json yaml field param parameter layer tensor weight weights prompt response
    prng rng random dropout noise sampler fold sub
    message reward loss score best val eval train arrow right left up down shift ctrl alt num first last missing
    unexpected extra id unknown invalid registry model block head heads sequence any other new old default required
    expected
""")
# Words behind a secret's that name something about it.
ABOUT = _set("""
    ref refs mount volume manager length len min max count counts num number size dim dims path paths file files
    filename dir directory folder name names type types ttl timeout expiry expires expiration expire age policy
    version enabled enable required sock socket url uri endpoint host hostname port user username method methods
    mode format prefix suffix header field index idx column algorithm algo bits provider store ring server group
    rotation limit limits rate budget per batch head heads proj projection cache norm states state padding mask
    masks bias weight weights layer layers scale lr id ids arn hash digest embeddings embedding embed embeds
    classification pos position positions usage used second seconds sec s ms chars window stride dropout value
    values query width shape dtype device table map class func function counter budget_ratio loss accuracy acc
    parallelism strategy level helper stdin status error errors retries attempts interval refresh region zone scope
    scopes issuer audience domain realm plugin module backend generation throughput source ratio fraction
""")
PIECES = _set("""
    pad eos bos unk sep cls mask image video audio special next last first num max min per new total prompt input
    output stop end start target draft eot eod fim bad current prev previous sampled generated decoded tool
    think text vision word sub begin ignore any unexpected single each one extra forced decoder boi eoi im vocab
""")
# What a server knows a visitor by.
SESSIONS = _set("sid sessid sessionid phpsessid jsessionid aspsessionid")
# Passes of a program, none of a door.
RUNS = _set("""
    forward backward first second third one two single multi num test per low high band all render
""")
# `git commit`, `sha256`: a number of the kind that keys have, and known to all.
PUBLIC = _set("""
    svn hg sha sha1 sha256 sha512 md5 blake hash hashes digest commit commits rev revision revisions checksum
    checksums etag fingerprint uuid guid trace span ref refs version snapshot snapshots image container invocation
    build tree blob integrity crc sum nonce git head parent object layer manifest id ids public pub thumbprint
    changeset merkle root block tx txid address addr branch tag artifact model dataset data config shard file files
    weights checkpoint ckpt comm unique uid upstream origin base oid pin lock content cid serial run experiment
    cache
""")


def words(name: str) -> list[str]:
    """The words of a name, in lower case: `hfHubToken`, `HF_HUB_TOKEN` and `hf-hub-token` have the same."""
    return [word.lower() for word in _WORD.findall(name)]


@functools.lru_cache(maxsize=8192)
def kind(name: str) -> Kind:
    """What a name tells of its value."""
    found = words(name)
    if len(found) > 1 and found[-1].isdecimal():
        found.pop()  # PASSWORD_2
    if not found:
        return ""
    last, before = found[-1], found[-2] if len(found) > 1 else ""
    if last in ABOUT or (last == "pwd" and (before == "old" or name == "PWD")) or last == "oldpwd":
        return _of_identifier(found)
    if last in PASSWORDS:
        return "" if last == "pass" and before in RUNS else "password"
    if last in ("key", "keys"):
        return _of_key(before, found)
    if last in ("token", "tokens"):
        return "random" if before in PIECES or last == "tokens" else "secret"
    if last in SECRETS or GLUED.fullmatch(last):
        return "password" if "pass" in last else "secret"
    if found[-3:] == ["client", "key", "data"]:
        return "random"  # of a kubeconfig
    if last == "phrase" and before == "pass":
        return "password"
    if _is_random(name, last, before):
        return "random"
    inner = {*found[:-1]}
    return "secret" if inner & {"secret", "secrets", "password", "passwd", "credential", "passphrase"} else ""


def _is_random(name: str, last: str, before: str) -> bool:
    """Whether what looks drawn at random is a secret under such a name, and nothing else is."""
    if last in ("auth", "login", "basic") or last in SESSIONS:
        return True
    if last == "session":
        return name.startswith("_")  # as frameworks for the web call their cookie
    return bool(before) and last in ("sk", "salt")  # `HUAWEICLOUD_SDK_SK`


def _of_key(before: str, found: list[str]) -> Kind:
    if before in LOCKS or GLUED.fullmatch(before):
        return "secret"
    if before in TABLES:
        return ""
    return "secret" if before and "private" in found else "random"


def _of_identifier(found: list[str]) -> Kind:
    """`access_key_id`, `secret_id`, `password_hash`: kept, and given out, as secrets are. The hash of what is drawn at
    random tells nothing of it."""
    of = kind("_".join(found[:-1])) if found[-1] in ("id", "hash", "value", "digest", "header", "query") else ""
    hashed = found[-1] in ("hash", "digest")
    return "random" if of and (not hashed or of == "password" or "secret" in found) else ""


@functools.lru_cache(maxsize=4096)
def is_public(name: str) -> bool:
    """Whether a long number under this name is one that everybody may know."""
    return not PUBLIC.isdisjoint(words(name))
