"""The machine as checks see it: `Host` is the only door to it, and the rest is what lies behind that door."""
