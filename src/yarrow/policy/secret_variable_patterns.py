"""The table of variables that are secret: by words in their name, and by the look of their value."""

NAME_WORDS = (
    *("key", "keys", "pass", "pwd", "pw", "psw", "pat", "jwt", "cookie", "cookies", "bearer", "auth", "oauth"),
    *("authorization", "headers", "dsn", "otp", "totp", "mnemonic", "sas", "cred", "creds", "sshpass", "signature"),
)
"""Words of a name, between underscores."""
NAME_PARTS = (
    *("apikey", "accesskey", "secretkey", "privatekey", "accountkey", "signingkey", "encryptionkey", "token(?!iz)"),
    *("secret", "password", "passwd", "passphrase", "passcode", "credential", "connection_?str(?:ing)?", "conn_?str"),
)
"""Parts of a name, wherever they stand."""
VALUE_STARTS = (
    # Services mark their keys.
    *(r"sk-[\w-]{16}", r"[sr]k_(?:live|test)_\w{8}", r"whsec_\w{8}", r"SG\.[\w-]{16}[\w-]*\.[\w-]{8}"),
    *(r"gh[pousr]_\w{16}", r"github_pat_\w", r"gl(?:pat|dt|rt|ptt|soat)-[\w-]{16}", r"xox[abeprs]-", r"xapp-\d"),
    *("A(?:KIA|SIA)[0-9A-Z]{16}", r"AIza[\w-]{30}", r"ya29\.[\w-]{16}", r"npm_\w{16}", r"pypi-[\w-]{16}", r"hf_\w{16}"),
    *(r"gsk_\w{16}", r"xai-\w{16}", r"r8_\w{16}", r"pplx-\w{16}", r"nvapi-[\w-]{16}", r"tvly-[\w-]{16}"),
    *(r"do[or]_v1_\w{16}", r"dop_v1_\w{16}", r"shp(?:at|ca|pa|ss)_\w{16}", r"hv[bsr]\.[\w-]{16}", r"ATATT3[\w-]{16}"),
    *(r"lin_api_\w{16}", r"dckr_pat_[\w-]{16}", r"glsa_\w{16}", r"tskey-[\w-]{16}", r"sntry[su]_[\w=]{16}"),
    *(r"key-[0-9a-f]{32}\b", r"sq0(?:csp|atp)-[\w-]{16}", r"AGE-SECRET-KEY-1", r"eyJ[\w-]{8}[\w-]*\.[\w-]{8}"),
    r"(?:bearer|basic|token) [\w+/=.~-]{16}",
    # An address with a password or a token for a user in it.
    *(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", r"https?://[0-9a-f]{32}@"),
    *(r"https://hooks\.slack\.com/(?:services|workflows)/\w", r"https://discord(?:app)?\.com/api/webhooks/\d"),
)
"""Beginnings of a value."""
VALUE_PARTS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY",
    r"(?:^|[;&?\s'\"-]|-D)(?:password|pwd|(?:account|sharedaccess|api_?)key|(?:access|auth)_token|client_secret)=[^\s;&'\"]{4}",
    r"[?&;]sig=[\w%+/-]{16}",
    r"\"(?:private_key|client_secret|refresh_token|auth|identitytoken)\"\s*:\s*\"[^\"]{4}",
    r"(?:client-key-data|_authToken|_password)\s*[:=]\s*\S{4}",
)
"""Parts of a value, wherever they stand: in connection strings, JSON, and contents of files."""
HARMLESS_NAMES = ("PWD", "OLDPWD", "SSH_AUTH_SOCK", r"GIT_CONFIG_KEY_\d+")
"""Names that look like secrets and are none: paths, a socket, the names of git settings."""
