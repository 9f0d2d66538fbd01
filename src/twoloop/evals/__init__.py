"""What improved and by how much: paired, clustered estimates and the gate that rests on them."""

from twoloop.evals.gate import gate
from twoloop.evals.statistics import Interval, SolveRate, by_task, clustered_mean, paired

__all__ = ["Interval", "SolveRate", "by_task", "clustered_mean", "gate", "paired"]
