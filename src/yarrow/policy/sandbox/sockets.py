"""Sockets of daemons, which can give access to a whole account: found by directory, name and client variables."""

import os
import re
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

DAEMON_DIRECTORIES = (
    *("/var/snap", "/var/lib/lxd", "/var/lib/incus", "/var/lib/docker", "/var/lib/containers", "/var/lib/containerd"),
    *("/var/lib/libvirt", "/var/lib/rancher", "/var/lib/kubelet", "/var/lib/buildkit", "/var/lib/nomad", "/var/vcap"),
    *("/var/lib/mysql", "/var/lib/mysql-files", "/var/lib/postgresql", "/var/lib/pgsql", "/var/lib/redis"),
    *("/var/lib/valkey", "/var/lib/mongodb", "/var/lib/clickhouse", "/var/lib/snapd", "/var/lib/waydroid"),
    *("/var/lib/sss", "/var/lib/samba", "/var/lib/tailscale", "/var/lib/nginx", "/var/lib/php", "/var/agentx"),
    *("/var/lib/dbus", "/var/lib/gdm", "/var/lib/gdm3", "/var/lib/lightdm", "/var/lib/sddm", "/var/lib/teleport"),
    *(
        "/opt/containerd",
        "/opt/docker",
        "/opt/nomad",
        "/opt/lampp",
        "/opt/bitnami",
        "/opt/datadog-agent",
        "/opt/rancher",
    ),
    *("/opt/1Password", "/opt/homebrew/var", "/opt/mysql", "/opt/postgresql", "/opt/podman", "/opt/k3s"),
)
"""Directories of daemons outside those hidden as a whole; every socket in them is masked."""
SOCKET_NAMES = (
    r"(?:docker|podman|containerd|crio|buildkitd|dockershim|cri-dockerd|lima|colima|rootlesskit)[\w.-]*[.]sock(?:et)?"
    r"|unix[.]socket(?:[.]user)?|libvirt[\w-]*sock[\w-]*|virt\w+-sock[\w-]*|snapd[\w-]*[.]socket|qmp[\w.-]*|.*[.]qmp"
    r"|system_bus_socket|bus|dbus-\w+|S[.](?:gpg-agent|scdaemon|dirmngr|keyboxd|uiserver)[\w.]*|ssh-agent[\w.-]*"
    r"|agent[.]\d+|X\d+|wayland-\d+|pipewire-\d+[\w-]*|mysqlx?d?[.]sock|mariadbd?[.]sock|[.]s[.]PGSQL[.]\d+"
    r"|redis[\w.-]*[.]sock|valkey[\w.-]*[.]sock|mongodb-\d+[.]sock|memcached[.]sock|tailscaled[.]sock"
    r"|vpnkit[\w.-]*|op-(?:daemon|agent)[\w.]*[.]sock|kwallet\d?[.]socket|keyring[\w.-]*|nomad[\w.-]*[.]sock"
    r"|consul[\w.-]*[.]sock|vault[\w.-]*[.]sock|php[\w.-]*fpm[\w.-]*[.]sock|supervisor[\w.-]*[.]sock|cups[.]sock"
)
"""Pattern of names of sockets of daemons, and of agents that hold keys, wherever they listen."""
VARIABLES = (
    *("SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DOCKER_HOST", "CONTAINER_HOST", "PODMAN_HOST", "BUILDKIT_HOST", "LXD_SOCKET"),
    *("DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "WAYLAND_DISPLAY", "PULSE_SERVER", "LIBVIRT_DEFAULT_URI"),
    *("SWAYSOCK", "I3SOCK", "NIRI_SOCKET", "KITTY_LISTEN_ON", "TMUX", "STY", "VSCODE_IPC_HOOK_CLI", "NVIM"),
    *("NVIM_LISTEN_ADDRESS", "EMACS_SOCKET_NAME", "GNOME_KEYRING_CONTROL", "SUDO_ASKPASS_SOCKET", "INCUS_SOCKET"),
    *("CONTAINERD_ADDRESS", "PGHOST", "MYSQL_UNIX_PORT", "REDIS_URL", "SSH_AGENT_SOCK", "OP_SERVICE_SOCKET"),
)
"""Environment variables through which clients find a daemon, an agent, a display or an editor."""
MAX_DEPTH = 4
"""Maximum levels of directories scanned below a daemon's directory."""
MAX_ENTRIES = 4_096
"""Maximum entries scanned in all daemon directories together."""
CACHE_SECONDS = 60.0
"""Seconds for which a scan of these directories is cached; newer sockets are found in the kernel's list."""
MAX_SOCKETS = 64
"""Maximum sockets masked individually, since each needs a mount."""
_LISTENING = "/proc/net/unix"


def find_client_sockets(environment: Mapping[str, str]) -> list[str]:
    """Return the sockets named by an environment."""
    named = (re.findall(r"/[^\s,;?:]+", value) for name in VARIABLES if (value := environment.get(name)))
    # A URL has two slashes before its path.
    paths = dict.fromkeys(os.path.normpath(path) for each in named for path in each)
    return [path for path in (re.sub("^/+", "/", path) for path in paths) if _is_socket(path)]


def find_daemon_sockets() -> list[str]:
    """Return the sockets of daemons on this machine, wherever they are."""
    found = dict.fromkeys((*_sockets_in_directories(), *filter(_is_socket, _listening_sockets())))
    return list(found)[:MAX_SOCKETS]


def _listening_sockets() -> Iterator[str]:
    """Yield the sockets listed by the kernel whose names are those of daemons."""
    try:
        with open(_LISTENING, "rb") as opened:
            text = opened.read().decode("utf-8", "surrogateescape")
    except OSError:
        return
    for path in set(re.findall(r" (/[^\n]+)$", text, re.MULTILINE)):
        if re.fullmatch(SOCKET_NAMES, path.rpartition("/")[2]):
            yield path


_cache: dict[tuple[str, ...], tuple[float, list[str]]] = {}


def _sockets_in_directories() -> list[str]:
    now = time.monotonic()
    known = _cache.get(DAEMON_DIRECTORIES)
    if known is None or now - known[0] > CACHE_SECONDS:
        known = _cache[DAEMON_DIRECTORIES] = (now, list(_walk_directories()))
    return known[1]


def _walk_directories() -> Iterator[str]:
    waiting = deque((directory, 1) for directory in DAEMON_DIRECTORIES)
    left = MAX_ENTRIES
    while waiting and left > 0:
        directory, depth = waiting.popleft()
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in islice(entries, left):
                left -= 1
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH:
                        waiting.append((entry.path, depth + 1))
                elif not entry.is_symlink() and not entry.is_file() and _is_socket(entry.path):
                    yield entry.path


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116 (runs for each call)
    except (OSError, ValueError):
        return False
