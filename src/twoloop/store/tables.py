"""The tables of the record. What is asked for by column stands in columns, the rest in a JSON document or a blob."""

from __future__ import annotations

from sqlalchemy import Column, Float, Integer, MetaData, String, Table, Text

VERSION = 1  # of these tables; a record of a later version is refused

META = MetaData()
EVENTS = Table(
    "events",
    META,
    Column("id", String, primary_key=True),
    Column("idem_key", String, unique=True, nullable=False),
    Column("ts", String, nullable=False),
    Column("kind", String, nullable=False, index=True),
    Column("session", String, nullable=False, index=True),
    Column("document", Text, nullable=False),
)
TRAJECTORIES = Table(
    "trajectories",
    META,
    Column("id", String, primary_key=True),
    Column("phase", String, nullable=False, index=True),  # e.g. "TURN/dogfood"
    Column("task", String, nullable=False),
    Column("cluster", String, nullable=False),
    Column("checkpoint", String, nullable=False),
    Column("reward_status", String, nullable=False),
    Column("reward", Float),
    Column("blob", String, nullable=False),
)
CHECKPOINTS = Table(
    "checkpoints",
    META,
    Column("name", String, primary_key=True),
    Column("document", Text, nullable=False),
)
SERVING = Table(
    "serving",
    META,
    Column("number", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("ts", String, nullable=False),
)
VERDICTS = Table(
    "verdicts",
    META,
    Column("turn", String, primary_key=True),
    Column("decision", String, nullable=False),
    Column("document", Text, nullable=False),
)
LINEAGE = Table(
    "lineage",
    META,
    Column("source", String, primary_key=True),
    Column("destination", String, primary_key=True),
    Column("relation", String, primary_key=True),
)
