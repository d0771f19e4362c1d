"""What state costs and how soon it is back: SEEP's experiments with recovery (SE-4, SE-7), and restarts."""
