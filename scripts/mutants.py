"""Mutation tests: each mutant breaks a law in a copy of the source, and a test must fail: `make mutants`."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from policy_mutants import POLICY_MUTANTS

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """One way to break a law: `old` becomes `new` in `file`, and one of `tests` must fail."""

    law: str
    what: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = (
    Mutant(
        "5",
        "a stream that broke off counts as an answer",
        "agent/message_builder.py",
        "if self.stop is None:",
        "if False:",
        "tests/agent",
    ),
    Mutant(
        "5",
        "silence counts as an answer",
        "agent/message_builder.py",
        'raise RunError("the model returned neither',
        'return; RunError("the model returned neither',
        "tests/agent",
    ),
    Mutant(
        "6",
        "a message ends before it is recorded",
        "agent/loop.py",
        "                await self._ports.record(message)\n                recorded = message.id",
        "                self._ports.emit(MessageEnd(message.id))\n                await self._ports.record(message)\n"
        "                recorded = message.id",
        "tests/agent",
    ),
    Mutant(
        "6",
        "an abort leaves calls unanswered",
        "agent/tool_executor.py",
        "            await self._answer_all(unanswered, self._explain_abort)\n",
        "",
        "tests/agent",
    ),
    Mutant(
        "6",
        "a turn does not close when it fails",
        "agent/loop.py",
        "        try:\n            yield\n        finally:\n            self._ports.emit(TurnEnd(turn))",
        "        yield\n        self._ports.emit(TurnEnd(turn))",
        "tests/agent",
    ),
    Mutant(
        "3",
        "what waits at the end of a run is forgotten",
        "agent/message_queue.py",
        "return tuple(waiting.shown for waiting in self._queues.close())",
        "return tuple(waiting.shown for waiting in self._queues.close()[:0])",
        "tests/agent",
    ),
    Mutant(
        "3",
        "a text is delivered before it is recorded",
        "agent/message_queue.py",
        "            await run_shielded(self._record(taken))\n",
        "            pass\n",
        "tests/agent",
    ),
    Mutant(
        "3",
        "what is acknowledged is not forced to the disk",
        "session/session_log.py",
        "                self._calls.sync(self._fd, directory=False)\n                self._sync_failed = False",
        "                self._sync_failed = False",
        "tests/session/test_session_power.py",
    ),
    Mutant(
        "10",
        "what a command leaves behind is left alive",
        "policy/command_execution.py",
        "        while (alive := self._process_tree.alive()) or not self._exited.done():",
        "        while (alive := []) or not self._exited.done():",
        "tests/policy/test_process.py",
    ),
    Mutant(
        "10",
        "a process that left its group is not looked for",
        "policy/process_tree.py",
        "        return self._marker in _environment(pid)",
        "        return False",
        "tests/policy/test_process.py",
    ),
    Mutant(
        "8",
        "a slow reader's buffer has no bound",
        "event/bus.py",
        "self.buffer: deque[Event] = deque(maxlen=BUFFER_EVENTS)",
        "self.buffer: deque[Event] = deque()",
        "tests/event",
    ),
    Mutant(
        "8",
        "what a slow reader lost is not told",
        "event/bus.py",
        "            events.append(self._gap(lost))\n",
        "",
        "tests/event",
    ),
    Mutant(
        "8",
        "a client that went away keeps its place",
        "service/run_rpcs.py",
        "                    yield response\n        finally:\n            entry.release(subscription)\n",
        "                    yield response\n        finally:\n            pass\n",
        "tests/service/test_disconnected_clients.py",
    ),
    Mutant(
        "5",
        "an answer that was cut is taken for a whole one",
        "provider/base_decoder.py",
        "        if not self.complete:\n            sentence",
        "        if False:\n            sentence",
        "tests/service/test_provider_faults.py",
    ),
    Mutant(
        "9",
        "a dry run runs what writes",
        "tool/registry.py",
        "if context.dry_run and not tool.read_only:",
        "if False:",
        "tests/tool tests/agent",
    ),
    Mutant(
        "7",
        "a tool whose arguments say nothing of paths escapes the rules",
        "agent/authorization.py",
        "denied=DeniedPaths(reading), denied_writes=DeniedPaths(writing))",
        "denied_writes=DeniedPaths(writing))",
        "tests/agent/test_tool_access.py",
    ),
    Mutant(
        "7",
        "a tool of another name escapes the rules of read",
        "policy/permission/path_rules.py",
        "covered = strict and (named == READ_RULE or (writes and named in WRITE_RULES))",
        "covered = False",
        "tests/agent/test_tool_access.py",
    ),
    Mutant(
        "7",
        "a rule that denies sees the first command of a line alone",
        "policy/permission/decision.py",
        "for one in spellings(line))",
        "for one in spellings(line) if False)",
        "tests/policy/test_shell_lines.py",
    ),
    Mutant(
        "7",
        "a rule that allows matches a part of a line",
        "policy/permission/decision.py",
        "request.kind is ToolKind.SHELL and verdict is not RuleEffect.AUTO and",
        "request.kind is ToolKind.SHELL and",
        "tests/policy/test_shell_lines.py",
    ),
    Mutant(
        "7",
        "a setting passes on what apiKeyEnv names",
        "policy/environment.py",
        "return name not in self.withheld and (",
        "return (",
        "tests/policy/test_secret_variables.py",
    ),
    Mutant(
        "7",
        "commands are given a provider key under a name of its own",
        "policy/environment.py",
        "if name in keep or not keys.has(name, value)}",
        "if name not in keys.withheld}",
        "tests/policy/test_secret_variables.py",
    ),
    Mutant(
        "7",
        "a tool is taken to run in the sandbox that does not say so",
        "agent/authorization.py",
        "contained and access.sandboxed",
        "contained",
        "tests/agent/test_tool_access.py",
    ),
    Mutant(
        "sandbox",
        "a command leaves the sandbox unasked",
        "policy/permission/decision.py",
        '    if call.leaves_sandbox:\n        return "it would run outside the sandbox"\n',
        "",
        "tests/agent/test_outside_sandbox.py",
    ),
    Mutant(
        "sandbox",
        "the strict sandbox is left",
        "policy/permission/decision.py",
        "if call.leaves_sandbox and call.is_strict:",
        "if False:",
        "tests/agent/test_outside_sandbox.py",
    ),
    Mutant(
        "sandbox",
        "the first key answers a question",
        "client/tui/views/permission_question.py",
        "return min(self._pause, seen) >= QUIET_SECONDS",
        "return True",
        "tests/client/tui tests/process/test_accidental_approval.py",
    ),
    Mutant(
        "sandbox",
        "a write into a directory that leads to a mount vanishes",
        "policy/sandbox/bwrap_args.py",
        'if rest and not top.startswith(".")}',
        "if False}",
        "tests/policy/test_sandbox_writes.py",
    ),
    Mutant(
        "sandbox",
        "what a command moves to shared memory ends with it",
        "policy/sandbox/bwrap_args.py",
        "in reversed(session_places(spec)):",
        "in reversed(session_places(spec)[:2]):",
        "tests/policy/test_sandbox_moves.py",
    ),
    Mutant(
        "sandbox",
        "what a program moves out of the workspace ends with the session",
        "policy/sandbox/files_moved_out.py",
        "if self.files or self.is_partial or missing else ():",
        "if self.files or self.is_partial else ():",
        "tests/policy/test_sandbox_moves.py",
    ),
    Mutant(
        "sandbox",
        "what a command moves out of the workspace is not copied",
        "policy/sandbox/files_moved_out.py",
        "                    moved.setdefault(*self._whole_directory(origin, copy, place))\n",
        "                    pass\n",
        "tests/policy/test_sandbox_moves.py",
    ),
    Mutant(
        "sandbox",
        "keys below the home are shown with what holds them",
        "policy/sandbox/bwrap_args.py",
        "keys = [*bare, *map(Path, sight.masked), *resolve_symlinks(secrets)]",
        "keys = list[Path]()",
        "tests/policy/test_credential_paths.py tests/policy/test_sandbox_home_secrets.py "
        "tests/policy/test_sandbox_programs.py",
    ),
    Mutant(
        "sandbox",
        "sockets of daemons can be used",
        "policy/sandbox/bwrap_args.py",
        "named = (*others, *map(real_path, find_client_sockets(environment)))",
        "named: tuple[str, ...] = ()",
        "tests/policy/test_sandbox_sockets.py",
    ),
    Mutant(
        "sandbox",
        "strict allows local sockets",
        "policy/sandbox/seccomp.py",
        "_FAMILIES if is_strict else (_LOCAL, *_FAMILIES)",
        "(_LOCAL, *_FAMILIES)",
        "tests/policy/test_sandbox_sockets.py tests/policy/test_sandbox_escapes.py",
    ),
    Mutant(
        "sandbox",
        "a killed service leaves what its command planted",
        "policy/sandbox_factory.py",
        "if not (taken := recover(self._journal_dir)):",
        "if not (taken := []):",
        "tests/policy/test_sandbox_leftovers.py tests/service/test_session_homes.py",
    ),
    Mutant(
        "sandbox",
        "root runs commands in the workspace of another user",
        "policy/sandbox_factory.py",
        "owner=self._owner(workspace.writable[0])[0],",
        "owner=None,",
        "tests/policy/test_sandbox_owner.py",
    ),
    Mutant(
        "sandbox",
        "control characters reach a pipe",
        "client/terminal_text_sanitizer.py",
        "return re.sub(_CONTROLS, _show_control, text) if UNSAFE_CHARACTER.search(text) else text",
        "return text",
        "tests/client/test_sanitizer.py tests/process/test_output_in_pipes.py",
    ),
    Mutant(
        "sandbox",
        "a socket of another user is attached to",
        "cli/remote_connection.py",
        "if not system.is_owned(status):",
        "if False:",
        "tests/process/test_socket_owner.py",
    ),
    Mutant(
        "sandbox",
        "silent connections stay",
        "service/grpc_options.py",
        '        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),\n',
        "",
        "tests/service/test_service_refusals.py",
    ),
    Mutant(
        "sandbox",
        "changed files that other tools execute are not named",
        "policy/auto_executed_files.py",
        "        parts[start : start + len(row)] ==",
        "        False and parts[start : start + len(row)] ==",
        "tests/service/test_executed_files.py",
    ),
    Mutant(
        "sandbox",
        "executed files that a command writes below the top directory are not named",
        "policy/sandbox/directory_listing.py",
        "            if names.executed_names:",
        "            if False:",
        "tests/service/test_executed_files.py::test_a_notice_names_what_a_command_changed_in_any_directory",
    ),
    Mutant(
        "sandbox",
        "a command outside the sandbox is compared at the top directory alone",
        "agent/auto_executed_file_changes.py",
        "nested = access.kind is ToolKind.SHELL and not is_watched",
        "nested = False",
        "tests/service/test_executed_files.py::test_a_notice_names_what_a_command_changed_in_any_directory",
    ),
    Mutant(
        "git",
        "a setting that the user changed while a command ran is quarantined without a notice",
        "policy/sandbox/git_baseline.py",
        "if verdict.reason != EXECUTED_REASON or replaced.isdisjoint(",
        "if True or replaced.isdisjoint(",
        "tests/service/test_concurrent_settings.py",
    ),
    Mutant(
        "git",
        "what a command changed of the user's is not put back",
        "policy/sandbox/cleanup_journal.py",
        " and verdict.saved is not None:",
        " and False:",
        "tests/policy/test_sandbox_baseline.py::test_changed_executables_of_the_user_are_restored",
    ),
    Mutant(
        "git",
        "what git would execute of a repository that a command made stays",
        "policy/sandbox/git_baseline.py",
        "    if not planted:\n        return",
        "    if planted:\n        return",
        "tests/policy/test_sandbox_new_repositories.py tests/policy/test_sandbox_baseline.py",
    ),
    Mutant(
        "git",
        "files that existed are quarantined in place of what completes a git directory around them",
        "policy/sandbox/git_baseline.py",
        "if completing and made and not is_complete(had):",
        "if False:",
        "tests/policy/test_sandbox_baseline.py::test_existing_files_stay_when_a_git_directory_is_created_around_them",
    ),
    Mutant(
        "git",
        "a command completes a git directory that the user left half made",
        "policy/sandbox/git_baseline.py",
        "allowed = before.trusted if is_complete(names) else before.trusted | before.known",
        "allowed = before.trusted | before.known",
        "tests/policy/test_sandbox_baseline.py::test_a_command_cannot_complete_a_partial_git_directory_of_the_user",
    ),
    Mutant(
        "git",
        "the copy of a configuration replaces it whatever changed",
        "policy/sandbox/git_config_copies.py",
        "is_harmless = is_settable_change(copy.config, decode_config(copy.original), decode_config(content))",
        "is_harmless = True",
        "tests/policy/test_sandbox_configs.py::test_changes_by_which_git_executes_something_are_quarantined",
    ),
    Mutant(
        "git",
        "a repository that the user changed is open while a command runs",
        "policy/sandbox/new_repositories.py",
        "return known is not None and known == _identity(path)",
        "return known is not None",
        "tests/policy/test_sandbox_new_repositories.py::test_the_users_repositories_are_guarded",
    ),
    Mutant(
        "sandbox",
        "a secret that differs from what git has recorded is read",
        "policy/sandbox/git_internal_files.py",
        "return entries[0].endswith(ids)",
        "return True",
        "tests/policy/test_sandbox_tracked_env.py::test_a_changed_env_file_cannot_be_read_or_written",
    ),
    Mutant(
        "git",
        "a file tool writes what git executes",
        "policy/workspace.py",
        "            or is_executed_by_git(real, root, self.writable)\n",
        "",
        "tests/policy/test_sandbox_baseline.py::test_case_RS_B1_RS_B2_nothing_planted_in_parts_runs",
    ),
    Mutant(
        "git",
        "the directory of a worktree elsewhere can be written to",
        "policy/sandbox/protected_paths.py",
        "return exists and not any(",
        "return False and not any(",
        "tests/policy/test_sandbox_repositories.py::test_case_RB_03_another_worktree_is_unchanged",
    ),
    Mutant(
        "git",
        "garbage is not collected beside a guarded worktree",
        "policy/sandbox/git_internal_files.py",
        'return any(path.parent.name == "worktrees" for path in fixed)',
        "return False",
        "tests/policy/test_sandbox_repositories.py::test_git_still_collects_garbage_beside_another_worktree",
    ),
    Mutant(
        "git",
        "a repository that a commit brings back is not named",
        "agent/auto_executed_file_changes.py",
        '            *_noted("RETURNING_REPOSITORIES", RETURNING, left.places),\n',
        "",
        "tests/service/test_embedded_repositories.py::test_a_repository_in_a_commit_is_named_once_and_ordinary_work_is_not",
    ),
    Mutant(
        "git",
        "commits that only a reflog names are not read",
        "policy/git_embedded_repositories.py",
        "(has.commits | (appended or set()))",
        "has.commits",
        "tests/policy/test_git_embedded_repositories.py::test_directories_that_git_would_restore_as_repositories_are_found",
    ),
    Mutant(
        "git",
        "an index is not read",
        "policy/git_embedded_repositories.py",
        "if has.index and has.index != had.index:",
        "if False:",
        "tests/policy/test_git_embedded_repositories.py::test_directories_that_git_would_restore_as_repositories_are_found",
    ),
    Mutant(
        "git",
        "commits of submodules are not read",
        "policy/git_embedded_repositories.py",
        "for directory in after.states if search.submodules else ():",
        "for directory in ():",
        "tests/policy/test_git_embedded_repositories.py::test_a_commit_of_a_submodule_needs_no_reference",
    ),
    Mutant(
        "git",
        "names that git has for a directory of the work tree do not count",
        "policy/git_embedded_repositories.py",
        "history.tracks(str(within / name))",
        "False",
        "tests/policy/test_git_embedded_repositories.py::test_a_repository_split_across_runs_is_found",
    ),
    Mutant(
        "git",
        "history that is too long counts as read",
        "policy/git_embedded_repositories.py",
        '            self.unchecked.append(f"{directory}: {error}")',
        "            del error",
        "tests/policy/test_git_embedded_repositories.py::test_too_many_objects_are_reported",
    ),
    Mutant(
        "caches",
        "a link in the way of a mount of the session is followed",
        "policy/sandbox/mounts.py",
        "key=len)",
        "key=lambda place: -len(place))",
        "tests/policy/test_sandbox_caches.py::test_a_symlink_in_place_of_a_mount_is_not_followed[root-go-pkg/mod]",
    ),
    Mutant(
        "caches",
        "the caches of the user are mounted writable",
        "policy/sandbox/cache_mounts.py",
        "*(BindMount(source, target, optional=True) for",
        "*(BindMount(source, target, writable=True, optional=True) for",
        "tests/policy/test_sandbox_caches.py::test_commands_do_not_change_the_users_caches[root]",
    ),
    Mutant(
        "caches",
        "places of secrets are shown as caches",
        "policy/sandbox/package_caches.py",
        "(*self.writable, *self.secret_paths))",
        "self.writable)",
        "tests/policy/test_cache_plans.py",
    ),
    Mutant(
        "caches",
        "passwords of proxies are passed on",
        "policy/sandbox/package_caches.py",
        'return re.sub(rf"(?:^|[,|])[^,|]*{WITH_KEY}[^,|]*", "", told)',
        "return told",
        "tests/policy/test_cache_plans.py",
    ),
    Mutant(
        "git",
        "a commit hides behind many references",
        "policy/git_embedded_repositories.py",
        '(["--all"] if has.is_partial else ())',
        "()",
        "tests/policy/test_git_embedded_repositories.py::test_nothing_is_hidden_behind_many_references",
    ),
    Mutant(
        "git",
        "a repository of which a part waits in the work tree is not named",
        "policy/git_embedded_repositories.py",
        "                        self.directories[path] = None\n",
        "                        pass\n",
        "tests/policy/test_git_embedded_repositories.py::test_a_repository_split_across_runs_is_found",
    ),
    Mutant(
        "git",
        "a repository of which a part is committed is not named",
        "policy/git_embedded_repositories.py",
        "return is_complete(lowercase) or any(",
        "return is_complete(lowercase) or False and any(",
        "tests/policy/test_git_embedded_repositories.py::test_a_repository_split_across_runs_is_found",
    ),
    Mutant(
        "1",
        "a history that is known gives the ids of another one",
        "provider/call_ids.py",
        "other._given, other._count = self._given.copy(), self._count",
        "other._given, other._count = self._given, self._count",
        "tests/provider/test_law_one.py",
    ),
    Mutant(
        "1",
        "a history is cut between a call and its result",
        "provider/encoded_history_cache.py",
        "            if not waiting:\n",
        "            if True:\n",
        "tests/provider/test_history_cache.py",
    ),
    Mutant(
        "1",
        "a history that goes on otherwise counts as known",
        "provider/encoded_history_cache.py",
        "encoded.encoder, encoded.messages = encoder, messages[: end + 1]",
        "encoded.encoder, encoded.messages = encoder, (*messages[:end], messages[end - 1])",
        "tests/provider/test_law_one.py tests/provider/test_history_cache.py",
    ),
    Mutant(
        "1",
        "an item keeps its id without its reasoning",
        "provider/responses/items.py",
        'if not has_reasoning or item.get("id") in given:',
        'if item.get("id") in given:',
        "tests/provider/responses tests/provider/test_law_one.py",
    ),
    Mutant(
        "1",
        "the same reasoning is sent twice",
        "provider/responses/items.py",
        "is_new = given.isdisjoint(ids) and len(set(ids)) == len(ids)",
        "is_new = True",
        "tests/provider/responses tests/provider/test_law_one.py",
    ),
    *(Mutant(*row) for row in POLICY_MUTANTS),
)


def survives(mutant: Mutant) -> bool:
    """Return whether no test detects the mutant."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / "yarrow" / mutant.file
        text = file.read_text("utf-8")
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.file} no longer holds exactly once: {mutant.old!r}")
        file.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests.split()]
        environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
        return done.returncode == 0


def main() -> int:
    """Test every mutant; return 1 if one survives."""
    alive = 0
    for mutant in MUTANTS:
        survived = survives(mutant)
        alive += survived
        print(f"law {mutant.law:>2}  {'SURVIVED' if survived else 'caught':8}  {mutant.what}", flush=True)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
