"""One pass per file, each `Plan → Plan`; `pipeline` says in which order they run."""
