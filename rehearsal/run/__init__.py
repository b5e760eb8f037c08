"""A whole run on a laptop: a local account, a rehearsed cluster, real programs as pods, and the real CLI."""
