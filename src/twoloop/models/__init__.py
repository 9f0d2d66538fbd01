"""Models: checkpoints, chat rendering, and samplers that know the exact probability of what they drew."""
