"""The wheel, tested from an environment of its own: only it and what it says that it needs are there, not the checkout.

Nothing is downloaded: what the wheel requires is linked from the environment of the tests, and nothing else is.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import venv
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "springtide"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None or importlib.util.find_spec("pip") is None,
    reason="needs hatchling and pip to build and install the wheel",
)


def run(*command: str | Path, cwd: Path, ok: bool = True) -> str:
    """Run a program that knows nothing of the checkout; return what it says."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "FORCE_COLOR")}
    environment |= {"NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == ok, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    run(sys.executable, "-c", build, cwd=ROOT)
    (made,) = folder.glob("*.whl")
    return made


def required(names: list[Requirement]) -> dict[str, Distribution]:
    """What has to be there for these, and for those, and so on."""
    found: dict[str, Distribution] = {}
    waiting = [(r, "") for r in names]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name in found and not requirement.extras:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            pytest.fail(f"{name} is required and not installed here: run make venv")
        below = [Requirement(text) for text in found[name].requires or ()]
        waiting += [(r, extra) for r in below for extra in ("", *requirement.extras)]
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires, and nothing else."""
    home = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=home)
    (packages,) = home.glob("lib/python*/site-packages")
    (metadata,) = packages.glob("springtide-*.dist-info")
    own = [Requirement(text) for text in Distribution.at(metadata).requires or ()]
    for found in required(own).values():
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(top))))
    return python


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    there = set(zipfile.ZipFile(wheel).namelist())
    ours = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours <= there
    assert {"springtide/py.typed", "springtide/ui/assets/index.html", "springtide/monitoring/alerts.yml"} <= there
    assert [n for n in there if not n.startswith(("springtide/", "springtide-"))] == []


def test_a_query_runs(python: Path, tmp_path: Path) -> None:
    program = """
        import polars as pl
        import springtide as st
        from springtide.runtime.inprocess import run
        from springtide.runtime.options import Options
        from springtide.testing import at

        assert "site-packages" in st.__file__, st.__file__
        rows = [{"k": f"k{i % 3}", "ts": at(f"{i}s")} for i in range(30)]
        source = st.source("rows", st.memory(rows, schema={"k": pl.String, "ts": st.TIME}), ts="ts")
        counts = source.aggregate(by="k", window=st.tumbling("10s"), n=st.count(), name="counts")
        sink = st.memory_sink()
        query = st.Query("counting", counts.to(sink))
        run(query.plan(), "ckpt", Options(2, rows_per_epoch=7))
        assert sorted(map(str, sink.rows().to_dicts())) == sorted(map(str, query.run_reference().rows().to_dicts()))
        print(sink.rows()["n"].sum())
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    assert run(python, "program.py", cwd=tmp_path).splitlines()[-1] == "30"


def test_the_command_is_there(python: Path, tmp_path: Path) -> None:
    command = python.parent / "springtide"
    help_text = run(command, "--help", cwd=tmp_path)
    for name in ("run", "explain", "status", "ui", "monitoring", "checkpoint"):
        assert name in help_text
    assert run(command, "monitoring", "alerts", cwd=tmp_path).startswith("# Alert rules")


def test_the_page_is_there_and_without_its_extra_says_what_to_install(python: Path, tmp_path: Path) -> None:
    look = "from importlib.resources import files; print(sorted(p.name for p in files('springtide.ui').joinpath('assets').iterdir()))"
    assert run(python, "-c", look, cwd=tmp_path).strip() == str(sorted(os.listdir(PACKAGE / "ui" / "assets")))
    (tmp_path / "some").mkdir()
    said = run(python.parent / "springtide", "ui", "some", "--no-open", cwd=tmp_path, ok=False)
    assert "springtide[ui]" in said


WITHOUT = {
    "kafka": "st.kafka('localhost:9092', 't', schema={'k': pl.String})",
    "delta": "st.delta_sink('table')",
    "postgres": "st.postgres_sink('postgresql://localhost/x', 't')",
    "forecast": "st.Foresight(forecast=st.Seasonal(3600)).forecast.fit",
    "traces": "spans_of('q', True)",
    "plots": "chart([None], 'x.svg')",
}


def test_without_an_extra_the_error_says_what_to_install(python: Path, tmp_path: Path) -> None:
    program = f"""
        import polars as pl
        import springtide as st
        from springtide.charts import chart
        from springtide.runtime.tracing import spans_of

        for extra, code in {WITHOUT!r}.items():
            try:
                eval(code)
            except st.SpringtideError as error:
                assert f"springtide[{{extra}}]" in str(error), error
            else:
                raise AssertionError(extra)
    """
    run(python, "-c", textwrap.dedent(program), cwd=tmp_path)


def test_users_programs_are_checked_against_its_types(python: Path, tmp_path: Path) -> None:
    good = """
        import polars as pl

        import springtide as st

        calls = st.source("calls", st.memory(schema={"src": pl.String, "ts": st.TIME}), ts="ts")
        counts: st.Stream = calls.aggregate(by="src", window=st.tumbling("1m"), n=st.count())
        query = st.Query("calls", counts.to(st.memory_sink()))
        rows: pl.DataFrame = query.run_reference().rows()
    """
    (tmp_path / "good.py").write_text(textwrap.dedent(good))
    (tmp_path / "bad.py").write_text(textwrap.dedent(good).replace('by="src"', "by=3.5"))
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    said = run(*check, "good.py", "bad.py", cwd=tmp_path, ok=False)
    assert "bad.py:7: error" in said
    assert "incompatible type" in said
    assert "good.py" not in said
