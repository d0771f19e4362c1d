from __future__ import annotations

from collections.abc import Callable

import springtide as st
from springtide.compiler.explain import explain
from springtide.compiler.passes.buckets import assign_buckets
from springtide.compiler.pipeline import PASSES, compile
from springtide.compiler.plan import Plan


def test_golden_plan(every_kind: st.Query, up_to: Callable[..., Plan], golden: Callable[[str, str], None]) -> None:
    golden("compiler/5-buckets", explain(up_to(assign_buckets, every_kind)))


def test_prefixes_have_none_and_single_has_one(every_kind: st.Query) -> None:
    plan = compile(every_kind, buckets=32)
    assert {s.name: s.buckets for s in plan.subqueries} == {
        "calls+accounts": None,
        "prices": None,
        "hourly": 32,
        "daily": 32,
        "top": 32,
        "top.merge": 1,
        "overlap": 32,
        "paid": 32,
        "tags": 32,
        "best": 1,
    }


def test_compile_runs_every_pass(every_kind: st.Query) -> None:
    plan = Plan(every_kind, 64)
    for run in PASSES:
        plan = run(plan)
    assert compile(every_kind, 64) == plan == every_kind.plan(buckets=64)
