"""NeuSight's parts: operators as tiles, the tiles that libraries choose, learned utilization."""
