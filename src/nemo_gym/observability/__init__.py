"""Read saved model exchanges and attach evidence to rollouts."""
