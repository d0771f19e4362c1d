"""From the graph that a user wrote to the plan that runs, in a sequence of small passes."""
