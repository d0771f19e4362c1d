from __future__ import annotations

from collections.abc import Callable

from typer.testing import Result


def test_demo_shows_the_query_and_what_comes_out(run: Callable[..., Result]) -> None:
    result = run("demo")
    assert result.exit_code == 0
    first, *rest = result.stdout.splitlines()
    assert first == "heavy-callers on the sequential reference; the Spark engine comes next"
    text = "\n".join(rest)
    assert 'query = st.Query("heavy-callers"' in text
    assert "34-0" in text
    assert "springtide explain" in text
