"""A whole run on a laptop: local account, rehearsed cluster, real programs as pods, real CLI."""
