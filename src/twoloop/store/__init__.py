"""The record of a workspace: tables, blobs, checkpoints, lineage."""

from twoloop.store.store import Store

__all__ = ["Store"]
