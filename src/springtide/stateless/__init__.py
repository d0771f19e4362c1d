"""What a task does without state: it judges the rows of a source and runs the stateless steps."""
