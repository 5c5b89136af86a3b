"""Tools for who writes rules: a rule exercised on graphs made from its own pattern, and a pattern read off a model."""
