"""What can be concluded where one source is all there is: dumps, or looks from outside."""
