"""One place for files, whatever it is: a folder, a folder of another node, an object store."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from obstore.exceptions import GenericError

from springtide.state import addresses, object_store, stores
from springtide.state.errors import CheckpointError
from springtide.state.stores import Store

KINDS = ["folder", "file-url", "s3", "s3-folder"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "folder":
            return Store.at(tmp_path / "node")
        case "file-url":
            return Store.at((tmp_path / "a node").as_uri())
        case "s3":
            return Store.at(request.getfixturevalue("s3"))
        case _:
            return Store.at(request.getfixturevalue("s3").replace("?", "/deep/folder?"))


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of the store between tries, none of which is waited; other threads of this process sleep as they did."""
    waited: list[float] = []
    monkeypatch.setattr(stores, "time", SimpleNamespace(sleep=waited.append))
    return waited


def test_what_is_written_is_read(store: Store) -> None:
    store.write("a/b/c.arrow", b"one")
    store.write("a/b/c.arrow", b"another")
    store.write("empty", b"")
    assert (store.read("a/b/c.arrow"), store.read("empty")) == (b"another", b"")
    assert store.exists("a/b/c.arrow")
    assert not store.exists("a/b")
    assert not store.exists("a/x")
    assert store.size("a/b/c.arrow") == 7
    with pytest.raises(FileNotFoundError, match="has no file a/x"):
        store.size("a/x")
    with pytest.raises(FileNotFoundError, match="has no file a/x"):
        store.read("a/x")


def test_files_are_listed_with_their_sizes(store: Store) -> None:
    assert store.list() == []
    for path in ("manifests/000000002", "manifests/000000001", "state/x/1.arrow", "top"):
        store.write(path, path.encode())
    assert store.list() == ["manifests/000000001", "manifests/000000002", "state/x/1.arrow", "top"]
    assert store.files("state") == {"state/x/1.arrow": 15}
    assert store.list("nowhere") == []
    assert store.under("state").list() == ["x/1.arrow"]
    assert store.under("state/x").read("1.arrow") == b"state/x/1.arrow"


def test_files_go_in_and_out(store: Store, tmp_path: Path) -> None:
    for name, data in {"big": b"\x00\x01" * 10_000_000, "small": b"s", "none": b""}.items():
        (tmp_path / name).write_bytes(data)
        store.put(tmp_path / name, f"state/{name}")
        store.fetch(f"state/{name}", tmp_path / "new" / "folder" / name)
        assert (tmp_path / "new" / "folder" / name).read_bytes() == data
    with pytest.raises(FileNotFoundError, match="has no file state/x"):
        store.fetch("state/x", tmp_path / "new" / "x")
    assert {f.name for f in (tmp_path / "new").rglob("*")} == {"folder", "big", "small", "none"}


def test_removing_twice_is_no_error(store: Store) -> None:
    store.write("a/b", b"x")
    store.delete("a/b")
    store.delete("a/b")
    assert store.list() == []


def test_a_store_is_a_plain_value(store: Store) -> None:
    store.write("a", b"x")  # open now
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    assert again.read("a") == b"x"
    assert Store.at(store) is store


def test_two_folders_are_two_nodes(tmp_path: Path) -> None:
    one, other = Store.at(tmp_path / "one"), Store.at(tmp_path / "other")
    one.write("state/1.arrow", b"rows")
    one.fetch("state/1.arrow", tmp_path / "here")
    other.put(tmp_path / "here", "state/1.arrow")
    assert one.files() == other.files()
    assert one.url == str(tmp_path / "one")


def test_a_relative_folder_is_the_same_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.at("ckpt/")
    monkeypatch.chdir("/")
    store.write("a", b"x")
    assert (tmp_path / "ckpt" / "a").exists()


# ── trouble ───────────────────────────────────────────────────────────────────────────────────────────────────────


def failing(times: int, error: Exception, real: Callable[..., object]) -> Callable[..., object]:
    left = [times]

    def act(*given: object, **named: object) -> object:
        if left[0]:
            left[0] -= 1
            raise error
        return real(*given, **named)

    return act


def test_what_fails_for_a_moment_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: list[float]
) -> None:
    store = Store.at(tmp_path)
    monkeypatch.setattr(stores.os, "replace", failing(2, OSError(5, "input/output error"), stores.os.replace))
    store.write("a", b"x")
    assert store.read("a") == b"x"
    assert patience == [0.1, 0.4]
    assert [f.name for f in tmp_path.iterdir()] == ["a"]


def test_what_keeps_failing_says_where_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: list[float]
) -> None:
    store = Store.at(tmp_path)
    monkeypatch.setattr(stores.os, "replace", failing(99, OSError(28, "No space left on device"), stores.os.replace))
    with pytest.raises(CheckpointError) as caught:
        store.write("state/a", b"x")
    assert str(caught.value).startswith(
        f"checkpoint {tmp_path} cannot write state/a: [Errno 28] No space left on device; check "
    )
    assert patience == [0.1, 0.4, 1.6]
    assert store.list() == []


def test_a_server_that_is_not_there(patience: list[float]) -> None:
    store = Store.at("s3://hidden-key:hidden-pass@bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=r")
    with pytest.raises(CheckpointError, match=r"s3://bucket/x\?.* cannot read a: .*; check that the place") as caught:
        store.read("a")
    assert "hidden" not in str(caught.value)
    assert len(patience) == 3


