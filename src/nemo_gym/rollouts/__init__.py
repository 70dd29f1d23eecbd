"""Rows to rollouts: plan, dispatch, sink, resume, aggregate."""
