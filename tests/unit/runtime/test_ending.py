"""Workers whose connection is gone end without a traceback; whatever else goes wrong is said as before."""

from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from springtide.runtime.spark.ending import end_quietly


def daemon(error: Exception | None, name: str = "pyspark.daemon") -> ModuleType:
    made = ModuleType("__main__")
    made.__spec__ = ModuleSpec(name, None)

    def worker(connection: object, authenticated: bool) -> int:
        if error is not None:
            raise error
        return 0

    made.worker = worker  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(104, "reset")])
def test_a_worker_whose_connection_is_gone_ends(error: Exception) -> None:
    main = daemon(error)
    end_quietly(main)
    assert main.worker(None, True) == 1, "the daemon's loop ends with any code but 0"


def test_a_worker_goes_on_with_the_next_task() -> None:
    main = daemon(None)
    end_quietly(main)
    once = main.worker
    end_quietly(main)
    assert main.worker is once
    assert main.worker(None, True) == 0


def test_other_errors_are_as_before() -> None:
    main = daemon(ValueError("something else"))
    end_quietly(main)
    with pytest.raises(ValueError, match="something else"):
        main.worker(None, True)


def test_other_programs_are_left_alone() -> None:
    main = daemon(BrokenPipeError(32, "Broken pipe"), "somebody.else")
    end_quietly(main)
    with pytest.raises(BrokenPipeError):
        main.worker(None, True)
