"""CloudWatch on a laptop: its search expressions and alarm states, and a page that draws dashboards
without AWS."""
