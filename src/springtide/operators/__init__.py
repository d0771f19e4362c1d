"""The stateful operators at runtime: one package each, with its kernel and its state side by side, plus what they all share."""

from springtide.operators.operator import Clock, Operator, OperatorResult
from springtide.operators.registry import check_runs, operator_of, register_window
from springtide.operators.state_view import StateView
from springtide.operators.tables import StateTable

__all__ = [
    "Clock",
    "Operator",
    "OperatorResult",
    "StateTable",
    "StateView",
    "check_runs",
    "operator_of",
    "register_window",
]
