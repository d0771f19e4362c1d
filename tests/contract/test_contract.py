"""Some cases of every kind; `make contract` runs as many as there is time for.

`pytest tests/contract --seed 7 -k engine` runs one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.kinds import KINDS
from tests.contract.runner import Job, attempt, memory_folder, run

CASES = 36
CHUNK = 12


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cut the seeds into chunks, which two processes share; `--seed` leaves one."""
    if "seeds" in metafunc.fixturenames:
        one = metafunc.config.getoption("--seed")
        ranges = [range(low, low + CHUNK) for low in range(0, CASES, CHUNK)]
        if one is not None:
            ranges = [range(one, one + 1)]
        chunks = [(kind, seeds) for kind in KINDS for seeds in ranges]
        metafunc.parametrize(
            ("kind", "seeds"), chunks, ids=[f"{kind}-{seeds[0]}-{seeds[-1]}" for kind, seeds in chunks]
        )


def test_the_contract_is_kept(kind: str, seeds: range) -> None:
    with memory_folder() as folder:
        for seed in seeds:
            what = attempt(KINDS[kind].run_case, seed, folder / str(seed))
            assert what is None, (
                f"{kind}, seed {seed}: {what}\nto run it again: make contract KIND={kind} SEED={seed} CASES=1"
            )


def test_cases_run_in_processes_of_their_own() -> None:
    total = run(Job(["engine"], seed=0, seconds=600, cases=2), processes=2)
    assert total.counts == {"engine": 2}
    assert not total.wrong


@pytest.mark.parametrize(("kind", "what"), [("hangs", "not done after 3 s"), ("dies", "the process died, exit code 7")])
def test_a_case_that_hangs_or_ends_its_process_is_wrong_and_the_others_are_run(kind: str, what: str) -> None:
    job = Job([kind], seed=0, seconds=600, cases=4, stuck=3, catalogue="tests.contract.misbehaving")
    total = run(job, processes=1)
    assert (kind, 1, what) in [(w.kind, w.seed, w.what) for w in total.wrong]
    assert total.counts[kind] >= (4 if kind == "hangs" else 3)


def test_what_a_case_raises_or_says_is_wrong(tmp_path: Path) -> None:
    def says(seed: int, folder: Path) -> str | None:
        (folder / "file").touch()
        return f"{seed} is odd" if seed % 2 else None

    def raises(seed: int, folder: Path) -> str | None:
        raise ValueError(seed)

    assert attempt(says, 2, tmp_path / "a") is None
    assert attempt(says, 3, tmp_path / "a") == "3 is odd"
    assert "ValueError: 3" in str(attempt(raises, 3, tmp_path / "a"))
    assert not (tmp_path / "a").exists()
