"""Feedback from people: thumbs on a session, and files of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

from twoloop.errors import StoreError
from twoloop.records import SCOPES, Event, new_id, now
from twoloop.store import Store

_EVENT_KEYS = frozenset(item.name for item in fields(Event))
_SOURCES = get_args(get_type_hints(Event)["source"])
_SHORT_KEYS = frozenset({"session", "thumbs", "text", "ts", "actor", "turn", "idem_key"})


@dataclass(frozen=True)
class ImportReport:
    """What an import did. Rejected lines are kept in `kept_aside`, with the reason for each."""

    accepted: int
    repeated: int
    rejected: tuple[tuple[int, str], ...]  # (line number, reason)
    kept_aside: Path | None
    unknown_sessions: int


def thumbs(store: Store, session: str, *, up: bool, text: str = "", actor: str = "", turn: int | None = None) -> Event:
    """Record a thumbs up or down. Giving the same one again changes nothing."""
    kind = "thumbs_up" if up else "thumbs_down"
    key = hashlib.sha256(json.dumps([session, kind, actor, turn, text]).encode()).hexdigest()[:32]
    event = Event(new_id(), f"manual:{key}", now(), kind, "HUMAN", session, turn=turn, actor=actor, text=text)
    store.add_events([event])
    return event


def import_jsonl(store: Store, path: Path) -> ImportReport:
    """One JSON object a line, in UTF-8. Either a thumb,

        {"session", "thumbs": "up"|"down", "text"?, "ts"?, "actor"?, "turn"?, "idem_key"?}

    or a whole `Event` with the keys of the record (`id`, `idem_key`, `ts`, `kind`, `source`, `session` at least). Lines
    without an `idem_key` are told apart by their content.

    Good lines are taken, bad ones are kept beside the record with their reasons; importing a file again is harmless.
    Raises StoreError when the file cannot be read or the record not be written."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as problem:
        raise StoreError(f"cannot read {path}: {problem}", fix="Give a file with one JSON object a line.") from problem
    events: list[Event] = []
    rejected: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                events.append(_event(line))
            except (ValueError, RecursionError) as problem:
                rejected.append((number, str(problem)))
    aside = _keep(store, path, lines, rejected) if rejected else None
    accepted = store.add_events(events)
    sessions = {e.session for e in events}
    unknown = len(sessions) - len(store.known_sessions(sorted(sessions)))
    return ImportReport(accepted, len(events) - accepted, tuple(rejected), aside, unknown)


def _event(line: bytes) -> Event:
    """Raises ValueError with the reason."""
    document: Any = json.loads(line.decode("utf-8"))
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    document = {key: value for key, value in document.items() if value is not None}
    json.dumps(document, ensure_ascii=False).encode()  # half a surrogate pair is valid JSON, but no text
    whole = "kind" in document
    unknown = sorted(document.keys() - (_EVENT_KEYS if whole else _SHORT_KEYS))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    turn = document.get("turn")
    if turn is not None and (type(turn) is not int or turn < 0):
        raise ValueError('"turn" must be a number, counted from 0')
    return _whole(document) if whole else _thumb(document)


def _thumb(document: Mapping[str, Any]) -> Event:
    direction = document.get("thumbs")
    if direction not in ("up", "down"):
        raise ValueError('"thumbs" must be "up" or "down"')
    content = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]
    return Event(
        id=new_id(),
        idem_key=f"import:{_text(document, 'idem_key') or content}",
        ts=_time(document["ts"]) if "ts" in document else now(),
        kind=f"thumbs_{direction}",
        source="USER",
        session=_text(document, "session", needed=True),
        turn=document.get("turn"),
        actor=_text(document, "actor"),
        text=_text(document, "text"),
    )


def _whole(document: Mapping[str, Any]) -> Event:
    for key in ("id", "idem_key", "kind", "source", "session"):
        _text(document, key, needed=True)
    for key in ("checkpoint", "actor", "text"):
        _text(document, key)
    if document["source"] not in _SOURCES:
        raise ValueError(f'"source" must be one of {", ".join(_SOURCES)}')
    consent = document.get("consent", SCOPES)
    if not isinstance(consent, list | tuple) or not set(map(str, consent)) <= set(SCOPES):
        raise ValueError(f'"consent" must be a list of {", ".join(SCOPES)}')
    if not isinstance(document.get("attributes", {}), dict):
        raise ValueError('"attributes" must be an object')
    return Event(**{**document, "ts": _time(document.get("ts")), "consent": tuple(consent)})


def _text(document: Mapping[str, Any], key: str, *, needed: bool = False) -> str:
    value = document.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f'"{key}" must be text')
    if needed and not value:
        raise ValueError(f'"{key}" is missing')
    return value


def _time(value: Any) -> str:
    """Any ISO 8601 time as the record writes it: UTC, milliseconds, Z. A time without a zone is read as UTC."""
    try:
        read = datetime.fromisoformat(value)
        read = read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise ValueError('"ts" must be a time like 2026-01-31T09:30:00Z') from None
    return read.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _keep(store: Store, path: Path, lines: list[bytes], rejected: list[tuple[int, str]]) -> Path:
    """Written before the good lines are acknowledged, under a name that only the same rejects of this file share.
    Bytes that are no UTF-8 come back with `text.encode("utf-8", "surrogateescape")`."""
    rows = [
        {"line": n, "reason": reason, "text": lines[n - 1].decode("utf-8", "surrogateescape")} for n, reason in rejected
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    aside = store.root / "rejected" / f"{path.stem}-{hashlib.sha256(data).hexdigest()[:12]}.rejected.jsonl"
    part = aside.with_suffix(f".{os.getpid()}.part")
    try:
        aside.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, aside)
    except OSError as problem:
        part.unlink(missing_ok=True)
        raise StoreError(f"cannot keep the rejected lines: {problem}", fix="Free some disk space.") from problem
    return aside
