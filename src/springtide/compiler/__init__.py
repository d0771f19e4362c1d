"""From the graph that a user wrote to the plan that runs: ordered small passes."""
