"""Mount plans, as values and as the words of bubblewrap."""

from pathlib import Path

from yarrow.policy.sandbox.mounts import Bind, Empty, Held, masked, rendered, shown


def test_an_empty_directory_closes_after_the_mounts_below_it() -> None:
    plan = [Empty("/home"), shown("/home/u/ws", writable=True), Empty("/srv")]
    words = "--tmpfs /home --bind /home/u/ws /home/u/ws --tmpfs /srv --remount-ro /home --remount-ro /srv"
    assert rendered(plan) == words.split()


def test_an_empty_directory_that_a_later_mount_covers_is_left_out() -> None:
    home = Bind("/private/home", "/root", writable=True)
    assert rendered([Empty("/root"), home]) == rendered([home])
    assert rendered([Empty("/root/x"), home]) == rendered([home])
    assert "--tmpfs" in rendered([Empty("/root"), Bind("/private", "/rooted")])
    assert "--tmpfs" in rendered([home, Empty("/root")])


def test_each_kind_of_bind_has_its_word() -> None:
    assert rendered([shown("/a"), shown("/b", writable=True), shown("/c", optional=True)]) == (
        ["--ro-bind", "/a", "/a", "--bind", "/b", "/b", "--ro-bind-try", "/c", "/c"]
    )
    assert rendered([Held(7, "/a"), Held(8, "/b", writable=True)]) == [
        "--ro-bind-fd",
        "7",
        "/a",
        "--bind-fd",
        "8",
        "/b",
    ]


def test_what_lies_in_a_masked_directory_needs_no_mask(tmp_path: Path) -> None:
    (tmp_path / "keys/deep").mkdir(parents=True)
    (tmp_path / "keys/deep/one").touch()
    (tmp_path / "keyfile").touch()
    paths = [tmp_path / name for name in ("keys/deep/one", "keys", "keyfile", "missing")]
    assert masked(paths) == [Bind("/dev/null", str(tmp_path / "keyfile")), Empty(str(tmp_path / "keys"))]
