"""Rules of crashes."""
