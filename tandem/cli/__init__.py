"""One module per verb of the CLI: parse nothing, call the package that knows, print."""
