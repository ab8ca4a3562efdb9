#!/usr/bin/env bash
# Installs the system programs that the tests need, if they are missing: scripts/system.sh
set -euo pipefail
missing=()
command -v rg >/dev/null || missing+=(ripgrep)
command -v openssl >/dev/null || missing+=(openssl)
command -v bwrap >/dev/null || missing+=(bubblewrap)
command -v tmux >/dev/null || missing+=(tmux)
command -v screen >/dev/null || missing+=(screen)
command -v git >/dev/null || missing+=(git)
command -v zsh >/dev/null || missing+=(zsh)
command -v fish >/dev/null || missing+=(fish)
command -v strace >/dev/null || missing+=(strace)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
# Development tools that tests/workflows runs in the sandbox. They must be the system's own programs: an ordinary user
# runs them too and cannot read the home of another user.
for program in curl:curl cc:gcc make:make ssh-keygen:openssh-client cargo:cargo go:golang-go gradle:gradle \
  poetry:python3-poetry pipenv:pipenv; do
  [ -x "/usr/bin/${program%%:*}" ] || missing+=("${program#*:}")
done
# The executable of a release contains the Python library, which Debian ships as a separate package.
library=$(python3 - <<'END'
import ctypes.util, os, sys, sysconfig
name = "python%d.%d" % sys.version_info[:2]
file = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "")
print("" if os.path.isfile(file) or ctypes.util.find_library(name) else f"lib{name}")
END
)
[ -z "$library" ] || missing+=("$library")
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "the tests need these programs, please install them: ${missing[*]}" >&2
  exit 1
fi
run=()
[ "$(id -u)" -eq 0 ] || run=(sudo)
"${run[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${run[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
