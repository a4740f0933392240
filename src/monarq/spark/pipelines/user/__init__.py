"""The user's own pipelines: a TOML file says what to read, what to make of it and where it goes."""
