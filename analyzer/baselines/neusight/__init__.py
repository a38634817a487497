"""NeuSight: operators as tiles, the tiles that libraries choose, learned utilization."""
