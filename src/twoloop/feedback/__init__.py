"""What comes back from use: automatic reports on sessions, thumbs and comments of people."""

from twoloop.feedback.detectors import DETECTORS, detect
from twoloop.feedback.manual import ImportReport, import_jsonl, thumbs

__all__ = ["DETECTORS", "ImportReport", "detect", "import_jsonl", "thumbs"]