def test_a_bucket_that_is_not_there_is_not_waited_for(s3: str, patience: list[float]) -> None:
    store = Store.at(s3.replace("s3://bucket-", "s3://no-bucket-"))
    with pytest.raises(CheckpointError, match=r"cannot write a: .*[Bb]ucket"):
        store.write("a", b"x")
    assert patience == []


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/x?access_key=hidden-key&secret_key=hidden/pass%2Bword&region=r",
        "s3://hidden-key:hidden%2Fpass+word@bucket/x?region=r",
    ],
)
def test_secrets_are_never_shown(address: str) -> None:
    store = Store.at(address)
    assert (store.url, repr(store)) == ("s3://bucket/x?region=r", "Store('s3://bucket/x?region=r')")
    assert "hidden" not in repr(store.under("y"))
    told = store._error("read", "a", OSError(f"no answer for {address}, hidden-key, hidden/pass+word"))
    assert "hidden" not in str(told)


@pytest.mark.parametrize(
    ("address", "options", "kind"),
    [
        ("s3://bucket/a b/c", {"region": "eu-central-1"}, "S3Store"),
        ("s3a://bucket/a b/c", {"region": "eu-central-1"}, "S3Store"),
        ("gs://bucket/a b/c", {"google_skip_signature": "true"}, "GCSStore"),
        ("gcs://bucket/a b/c", {"google_skip_signature": "true"}, "GCSStore"),
        ("az://bucket/a b/c", {"azure_storage_account_name": "me", "azure_storage_account_key": "aGk="}, "AzureStore"),
        ("abfs://bucket@me.dfs.core.windows.net/a b/c", {"azure_storage_account_key": "aGk="}, "AzureStore"),
        ("abfss://bucket@me.dfs.core.windows.net/a b/c", {"azure_storage_account_key": "aGk="}, "AzureStore"),
    ],
)
def test_every_kind_of_address_opens_its_store(address: str, options: dict[str, str], kind: str) -> None:
    """Nothing is asked of it: most of them no test can reach."""
    opened = object_store.ObjectFolder(addresses.with_options(address, options))._store
    assert type(opened).__name__ == kind
    assert str(opened.prefix) == "a b/c"


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("s3", "set AWS_ACCESS_KEY_ID and"),
        ("gs", "set GOOGLE_APPLICATION_CREDENTIALS or"),
        ("az", "set AZURE_STORAGE_ACCOUNT_NAME and"),
    ],
)
def test_where_credentials_come_from_is_said_for_each_kind(kind: str, hint: str) -> None:
    """Where there are none, the store's library asks the machine itself, at an address that all clouds have."""
    said = "Error performing PUT http://169.254.169.254/latest/api/token in 3s"
    with pytest.raises(PermissionError, match=f"there are no credentials: {hint}"), object_store._errors(kind):
        raise GenericError(said)


def test_an_unknown_part_of_an_address_is_named(patience: list[float]) -> None:
    with pytest.raises(CheckpointError, match="an s3 address has no option regoin; there are region, "):
        Store.at("s3://bucket/x?regoin=eu").read("a")
    assert patience == []


@pytest.mark.parametrize("address", ["nope://bucket/x", "hdfs://host/x", "http://host/x"])
def test_a_kind_of_store_that_nobody_knows_is_refused_at_once(address: str) -> None:
    with pytest.raises(CheckpointError, match=r"kind of store: .*://; use a folder \(a path"):
        Store.at(address)


@pytest.mark.parametrize("address", ["s3:///x", "s3://", "s3://key:pass@/x"])
def test_an_address_without_a_bucket_is_refused_at_once(address: str) -> None:
    with pytest.raises(CheckpointError, match="names no bucket; write it like s3://BUCKET/FOLDER") as caught:
        Store.at(address)
    assert "pass" not in str(caught.value)


def test_options_are_parts_of_the_address_and_secrets_among_them_are_not_shown(s3: str) -> None:
    bare, _, options = s3.partition("?")
    given = dict(part.split("=") for part in options.split("&"))
    store = Store.at(bare, given)
    store.write("a", b"x")
    assert Store.at(s3).read("a") == b"x"
    assert "hush-hush" not in repr(store) + store.url + repr(store.under("b"))


def test_credentials_of_the_environment_and_of_profiles(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: list[float]
) -> None:
    bare, _, options = s3.partition("?")
    given = dict(part.split("=") for part in options.split("&"))
    endpoint = {"endpoint_override": given["endpoint_override"], "scheme": "http"}
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = me\naws_secret_access_key = hush\n")
    (tmp_path / "config").write_text("[profile work]\nregion = eu-central-1\n")
    Store.at(bare, endpoint | {"profile": "work"}).write("by-profile", b"x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{given['endpoint_override']}")
    assert Store.at(bare).list() == ["by-profile"]
    with pytest.raises(CheckpointError, match="there is no profile wrok, neither in"):
        Store.at(bare, endpoint | {"profile": "wrok"}).read("a")


def test_a_store_that_cannot_be_written_is_refused(s3: str, tmp_path: Path, patience: list[float]) -> None:
    Store.at(s3).check_writable()
    assert Store.at(s3).list() == []
    with pytest.raises(CheckpointError, match=r"cannot write \.probe-.*: .*[Bb]ucket"):
        Store.at(s3.replace("s3://bucket-", "s3://no-bucket-")).check_writable()
