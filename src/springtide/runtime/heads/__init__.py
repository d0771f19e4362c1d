"""Stateful heads at work, one file per operator."""

from springtide.runtime.heads.choice import check_runs, head_of
from springtide.runtime.heads.head import Clock, Head, HeadResult, Kind, Shelf, keep

__all__ = ["Clock", "Head", "HeadResult", "Kind", "Shelf", "check_runs", "head_of", "keep"]
