"""Mount plans, as values and as the words of bubblewrap."""

from pathlib import Path

from yarrow.policy.sandbox.mounts import BindMount, DescriptorMount, EmptyMount, bind_self, mask_paths, render_mounts


def test_an_empty_directory_closes_after_the_mounts_below_it() -> None:
    plan = [EmptyMount("/home"), bind_self("/home/u/ws", writable=True), EmptyMount("/srv")]
    words = "--tmpfs /home --bind /home/u/ws /home/u/ws --tmpfs /srv --remount-ro /home --remount-ro /srv"
    assert render_mounts(plan) == words.split()


def test_an_empty_directory_covered_by_a_later_mount_is_omitted() -> None:
    home = BindMount("/private/home", "/root", writable=True)
    assert render_mounts([EmptyMount("/root"), home]) == render_mounts([home])
    assert render_mounts([EmptyMount("/root/x"), home]) == render_mounts([home])
    assert "--tmpfs" in render_mounts([EmptyMount("/root"), BindMount("/private", "/rooted")])
    assert "--tmpfs" in render_mounts([home, EmptyMount("/root")])


def test_each_kind_of_bind_has_its_option() -> None:
    assert render_mounts([bind_self("/a"), bind_self("/b", writable=True), bind_self("/c", optional=True)]) == (
        ["--ro-bind", "/a", "/a", "--bind", "/b", "/b", "--ro-bind-try", "/c", "/c"]
    )
    assert render_mounts([DescriptorMount(7, "/a"), DescriptorMount(8, "/b", writable=True)]) == [
        "--ro-bind-fd",
        "7",
        "/a",
        "--bind-fd",
        "8",
        "/b",
    ]


def test_paths_in_a_masked_directory_need_no_mask(tmp_path: Path) -> None:
    (tmp_path / "keys/deep").mkdir(parents=True)
    (tmp_path / "keys/deep/one").touch()
    (tmp_path / "keyfile").touch()
    paths = [tmp_path / name for name in ("keys/deep/one", "keys", "keyfile", "missing")]
    assert mask_paths(paths) == [BindMount("/dev/null", str(tmp_path / "keyfile")), EmptyMount(str(tmp_path / "keys"))]
