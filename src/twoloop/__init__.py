"""twoloop makes a model better from what its users tell it, on repeat, and lets nothing slip back."""

__version__ = "0.1.0"
