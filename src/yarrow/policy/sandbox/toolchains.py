"""Toolchains and environments: what belongs to a program directory, and where they are located below a home."""

PROGRAM_DIRECTORIES = frozenset({"bin", "sbin", "shims", "condabin", ".bin", "Scripts", "cmd"})
"""Names of program directories that belong to an installation around them."""
CORE_DIRECTORIES = frozenset(
    {"bin", "sbin", "shims", "lib", "lib32", "lib64", "libx32", "libexec", "include", "share", "man", "versions"}
    | {"pyvenv.cfg", "conda-meta", "condabin", "pkg"}
)
"""Names that belong to a program directory anywhere."""
TOOL_DIRECTORIES = CORE_DIRECTORIES | {
    # Version managers.
    *("installs", "installation", "plugins", "toolchains", "tools", "candidates", "node-versions", "aliases", "alias"),
    *("python", "ghc", "envs", "pkgs", "venvs", "shared", "py", "install", "global", "store", "nodejs", "runtimes"),
    *("completions", "contrib", "libs", "sdk", "sdks", "shell", "currentjdk", "current", "host", "packs"),
    # Homebrew, conda, Nix.
    *("Cellar", "Caskroom", "Homebrew", "opt", "Frameworks", "compiler_compat", "ssl", "manifest"),
    # Java, Go, Node, Ruby, Perl, TeX, Haskell, Flutter, cloud tools.
    *("jmods", "jre", "jbr", "legal", "release", "boot", "init.d", "misc", "pkg", "src", "VERSION", "go.env"),
    *(
        "api",
        "test",
        "node_modules",
        "gems",
        "specifications",
        "extensions",
        "build_info",
        "modules",
        "ext",
        "rubygems",
    ),
    *("texmf-dist", "texmf-var", "texmf-config", "tlpkg", "repo", "registry", "git", "platform", "packages"),
    *("upstream", "build-tools", "platform-tools", "cmdline-tools", "platforms", "licenses", "ndk", "emulator"),
    *("dist", "engine", "version", "libs.versions", "internal", "lang", "vendor", "standard", "doc", "docs"),
    # Files.
    *("settings.toml", "nvm.sh", "nvm-exec", "bash_completion", "asdf.sh", "asdf.fish"),
    *("rbenv.d", "pyenv.d", "opam-init", "templates", ".crates.toml", ".crates2.json"),
    *(".opam-switch", "switch-state", "lock", "config.lock", "update-hashes", "environments.txt", "package.json"),
}
"""Names that belong to a program directory inside a tool directory, such as `~/.tool/bin` and `/home/linuxbrew`."""
SETTINGS_MARKERS = frozenset({"conda-meta", "Cellar", "jmods", "boot"})
"""Names that mark an installation whose settings are its own, not a user's."""
SETTINGS_DIRECTORIES = frozenset({"etc", "conf"})
"""Names that belong to an installation marked by `SETTINGS_MARKERS`."""
INSTALLATION_MARKERS = frozenset(
    {"pyvenv.cfg", "conda-meta", "release", "VERSION", "Cellar", "gems", "tlpkg", "nvm.sh"}
)
"""Names that mark an installation, even in directories where users keep their own work."""
OTHER_FILES = (
    r"(?:LICENSE|LICENCE|COPYING|NOTICE|README|CHANGELOG|CHANGES|AUTHORS)[\w.-]*|CACHEDIR[.]TAG|[.]gitignore|[.]lock"
)
"""Pattern of insignificant files, which do not prevent a directory from being shown as a whole."""
PROJECT_TREES = ("vendor/bin", "node_modules/.bin")
"""Ends of program directories whose parent is shown as a whole, because the programs are inside packages there."""
TOOLCHAIN_DIRECTORIES = (
    *(".pyenv", ".rbenv", ".nodenv", ".nvm", ".volta", ".fnm", ".asdf", ".sdkman", ".bun", ".deno", ".jenv", ".goenv"),
    *(".cargo", ".rustup", ".ghcup", ".opam", ".juliaup", ".elan", ".gvm", ".phpenv", ".plenv", ".tfenv", ".n"),
    *(".local/bin", ".local/lib", ".local/pipx", ".local/share/pipx", ".local/share/uv", ".local/share/mise"),
    *(".local/share/fnm", ".local/share/pnpm", ".local/share/rtx", ".local/share/pypoetry", ".local/share/coursier"),
    *(".local/share/aquaproj-aqua", ".local/share/virtualenv", ".local/share/jupyter/kernels", ".npm-global"),
    *(".local/share/virtualenvs", ".virtualenvs", ".cache/pypoetry/virtualenvs", ".poetry", ".rye", ".pixi"),
    *(".proto", ".mise", ".nix-profile", ".local/state/nix/profile", ".linuxbrew", ".dotnet", ".krew", ".modular"),
    *("go", "miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda", ".micromamba", ".gem"),
    *(".stack", ".cabal/bin", ".cabal/store", ".luarocks", "perl5", ".wasmtime", ".wasmer", ".jbang", ".fvm"),
)
"""Directories below a home whose programs are shown even if they are not on PATH."""
WHOLE_DIRECTORIES = frozenset(
    {".local/bin", ".local/lib", ".local/share/pnpm", ".local/share/virtualenvs", ".virtualenvs", ".cabal/bin"}
    | {".cabal/store", ".cache/pypoetry/virtualenvs", ".local/share/virtualenv", ".local/share/jupyter/kernels", ".n"}
    | {".dotnet", ".gem", ".local/share/pypoetry"}
)
"""Members of `TOOLCHAIN_DIRECTORIES` that are shown as a whole."""
VARIABLES = (
    *("VIRTUAL_ENV", "CONDA_PREFIX", "MAMBA_ROOT_PREFIX", "PYENV_ROOT", "POETRY_HOME", "PIPX_HOME", "PIXI_HOME"),
    *("UV_PYTHON_INSTALL_DIR", "UV_TOOL_DIR", "WORKON_HOME", "PIPENV_CUSTOM_VENV_NAME", "RYE_HOME", "NVM_DIR"),
    *("NVM_BIN", "VOLTA_HOME", "FNM_DIR", "FNM_MULTISHELL_PATH", "N_PREFIX", "NODENV_ROOT", "PNPM_HOME"),
    *("BUN_INSTALL", "DENO_INSTALL", "RUSTUP_HOME", "CARGO_HOME", "GOROOT", "GOPATH", "RBENV_ROOT", "GEM_HOME"),
    *("ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "PROTO_HOME", "SDKMAN_DIR", "JAVA_HOME", "GRADLE_HOME"),
    *("MAVEN_HOME", "M2_HOME", "KOTLIN_HOME", "SCALA_HOME", "ANDROID_HOME", "ANDROID_SDK_ROOT", "DOTNET_ROOT"),
    *("HOMEBREW_PREFIX", "OPAM_SWITCH_PREFIX", "GHCUP_INSTALL_BASE_PREFIX", "FLUTTER_ROOT", "ZIG_HOME", "R_HOME"),
)
"""Environment variables that name an installation or its program directory."""
LIBRARY_VARIABLES = (
    *("PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "NODE_PATH", "PERL5LIB", "RUBYLIB", "CLASSPATH", "R_LIBS", "R_LIBS_USER"),
)
"""Environment variables that name library directories and archives."""
BROAD_DIRECTORIES = frozenset(
    {".config", ".local", ".local/share", ".local/state", ".cache", ".var", "Documents", "Desktop", "Downloads"}
    | {"Pictures", "Music", "Videos", "Public", "Templates", "snap", ".dotfiles", "dotfiles", "Dropbox", "OneDrive"}
)
"""Directories below a home with more than programs: PATH may name a `bin` in them, but not themselves."""
WINDOWS_DRIVE = r"/mnt/[a-z](?:/.*)?"
"""Windows drives as shown by WSL; their programs run outside any sandbox, and scanning them is slow."""
