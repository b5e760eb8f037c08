"""What is declared: types, loading, names, the artifact key; dated models, runtimes, platform."""
