"""Paths and names of files below a home directory that contain keys, tokens and passwords."""

import os
import re
from functools import lru_cache

SECRET_PATHS = (
    # Keys of shells, mail and the desktop.
    *(".ssh", ".gnupg", ".password-store", ".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".pki", ".putty"),
    *(".local/share/keyrings", ".local/share/kwalletd", ".local/share/gopass", ".config/op", ".config/Bitwarden"),
    *(".config/Bitwarden CLI", ".config/1Password", ".1password", ".config/keepassxc", ".config/sops", ".config/age"),
    *(".config/rclone", ".config/msmtp", ".msmtprc", ".mbsyncrc", ".fetchmailrc", ".thunderbird", ".config/remmina"),
    *(".rclone.conf", ".s3cfg", ".boto", ".smbcredentials", ".vnc/passwd", ".Xauthority", ".ICEauthority", ".mutt"),
    # Browsers with their cookies.
    *(".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge"),
    *(".config/vivaldi", ".config/opera", ".zen", ".librewolf", ".config/Slack", ".config/discord", ".config/Signal"),
    # Clouds and clusters.
    *(".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/containers/auth.json", ".config/helm"),
    *(".terraform.d/credentials.tfrc.json", ".terraformrc", ".vault-token", ".config/doctl", ".config/hcloud"),
    *(
        ".config/linode-cli",
        ".linode-cli",
        ".oci",
        ".bluemix",
        ".aliyun",
        ".tccli",
        ".scw",
        ".config/scw",
        ".fly/config.yml",
    ),
    *(
        ".config/flyctl",
        ".config/railway",
        ".railway/config.json",
        ".config/heroku",
        ".config/netlify",
        ".netlify/config.json",
    ),
    *(".local/share/com.vercel.cli", ".config/vercel", ".vercel", ".config/.wrangler", ".wrangler/config"),
    *(
        ".cloudflared",
        ".config/configstore",
        ".config/firebase",
        ".supabase/access-token",
        ".config/stripe",
        ".config/ngrok",
    ),
    *(".ngrok2", ".pulumi/credentials.json", ".pulumi/accounts.json", ".config/pulumi", ".minikube", ".config/k9s"),
    *(
        ".mc/config.json",
        ".databrickscfg",
        ".databricks",
        ".snowflake",
        ".snowsql",
        ".config/gspread",
        ".dbt/profiles.yml",
    ),
    *(".config/nats", ".config/tailscale", ".chef", ".vagrant.d/data", ".ansible/galaxy_token", ".ansible_vault"),
    # Code forges.
    *(".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli", ".config/tea"),
    *(".config/lab", ".config/jira", ".config/.jira", ".config/sentry", ".sentryclirc", ".hub", ".arcrc"),
    # Package registries.
    *(".npmrc", ".npm-global/etc/npmrc", ".yarnrc.yml", ".yarnrc", ".bunfig.toml", ".pypirc", ".pip", ".config/pip"),
    *(".config/pypoetry", ".config/hatch", ".local/share/hatch/publish", ".local/share/uv/credentials", ".condarc"),
    *(
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".gem/credentials",
        ".local/share/gem/credentials",
        ".bundle/config",
    ),
    *(".composer/auth.json", ".config/composer/auth.json", ".m2/settings.xml", ".m2/settings-security.xml"),
    *(
        ".gradle/gradle.properties",
        ".sbt/.credentials",
        ".sbt/credentials",
        ".ivy2/.credentials",
        ".lein/credentials.clj",
    ),
    *(
        ".nuget/NuGet",
        ".dotnet/corefx",
        ".config/NuGet",
        ".hex/hex.config",
        ".config/hex",
        ".pub-cache/credentials.json",
        ".config/dart",
    ),
    *(".config/jfrog", ".jfrog", ".cpanrc", ".pause", ".cabal/config", ".config/cabal", ".rpmmacros", ".anaconda"),
    *(
        ".continuum",
        ".pixi/credentials",
        ".rattler/credentials.json",
        ".config/pixi",
        ".conan/.conan.db",
        ".conan2/credentials.json",
    ),
    # Databases.
    *(".pgpass", ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".dbshell", ".redisclirc", ".config/dbeaver", ".pgadmin"),
    *(".local/share/DBeaverData", ".sqldeveloper", ".odbc.ini", ".config/usql", ".config/pgcli", ".config/mycli"),
    # Models, notebooks and coding agents.
    *(".claude", ".claude.json", ".config/claude", ".config/Claude", ".codex", ".gemini", ".config/opencode"),
    *(".local/share/opencode", ".pi", ".qwen", ".kimi", ".vibe", ".aider.conf.yml", ".continue", ".cursor"),
    *(".config/Cursor", ".config/Code", ".vscode-server/data", ".config/github-copilot", ".copilot", ".config/goose"),
    *(".config/crush", ".local/share/crush", ".config/amp", ".local/share/amp", ".factory", ".augment", ".cline"),
    *(".roo", ".grok", ".openhands", ".kiro", ".codeium", ".config/zed", ".config/aichat", ".config/mods", ".llm"),
    *(".config/io.datasette.llm", ".config/fabric", ".config/openai", ".openai", ".anthropic", ".config/anthropic"),
    *(".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".config/wandb", ".kaggle"),
    *(
        ".config/kaggle",
        ".config/replicate",
        ".replicate",
        ".modal.toml",
        ".lightning",
        ".cometml.config",
        ".ollama/id_ed25519",
    ),
    *(".jupyter", ".config/Google", ".config/JetBrains", ".local/share/JetBrains"),
    # Wallets.
    *(".bitcoin", ".ethereum", ".config/solana", ".foundry/keystores", ".electrum", ".monero"),
    # Shell and REPL histories.
    *(".bash_history", ".zsh_history", ".local/share/fish", ".python_history", ".node_repl_history"),
    *(".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history", ".lesshst", ".local/share/atuin"),
)
"""Paths below a home directory that file tools and sandboxes keep closed, even if the home is a workspace."""
_DATA = r"(?:[-_.](?:json|toml|ya?ml|ini|xml|cfg|conf|txt|db|sqlite3?|properties|enc|tfrc|bak|old|orig|lock|\d+)|~)"
SECRET_NAMES = (
    rf"[.]?(?:[\w-]+[-_.])?(?:credentials?|creds?)(?:[-_][\w-]+)?{_DATA}*",
    rf"[.]?(?:[\w-]+[-_.])?(?:secrets?|tokens?|passwords?|passwd|apikeys?|api[-_]keys?){_DATA}*",
    rf"auth{_DATA}+|oauth[\w-]*{_DATA}+|[.]auth{_DATA}*|stored_tokens|access[-_]token[\w-]*{_DATA}*",
    rf"client[-_]secret[\w.-]*{_DATA}|service[-_]account[\w.-]*{_DATA}|application_default_credentials{_DATA}",
    r"id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:[-_.](?!pub$)[\w.-]+)?|ssh_host_\w+_key",
    r"[._]?(?:netrc|npmrc|pypirc|pgpass|htpasswd|dockercfg|git-credentials|vault-token|boto|s3cfg)",
    r".*[.](?:p8|p12|pfx|jks|keystore|kdbx?|ppk|ovpn|gpg|age)",
    r"cookies(?:[.]\w+)*|cookie[.]txt",
)
"""Patterns for names of files and directories that contain keys anywhere below a home directory, ignoring case."""
PACKAGE_DIRECTORIES = frozenset(
    {"site-packages", "dist-packages", "node_modules", "registry", "pkgs", "gems", "mod", "rustlib"}
)
"""Package directories, whose files are the same for everyone."""
_PUBLIC = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?(?:CERTIFICATE|PUBLIC KEY|RSA PUBLIC KEY|DH PARAMETERS)")
KEY_FILE_BYTES = 1_048_576
"""Maximum bytes read of a file that may contain certificates."""


def is_secret_name(name: str) -> bool:
    """Return whether a file or directory with this name contains keys, anywhere below a home directory."""
    return _names().fullmatch(name.casefold()) is not None


def may_hold_key(name: str) -> bool:
    """Return whether a file with this name may contain a private key; it may also contain public certificates."""
    return name[-4:].casefold() in {".pem", ".key"}


def holds_only_certificates(path: str) -> bool:
    """Return whether a file contains only certificates or public keys; an unreadable file does not."""
    try:
        with open(path, "rb") as opened:
            text = opened.read(KEY_FILE_BYTES)
    except (OSError, ValueError):
        return False
    return b"PRIVATE KEY" not in text and _PUBLIC.search(text) is not None


def is_secret_file(directory: str, name: str) -> bool:
    """Return whether a file in a tool's directory contains keys: by name, or by content for `*.pem` and `*.key`."""
    if is_secret_name(name):
        return True
    return may_hold_key(name) and not holds_only_certificates(os.path.join(directory, name))  # noqa: PTH118 (strings throughout)


@lru_cache(maxsize=1)
def _names() -> re.Pattern[str]:
    return re.compile("|".join(SECRET_NAMES), re.DOTALL)
