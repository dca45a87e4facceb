"""What evidence of other kinds makes of a verdict."""
