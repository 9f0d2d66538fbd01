"""Objectives, the trainer, turn-local hints, the RL climb and the seed checkpoint."""
