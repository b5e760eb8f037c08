"""What is declared: types, loading, names, the artifact key; models, runtimes and platform as dated data."""
