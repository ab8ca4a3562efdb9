"""The files that `yarrow init` begins with: settings that are all commented out, and an outline of AGENTS.md."""

_UNTRUSTED_SETTINGS = """\
  // How long the model thinks: off, minimal, low, medium, high, xhigh or max.
  // "thinking": "off",

  // When old messages are replaced, for the model, by a summary; the numbers are tokens.
  // "compaction": {"enabled": true, "reserveTokens": 2048, "keepRecentTokens": 8192, "model": ""},
"""
_PERMISSIONS = """\

  // What tools may do; rules by tool, or by tool(pattern), say ask or deny. It can only make the user's own stricter.
  // "permissions": {"mode": "ask", "rules": {}},
"""
_USER_PERMISSIONS = """\

  // What tools may do without asking. Rules by tool, or by tool(pattern), say auto, ask or deny; what you allow always
  // is kept here; a question waits so many seconds for its answer.
  // "permissions": {"mode": "ask", "rules": {}, "always": [], "timeout": 600.0},
"""
_DRY_RUN = """\

  // Change nothing and say what would be done. A project's file can turn this on, and not off.
  // "dryRun": true,
"""
_MODEL = """\
  // Which provider answers; empty looks for one: Ollama, llama.cpp, a key in the environment, a local model.
  // "provider": "",

  // Which of its models; empty takes the first.
  // "model": "",

"""
_PROVIDERS = """\
  // Providers, by names of your choice (an example). A key is never written here: name the variable that holds it.
  // "providers": {"work": {"type": "openai", "baseUrl": "https://llm.example.com/v1", "apiKeyEnv": "WORK_KEY"}},
"""
_USER_PROVIDERS = """\
  // Providers, by names of your choice (examples). A key is never written here: name the variable that holds it, or a
  // command that prints it. A context window, in tokens, is for servers that do not tell theirs.
  // "providers": {
  //   "work": {"type": "openai", "baseUrl": "https://llm.example.com/v1", "apiKeyEnv": "WORK_KEY"},
  //   "home": {"type": "llamacpp", "baseUrl": "http://192.168.1.5:8080", "apiKeyCommand": "pass show home"},
  //   "ollama": {"contextWindow": 32768},
  // },

"""
_OTHER_SETTINGS = """\

  // How often a model call that failed for a while is tried again, and the seconds before the first such try; each wait
  // after that is twice as long.
  // "retry": {"attempts": 3, "baseDelay": 2.0},

  // What models cost, in US dollars for a million tokens, as "some-model": {"input": 3.0, "output": 15.0}. The status
  // line and /stats show it.
  // "prices": {},

  // Turns of one run; 0 is no limit.
  // "maxTurns": 200,

  // Directories besides the working directory that file tools may touch: to read and write, and to read.
  // "workspace": {"extra": [], "read": []},

  // Variables that shell commands see though they look like secrets, and the seconds that a command may take.
  // "bash": {"passEnvironment": [], "timeout": 120.0},

  // Where sessions are kept; empty is ~/.yarrow/sessions.
  // "sessionDir": "",

  // When what is written is forced to the disk: after each message, after each run, or none.
  // "sync": "message",
"""
_SANDBOX = """\

  // What shell commands run in: off, workspace (they change the workspace alone), or strict (and reach no network).
  // "sandbox": "workspace",
  // "sandboxNetwork": "on",

  // Files closed for what they hold, besides .env and its kind, and which of that kind are open; * is any text.
  // "secretFiles": {"more": [], "fewer": []},
"""
_EXTENSIONS = """\

  // Python files that add tools, commands and providers; a relative path begins in the directory of this file.
  // "extensions": [],
"""
_SERVICE = """\

  // What one `yarrow serve` takes at one time: sessions in memory, runs, streams of one session's events, texts that
  // wait in one session and their characters, connections to one address, seconds that one of them may be without
  // a call, calls on one of them, and the bytes of a request, a response and a request's metadata.
  // "service": {"sessions": 4096, "runs": 256, "subscribers": 256, "queuedTexts": 64, "queuedCharacters": 8388608,
  //   "connections": 4096, "idleSeconds": 600, "streams": 256,
  //   "messageBytesIn": 8388608, "messageBytesOut": 33554432, "metadataBytes": 16384},
"""
_TELEMETRY = """\

  // Whether OpenTelemetry is told what runs, turns, model calls and tools take (the extra `otel`): auto, when
  // an OTEL_* variable names where; on, or off. Prompts, answers, arguments and results go along only with content.
  // "telemetry": {"send": "auto", "content": false},
"""
_USER_DRY_RUN = """\

  // Change nothing and say what would be done.
  // "dryRun": false,
"""

PROJECT_SETTINGS = f"""\
{{
  // Settings of this project. All of them are commented out; what is shown is the default, or an example.
  // What is not set here comes from ~/.yarrow/config.json; YARROW_* variables and flags come on top.

  // ---- For everybody who works here ----

{_UNTRUSTED_SETTINGS}{_PERMISSIONS}{_DRY_RUN}
  // ---- Only for those who have trusted this file with `yarrow trust`; for others it is ignored ----

{_MODEL}{_PROVIDERS}{_OTHER_SETTINGS}}}
"""
"""A project's `.yarrow/config.json`."""

USER_SETTINGS = f"""\
{{
  // Your settings, for every project. All of them are commented out; what is shown is the default, or an example.
  // A project's .yarrow/config.json, YARROW_* variables and flags come on top.

{_MODEL}{_USER_PROVIDERS}{_UNTRUSTED_SETTINGS}{_USER_PERMISSIONS}{_USER_DRY_RUN}{_OTHER_SETTINGS}{_SANDBOX}{_SERVICE}{_TELEMETRY}{_EXTENSIONS}}}
"""
"""The user's own `config.json`."""

AGENTS = """\
# For whoever changes this project, human or not

<!-- A model reads this file before every task. Keep it short and true: what it must know and cannot guess. -->

## What this is

<!-- One or two sentences, and where to begin reading. -->

## Build and test

<!-- The commands, exactly as they are typed; how to run one test. -->

## Conventions

<!-- What a reviewer would ask for: style, names, commits. -->

## What not to touch

<!-- Generated files, vendored code, data, anything that needs a person. -->
"""
"""A project's `AGENTS.md`."""
