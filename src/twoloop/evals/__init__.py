"""What improved and by how much: paired, clustered estimates and the gate that rests on them."""

from twoloop.evals.gate import gate
from twoloop.evals.statistics import Interval, SolveRate, by_task, clustered_mean, paired, pass_at_k, with_lost

__all__ = ["Interval", "SolveRate", "by_task", "clustered_mean", "gate", "paired", "pass_at_k", "with_lost"]
