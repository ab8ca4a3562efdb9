"""A desktop of one program: the only one that is found by its name."""

from doubles.world import World


def program(world: World, name: str, body: str) -> dict[str, str]:
    """Create the only program on PATH; return the environment in which it is found."""
    folder = world.home / "bin"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return {"PATH": str(folder), "WAYLAND_DISPLAY": "wayland-7", "DISPLAY": ":7"}
