"""Tables of git settings, by section: those for which git executes nothing and reads no other configuration."""

ANY_SETTING = "*"
"""Stands for all settings of a section."""
ADDRESS_SETTINGS = frozenset({"url", "pushurl", "remote", "pushremote"})
"""Settings that hold an address."""
VALUE_PATTERNS = {"repositoryformatversion": r"[01]", "ignorerevsfile": r"[\w.-]+"}
"""Patterns of the values that are allowed for some settings; a name of a file has no directory."""
CHANGEABLE_SETTINGS = {
    "core": (
        *("autocrlf", "eol", "safecrlf", "quotepath", "abbrev", "commentchar", "whitespace", "longpaths"),
        *("sparsecheckout", "sparsecheckoutcone", "untrackedcache", "commitgraph", "multipackindex", "preloadindex"),
        *("repositoryformatversion", "filemode", "ignorecase"),
    ),
    "extensions": ("worktreeconfig",),
    "remote": (
        *("url", "pushurl", "fetch", "tagopt", "prune", "prunetags", "push", "skipdefaultupdate", "skipfetchall"),
        *("followremotehead", "gh-resolved"),
    ),
    "branch": (
        *("remote", "merge", "rebase", "description", "pushremote", "autosetupmerge", "autosetuprebase", "sort"),
        *("gh-merge-base", "vscode-merge-base", "github-pr-owner-number"),
    ),
    "submodule": ("url", "active", "branch", "ignore", "shallow", "fetchrecursesubmodules", "recurse", "fetchjobs"),
    "user": ("name", "email", "signingkey", "useconfigonly"),
    "author": ("name", "email"),
    "committer": ("name", "email"),
    "commit": ("gpgsign", "verbose", "status", "cleanup"),
    "tag": ("sort",),
    "init": ("defaultbranch",),
    "pull": ("rebase", "ff"),
    "push": ("default", "autosetupremote", "followtags", "useforceifincludes"),
    "fetch": ("prune", "prunetags", "parallel", "writecommitgraph"),
    "merge": ("ff", "conflictstyle", "renames", "renamelimit", "directoryrenames", "log", "stat", "autostash"),
    "rebase": ("autostash", "autosquash", "updaterefs", "stat", "abbreviatecommands", "missingcommitscheck"),
    "rerere": ("enabled", "autoupdate"),
    "checkout": ("defaultremote", "guess", "workers"),
    "worktree": ("guessremote",),
    "index": ("sparse", "version", "threads"),
    "feature": ("manyfiles", "experimental"),
    "gc": ("auto", "autodetach", "writecommitgraph"),
    "diff": (
        *("algorithm", "renames", "renamelimit", "colormoved", "colormovedws", "mnemonicprefix", "noprefix", "context"),
        *("interhunkcontext", "indentheuristic", "submodule", "ignoresubmodules", "wserrorhighlight", "relative"),
    ),
    "log": ("date", "decorate", "follow", "abbrevcommit"),
    "status": (
        *("short", "branch", "showuntrackedfiles", "showstash", "renames", "relativepaths", "aheadbehind"),
        "submodulesummary",
    ),
    "blame": (
        "ignorerevsfile",
        "date",
        "showemail",
        "showroot",
        "blankboundary",
        "coloring",
        "markignoredlines",
        "markunblamablelines",
    ),
    "stash": ("showincludeuntracked", "showpatch", "showstat"),
    "grep": ("linenumber", "column", "fullname", "patterntype", "extendedregexp", "threads"),
    "apply": ("whitespace", "ignorewhitespace"),
    "versionsort": ("suffix",),
    "advice": (ANY_SETTING,),
    "color": (ANY_SETTING,),
    "column": (ANY_SETTING,),
}
"""Settings, by section, that a command may change in a repository of the user's."""
HARMLESS_SETTINGS = CHANGEABLE_SETTINGS | {
    "core": (
        *CHANGEABLE_SETTINGS["core"],
        *("bare", "logallrefupdates", "symlinks", "precomposeunicode", "worktree"),
        *("sharedrepository", "checkstat", "trustctime"),
    ),
    "remote": (*CHANGEABLE_SETTINGS["remote"], "mirror", "promisor", "partialclonefilter"),
    "extensions": (
        *CHANGEABLE_SETTINGS["extensions"],
        "objectformat",
        "compatobjectformat",
        "refstorage",
        "partialclone",
    ),
    "maintenance": ("auto", "strategy"),
    "lfs": ("repositoryformatversion", "access"),
}
"""Settings, by section, for which git runs nothing and reads no other configuration."""
