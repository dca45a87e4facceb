"""Settings of the profiles that come with safelaunch."""

from __future__ import annotations

import os

from safelaunch.settings.lint.context import Setting
from safelaunch.settings.profile import shipped_folder


def is_shipped(setting: Setting) -> bool:
    """Whether a shipped profile makes this setting. Its cost, and which versions know it, stand beside it there."""
    file = setting.origin.where.rpartition(":")[0]
    return setting.origin.source == "profile" and os.path.dirname(os.path.abspath(file)) == shipped_folder()
