"""Content-addressed files: written aside, synced, renamed. The name is the sha256 of the content.

A writer that was killed may leave a file whose name begins with a dot; it is never read.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

from twoloop.errors import StoreError


class Blobs:
    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, data: bytes) -> str:
        """Store and return the hash. Storing the same content again costs a look."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        if path.is_file():
            return digest
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")  # threads and processes may store the same content
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                _sync_folder(path.parent.parent)
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
            _sync_folder(path.parent)
        except OSError as problem:
            aside.unlink(missing_ok=True)
            raise StoreError(f"could not store {len(data)} bytes: {problem}", fix="Free some disk space.") from problem
        return digest

    def get(self, digest: str) -> bytes:
        try:
            data = self._path(digest).read_bytes()
        except OSError as problem:
            raise StoreError(f"blob {digest[:12]} cannot be read: {problem}") from problem
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(f"blob {digest[:12]} is damaged", fix="Restore the workspace from a copy.")
        return data

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest


def _sync_folder(folder: Path) -> None:
    """A new name is durable only when the folder that holds it is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
