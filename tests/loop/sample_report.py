"""A turn's report with everything in it, for tests and for looking at it: `python tests/loop/sample_report.py OUT`."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from twoloop.loop.report import write_report
from twoloop.loop.types import Curve, Excerpt, HintedTurn, KindRate, Share, StepCost, TokenRatio, TurnReport
from twoloop.records import Area, Estimate, Evidence, Lineage, Verdict

SENTENCE = (
    "Promoted: sessions that call a tool which does not exist fell from 94 % to 4 % on 40 held-out tasks in 11 modules "
    "(−90 points, 95 % interval −96 to −82), and the solve rate rose from 6 % to 21 % (+15 points, +6 to +25)."
)


def sample() -> TurnReport:
    failure = Estimate("failure rate", 0.94, 0.04, -0.90, -0.96, -0.82, tasks=40, clusters=11, rollouts=160, missing=1)
    solve = Estimate("solve rate", 0.06, 0.21, 0.15, 0.06, 0.25, tasks=40, clusters=11, rollouts=160)
    length = Estimate("sampled tokens a session", 212, 187, -25, -61, 12, tasks=40, clusters=11, rollouts=160)
    drawn = ["write", "_file", "\n", "path", ":", " ", "toolz", "/", "itertoolz", ".py", "\n"]
    ratios = [-7.4, -2.1, 0.0, 0.02, 0.0, 0.0, 0.31, 0.0, -0.12, 0.44, 0.0]
    areas = (
        Area("unknown_tool", "Calls a tool that does not exist", 45, 48, 0.9375, 0.83, 0.98, 0.8, 0.66, evidence()),
        Area("tests_never_run", "Never runs the tests", 29, 48, 0.604, 0.46, 0.73, 0.5, 0.23, evidence()[:1]),
        Area("gave_up", "Gives up", 9, 48, 0.1875, 0.10, 0.32, 0.6, 0.06),
    )
    return TurnReport(
        run_id="2026-03-01-a",
        created="2026-03-01T12:00:00.000Z",
        tier="bwrap+userns",
        verdict=Verdict("promote", SENTENCE, "unknown_tool", "seed", "turn-1", (failure, solve, length)),
        areas=areas,
        rates=(
            KindRate("unknown_tool", "Unknown tool", Share(0.94, 0.86, 0.98, 80), Share(0.04, 0.01, 0.11, 80)),
            KindRate("malformed_call", "Malformed call", Share(0.11, 0.06, 0.2, 80), Share(0.09, 0.04, 0.17, 80)),
            KindRate("tests_never_run", "Tests never run", Share(0.61, 0.5, 0.71, 80), Share(0.38, 0.28, 0.49, 80)),
        ),
        curves=(
            Curve("Failure rate", tuple(0.95 / (1 + math.exp((i - 7) / 1.5)) for i in range(16)), share=True),
            Curve("Reward", tuple(-0.1 + 0.3 * (1 - math.exp(-i / 6)) + 0.02 * (i % 3) for i in range(16))),
            Curve("Solve rate", tuple(None if i == 5 else 0.06 + 0.01 * i for i in range(16)), share=True),
            Curve("Entropy", tuple(0.62 - 0.012 * i + 0.02 * (i % 2) for i in range(16)), "nats"),
            Curve("Hint KL", tuple(2.3 * math.exp(-i / 4) for i in range(16)), "nats"),
            Curve("Sampler gap", tuple(0.0002 + 0.00001 * (i % 4) for i in range(16)), "nats"),
        ),
        hinted=HintedTurn(
            "s-0041",
            2,
            "Tools: tree(path), view(path), save(path, content), patch(path, old, new), check(), submit(message).",
            tuple(TokenRatio(text, ratio) for text, ratio in zip(drawn, ratios, strict=True)),
        ),
        steps=(
            StepCost("dogfood", 183.2, 2, 10_240),
            StepCost("areas", 0.4),
            StepCost("prepare", 21.0),
            StepCost("climb", 612.4, 1, 54_100, 48_700),
            StepCost("gate", 301.9, 1, 33_900),
            StepCost("settle", 1.2),
        ),
        excerpts=(
            Excerpt(
                "Before: task toolz-0007", "assistant> write_file\npath: toolz/itertoolz.py\n…\ntool> There is no tool."
            ),
            Excerpt(
                "After: task toolz-0007", "assistant> save\npath: toolz/itertoolz.py\n…\ntool> Saved 812 characters."
            ),
        ),
        lineage=(
            *(Lineage(f"event:{i:04d}", "area:unknown_tool", "shows") for i in range(45)),
            Lineage("area:unknown_tool", "checkpoint:turn-1", "trained on"),
            Lineage("checkpoint:seed", "checkpoint:turn-1", "parent of"),
        ),
        facts=(("model", "smollm2-135m-instruct"), ("harness", "renamed"), ("machine", "2 cores, 8 GB")),
        limits=(
            "One seed and one product.",
            "A 135M model solves only short functions; the failure rate is what it shows.",
        ),
        settings={"train": {"steps": 16, "arm": "hint"}, "gate": {"tasks": 40}},
    )


def evidence() -> tuple[Evidence, ...]:
    return (
        Evidence("s-0041", 2, 310, 342, "write_file\npath: toolz/itertoolz.py"),
        Evidence("s-0007", 0, 188, 201, "read_file\npath: toolz/dicttoolz.py"),
    )


if __name__ == "__main__":
    write_report(Path(sys.argv[1]), sample())
