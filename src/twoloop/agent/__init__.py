"""The harness: the turn loop, its tools and call format, and the products whose agents are run with it."""
