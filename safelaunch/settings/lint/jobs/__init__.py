"""The lint of files that others have written: which they are, what is wrong in them, where, and what to write."""
