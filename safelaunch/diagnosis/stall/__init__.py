"""Why one rank does not come to what others wait for; `reasons.STALLS` has the reasons in their order."""
