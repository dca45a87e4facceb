"""The nodes of a job, as one: the link between their supervisors."""
