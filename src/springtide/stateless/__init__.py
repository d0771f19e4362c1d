"""What a task does without state: it checks the rows of a source and runs the stateless steps."""
