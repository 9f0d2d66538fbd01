"""Durable turns: the steps of both loops, their record, and the report that they end in."""
