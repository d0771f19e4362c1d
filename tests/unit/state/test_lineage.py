"""Which checkpoint is which: every one has an id, and knows those that it was made of."""

from __future__ import annotations

import json
from pathlib import Path

import springtide as st
from springtide import state
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.state.checkpoint import Checkpoint, Lineage
from springtide.state.savepoints import save
from tests.unit.runtime.crashing import SCHEMA, numbers


def made(root: Path) -> Lineage:
    source = st.source("numbers", st.memory(numbers(30), schema=SCHEMA), ts="ts")
    plan = st.Query("copy", source.to(st.callback(lambda rows, epoch: None))).plan()
    run(plan, root, Options(rows_per_epoch=10))
    return Checkpoint(root).lineage()


def test_each_checkpoint_has_an_id_of_its_own(tmp_path: Path) -> None:
    one, two = made(tmp_path / "one"), made(tmp_path / "two")
    assert one.id != two.id
    assert one.ancestors == ()
    assert made(tmp_path / "one") == one, "a start does not change it"


def test_a_restored_one_knows_what_it_was_made_of(tmp_path: Path) -> None:
    one = made(tmp_path / "one")
    state.backup(tmp_path / "one", tmp_path / "backup")
    assert Checkpoint(tmp_path / "backup").lineage() == one, "a copy in another place is the same checkpoint"
    state.restore(tmp_path / "backup", tmp_path / "two", at=1)
    two = Checkpoint(tmp_path / "two").lineage()
    assert two.ancestors == ((one.id, 1),)
    save(tmp_path / "two", "mark")
    state.restore(tmp_path / "two" / "savepoints" / "mark", tmp_path / "three")
    three = Checkpoint(tmp_path / "three").lineage()
    assert three.ancestors == ((one.id, 1), (two.id, 1))
    assert (three.shared_with(one.id), three.shared_with("another")) == (1, None)


def test_one_that_an_older_version_made_has_an_id_that_stays(tmp_path: Path) -> None:
    made(tmp_path / "one")
    marker = tmp_path / "one" / "springtide.json"
    data = json.loads(marker.read_bytes())
    del data["id"], data["ancestors"]
    marker.write_text(json.dumps(data))
    found = made(tmp_path / "one")
    assert found == made(tmp_path / "one")
    state.restore(tmp_path / "one", tmp_path / "two")
    assert Checkpoint(tmp_path / "two").lineage().ancestors == ((found.id, 2),)
