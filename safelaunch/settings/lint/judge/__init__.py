"""What the rules of the lint share: pure judgements about names, values and pairs. No rule imports another."""
