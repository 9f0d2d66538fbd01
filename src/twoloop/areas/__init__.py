"""What users struggle with, ranked with evidence and uncertainty."""

from twoloop.areas.rank import SEVERITY, rank

__all__ = ["SEVERITY", "rank"]
