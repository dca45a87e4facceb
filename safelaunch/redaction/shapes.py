"""Tokens that can be told by their own shape, as their issuers document them and as secret scanners know them.

The prefixes are those of GitHub's secret scanning, of gitleaks (config/gitleaks.toml) and of detect-secrets' plugins.
detect-secrets itself (1.5.0, by files, its defaults) was measured on tests/unit/redaction_corpus.py: it finds 25 of
120 secrets, takes 13 of 205 harmless lines for one, and reads 0.3 MB a second.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable

# A prefix, which must begin a word, and what follows it.
ISSUED: tuple[tuple[str, str], ...] = (
    # Models and data
    ("hf_", r"[A-Za-z0-9]{20,}"),
    ("api_org_", r"[A-Za-z0-9]{20,}"),
    ("sk-", r"(?=[\w-]{0,60}?(?:[0-9][A-Za-z]|[A-Za-z][0-9]))[A-Za-z0-9_-]{20,}"),
    # OpenAI, Anthropic, OpenRouter, DeepSeek, LiteLLM
    ("sess-", r"[A-Za-z0-9]{30,}"),
    ("vck_", r"[A-Za-z0-9]{40,}"),
    ("amzn.mws.", r"[0-9a-f-]{30,}"),
    ("xai-", r"[A-Za-z0-9]{30,}"),
    ("pplx-", r"[A-Za-z0-9]{30,}"),
    ("gsk_", r"[A-Za-z0-9]{30,}"),
    ("csk-", r"[a-z0-9]{30,}"),
    ("fw_", r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{22,}"),
    ("r8_", r"[A-Za-z0-9]{30,}"),
    ("nvapi-", r"[A-Za-z0-9_-]{30,}"),
    ("tgp_v1_", r"[A-Za-z0-9_-]{30,}"),
    ("rpa_", r"[A-Za-z0-9]{30,}"),
    ("wandb_v", r"[0-9]_[A-Za-z0-9_]{30,}"),
    ("lsv2_", r"(?:pt|sk)_[A-Za-z0-9_]{30,}"),
    ("ls__", r"[A-Za-z0-9]{24,}"),
    ("pcsk_", r"[A-Za-z0-9_]{30,}"),
    ("jina_", r"[A-Za-z0-9-]{30,}"),
    ("pa-", r"(?=[\w-]{0,60}?(?:[0-9][A-Za-z]|[A-Za-z][0-9]))[A-Za-z0-9_-]{40,}"),
    ("voyage-", r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{30,}"),
    ("llx-", r"[A-Za-z0-9]{30,}"),
    ("tvly-", r"[A-Za-z0-9-]{20,}"),
    ("e2b_", r"[0-9a-f]{30,}"),
    ("ak-", r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}"),  # Modal
    ("as-", r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}"),
    ("cpk_", r"[A-Za-z0-9.]{30,}"),
    ("key_", r"(?=[a-z]*[0-9])[0-9a-f]{32,}"),
    ("esecret_", r"[A-Za-z0-9]{20,}"),
    ("neptune_", r"[A-Za-z0-9]{30,}"),
    ("pk-lf-", r"[0-9a-f-]{30,}"),
    ("sk-lf-", r"[0-9a-f-]{30,}"),
    ("phc_", r"[A-Za-z0-9]{30,}"),
    ("phx_", r"[A-Za-z0-9]{30,}"),
    # Code and packages
    ("ghp_", r"[A-Za-z0-9]{30,}"), ("gho_", r"[A-Za-z0-9]{30,}"), ("ghu_", r"[A-Za-z0-9]{30,}"),
    ("ghs_", r"[A-Za-z0-9]{30,}"), ("ghr_", r"[A-Za-z0-9]{30,}"),
    ("github_pat_", r"[A-Za-z0-9_]{30,}"),
    ("gl", r"(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt|oas|ffct)-[A-Za-z0-9_.-]{18,}"),
    ("glsa_", r"[A-Za-z0-9_]{30,}"), ("glc_", r"[A-Za-z0-9+/=]{30,}"),  # Grafana
    ("npm_", r"[A-Za-z0-9]{30,}"),
    ("pypi-AgE", r"[A-Za-z0-9_-]{20,}"),
    ("dckr_pat_", r"[A-Za-z0-9_-]{20,}"), ("dckr_oat_", r"[A-Za-z0-9_-]{20,}"),
    ("ATATT3", r"[A-Za-z0-9_=-]{40,}"), ("ATCTT3", r"[A-Za-z0-9_=-]{40,}"), ("ATBB", r"[A-Za-z0-9]{28,}"),
    ("rubygems_", r"[a-f0-9]{40,}"), ("CLOJARS_", r"[a-z0-9]{50,}"), ("cio", r"[A-Za-z0-9]{32}\b"),
    ("sqp_", r"[0-9a-f]{40}"), ("squ_", r"[0-9a-f]{40}"), ("sqa_", r"[0-9a-f]{40}"),
    ("AKCp", r"[A-Za-z0-9]{60,}"), ("cmVmd", r"[A-Za-z0-9]{59}"),
    ("bkua_", r"[0-9a-f]{40}"), ("CCIPAT_", r"[A-Za-z0-9_]{30,}"), ("CCIPRJ_", r"[A-Za-z0-9_]{30,}"),
    ("sgp_", r"[A-Za-z0-9_]{40,}"), ("tfp_", r"[A-Za-z0-9_]{30,}"),
    # Clouds
    ("AKIA", r"[0-9A-Z]{16}"), ("ASIA", r"[0-9A-Z]{16}"), ("ABIA", r"[0-9A-Z]{16}"), ("ACCA", r"[0-9A-Z]{16}"),
    ("ABSK", r"[A-Za-z0-9+/=]{60,}"), ("bedrock-api-key-", r"[A-Za-z0-9+/=_-]{20,}"),
    ("AIza", r"[0-9A-Za-z_-]{35}"), ("ya29.", r"[0-9A-Za-z_-]{20,}"), ("GOCSPX-", r"[A-Za-z0-9_-]{20,}"),
    ("GOOG1", r"[A-Z0-9]{50,}"), ("1//0", r"[A-Za-z0-9_-]{40,}"),
    ("LTAI", r"[A-Za-z0-9]{16,}"), ("AKID", r"[A-Za-z0-9]{32}"), ("AKLT", r"[A-Za-z0-9_-]{30,}"),
    ("dapi", r"[0-9a-f]{32}(?:-[0-9])?"), ("dose", r"[0-9a-f]{32}"),
    ("dop_v1_", r"[0-9a-f]{60,}"), ("doo_v1_", r"[0-9a-f]{60,}"), ("dor_v1_", r"[0-9a-f]{60,}"),
    ("hvs.", r"[A-Za-z0-9_-]{24,}"), ("hvb.", r"[A-Za-z0-9_-]{24,}"), ("hvr.", r"[A-Za-z0-9_-]{24,}"),
    ("tskey-", r"[a-z]+-[A-Za-z0-9-]{16,}"), ("ocid1.credential.", r"[a-z0-9.]{30,}"),
    ("pul-", r"[0-9a-f]{40}"), ("nrak-", r"[a-z0-9]{27}"), ("NRAK-", r"[A-Z0-9]{27}"), ("NRJS-", r"[0-9a-f]{19}"),
    ("dt0c01.", r"[A-Z0-9]{20,}\.[A-Z0-9]{40,}"), ("dt0s16.", r"[A-Z0-9.]{40,}"),
    ("fo1_", r"[A-Za-z0-9_-]{30,}"), ("FlyV1", r" ?fm[12][A-Za-z]?_[A-Za-z0-9+/=,_-]{40,}"),
    ("fm2_", r"[A-Za-z0-9+/=]{60,}"),
    ("pscale_", r"(?:tkn|pw|oauth)_[A-Za-z0-9=._-]{30,}"), ("sbp_", r"[0-9a-f]{40}"),
    ("sb_secret_", r"[A-Za-z0-9_-]{20,}"),
    ("napi_", r"[a-z0-9]{40,}"), ("HRKU-", r"[A-Za-z0-9_-]{36,}"), ("rnd_", r"[A-Za-z0-9]{28,}"),
    ("scw_", r"[A-Za-z0-9]{30,}"), ("vercel_", r"[A-Za-z0-9]{24,}"),
    ("v1.0-", r"[a-f0-9]{24}-[a-f0-9]{100,}"), ("AVNS_", r"[A-Za-z0-9_-]{18,}"), ("nfp_", r"[A-Za-z0-9]{36,}"),
    ("railway_", r"[A-Za-z0-9-]{24,}"), ("vastai_", r"[0-9a-f]{40,}"), ("lambda_", r"[a-z0-9]+_[A-Za-z0-9]{30,}"),
    ("jfrt", r"[A-Za-z0-9]{60,}"), ("ops_eyJ", r"[A-Za-z0-9+/=_-]{30,}"),
    ("A3-", r"(?:[A-Z0-9]{5,11}-){4,6}[A-Z0-9]{5}"),
    # People and payments
    ("xox", r"[abceoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}"), ("xapp-", r"[0-9]-[A-Za-z0-9-]{10,}"),
    ("sk_", r"(?:live|test)_[A-Za-z0-9]{16,}"), ("rk_", r"(?:live|test)_[A-Za-z0-9]{16,}"),
    ("pk_", r"(?:live|test)_[A-Za-z0-9]{16,}"), ("whsec_", r"[A-Za-z0-9+/=]{24,}"),
    ("SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{30,}"), ("xkeysib-", r"[0-9a-f]{60,}-[A-Za-z0-9]{16}"),
    ("xsmtpsib-", r"[0-9a-f]{60,}-[A-Za-z0-9]{16}"), ("key-", r"[0-9a-f]{32}"),
    ("re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{24}"),
    ("shp", r"(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"), ("sq0", r"(?:csp|atp|idp)-[A-Za-z0-9_-]{22,}"),
    ("EAAA", r"[A-Za-z0-9_-]{60}"),
    ("EAA", r"[A-Za-z0-9]{80,}"), ("lin_api_", r"[A-Za-z0-9]{32,}"), ("lin_oauth_", r"[A-Za-z0-9]{32,}"),
    ("secret_", r"[A-Za-z0-9]{43}"), ("ntn_", r"[A-Za-z0-9]{40,}"), ("figd_", r"[A-Za-z0-9_-]{30,}"),
    ("figo_", r"[A-Za-z0-9_-]{30,}"),
    ("PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"), ("pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("pat-na1-", r"[0-9a-f-]{36}"),
    ("sntrys_", r"[A-Za-z0-9+/=_-]{30,}"), ("sntryu_", r"[0-9a-f]{60,}"), ("dd_", r"[A-Za-z0-9]{32,}"),
    ("dp.", r"(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]+\.)?[A-Za-z0-9]{40,}"), ("infisical_", r"[A-Za-z0-9]{30,}"),
    ("AC", r"(?=[a-f]*[0-9])[0-9a-f]{32}\b"), ("SK", r"(?=[a-f]*[0-9])[0-9a-f]{32}\b"),  # Twilio
    ("PRIVATE-TOKEN-", r"[A-Za-z0-9]{20,}"), ("AGE-SECRET-KEY-1", r"[0-9A-Z]{50,}"), ("nsec1", r"[a-z0-9]{50,}"),
    ("xprv", r"[A-Za-z0-9]{100,}"), ("eyJ", r"[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*"),
    *[(f"v{version}.{use}.", r"[A-Za-z0-9_-]{20,}") for version in "123" for use in ("local", "public")],
    ("v4.local.", r"[A-Za-z0-9_-]{20,}"), ("v4.public.", r"[A-Za-z0-9_-]{20,}"), ("oauth2v2_", r"[A-Za-z0-9]{20,}"),
    ("EZAK", r"[A-Za-z0-9]{54}"), ("EZTK", r"[A-Za-z0-9]{54}"), ("duffel_", r"(?:test|live)_[A-Za-z0-9_-]{40,}"),
    ("FLWSECK", r"(?:_TEST)?-[0-9a-zA-Z]{12,}"), ("rzp_", r"(?:live|test)_[A-Za-z0-9]{14,}"),
    ("shippo_", r"(?:live|test)_[a-f0-9]{40}"),
    ("p8e-", r"[a-zA-Z0-9]{32}"), ("doppler_", r"[A-Za-z0-9]{40,}"), ("pnu_", r"[A-Za-z0-9]{36}"),
    ("ico-", r"[A-Za-z0-9]{32}"),
    ("rdme_", r"[a-z0-9]{70}"), ("patch_", r"[A-Za-z0-9]{40}"), ("ddp_", r"[A-Za-z0-9]{36}"),
    ("ddw_", r"[A-Za-z0-9]{36}"),
    ("ory_", r"(?:pat|at|rt|st)_[A-Za-z0-9_-]{20,}"), ("frd_", r"[A-Za-z0-9]{30,}"), ("uat_", r"[A-Za-z0-9]{30,}"),
)  # fmt: skip

# Without a prefix.
FREE = (
    r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{32,}",  # a bot of Telegram
    r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}",  # Entra ID
    r"(?<![0-9a-f])[0-9a-f]{32}-us[0-9]{1,2}\b",  # Mailchimp
    r"(?<!sha512-)(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}==(?![A-Za-z0-9+/=])",  # an account of Azure Storage
    r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}",  # Terraform Cloud
)
# A bot of Discord.
DISCORD = [letter + r"[A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}" for letter in "MNO"]
FREE_HINTS = (
    r":aa[a-z0-9_-]{33}",
    r"\.[a-z0-9_-]{6}\.[a-z0-9_-]{27}",
    "q~[a-z0-9_~.-]{31}",
    r"-us[0-9]{1,2}\b",
    r"\.atlasv1\.",
)


def _in_base64(prefix: str) -> str:
    """How base64 of a text with this prefix begins, as far as its first characters decide."""
    whole = len(prefix) * 8 // 6
    return base64.b64encode(prefix.encode()).decode()[:whole]


# A key within base64, such as a value of a Kubernetes secret or of a file that was passed in a variable.
ENCODED = tuple(
    _in_base64(prefix)
    for prefix in ("-----BEGIN", "sk-proj-", "sk-ant-", "sk-or-", "hf_", "ghp_", "gho_", "ghs_", "github_pat_",
    "glpat-", "AKIA",
                   "xoxb-", "xoxp-", "eyJhbG", "AIza", "nvapi-", "npm_", "gsk_", "wandb_v1", "sk_live_", "dapi",
    "hvs.",
                   "AGE-SECRET-KEY-", '{"auths"', '{"type": "service_account"', '{\n  "type": "service_account"',
                   "machine ", "password", "r8_", "dckr_pat_", "pypi-AgE", "[default]\naws", "apiVersion: v1")
)  # fmt: skip


def compiled() -> re.Pattern[str]:
    """All of them. Each begins with a fixed text or is bounded, so that nothing is looked at more than a few times."""
    found = by_first_letter([re.escape(prefix) + rest for prefix, rest in ISSUED], "[A-Za-z0-9_-]")
    encoded = [re.escape(prefix) + "[A-Za-z0-9+/_-]{12,}={0,2}" for prefix in ENCODED]
    return re.compile(
        "|".join([found, by_first_letter(DISCORD, "[A-Za-z0-9_-]"), by_first_letter(encoded, "[A-Za-z0-9+/]")])
    )


def free() -> re.Pattern[str]:
    """Those without a prefix."""
    return re.compile("|".join(FREE))


def by_first_letter(patterns: Iterable[str], not_behind: str = "") -> str:
    """Alternatives, grouped by the letter with which each begins: the search of `re` skips all other positions at once.

    Args:
        patterns: each begins with a plain character or an escaped one.
        not_behind: a class of characters that may not stand in front.
    """
    groups: dict[str, list[str]] = {}
    for pattern in dict.fromkeys(patterns):
        size = 2 if pattern[0] == "\\" else 1
        groups.setdefault(pattern[:size], []).append(pattern[size:])
    return "|".join(
        letter + (f"(?<!{not_behind}{letter})" if not_behind else "") + f"(?:{'|'.join(rest)})"
        for letter, rest in groups.items()
    )
