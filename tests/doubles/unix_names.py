"""Names that Python has only on Unix, by its documentation: modules, attributes of common modules, arguments."""

import re

MODULES = frozenset(
    [
        "crypt",
        "curses",
        "fcntl",
        "grp",
        "nis",
        "posix",
        "pty",
        "pwd",
        "readline",
        "resource",
        "spwd",
        "syslog",
        "termios",
        "tty",
        "uvloop",
    ]
)
MODULES_OF_OTHERS = frozenset({"prompt_toolkit.input.vt100", "prompt_toolkit.input.posix_pipe"})
"""Names that other libraries have only on Unix, as far as Yarrow could use them."""

_OS = """
chflags chown chroot confstr confstr_names copy_file_range ctermid environb eventfd eventfd_read eventfd_write fchdir
fchmod fchown fdatasync fork forkpty fpathconf fstatvfs fwalk get_blocking getegid getenvb geteuid getgid getgrouplist
getgroups getloadavg getpgid getpgrp getpriority getrandom getresgid getresuid getsid getuid getxattr initgroups killpg
lchflags lchmod lchown listxattr lockf login_tty major makedev memfd_create minor mkfifo mknod nice openpty pathconf
pathconf_names pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn posix_spawnp pread preadv pwrite pwritev readv
register_at_fork removexattr sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getparam
sched_getscheduler sched_param sched_rr_get_interval sched_setaffinity sched_setparam sched_setscheduler sched_yield
sendfile set_blocking setegid seteuid setgid setgroups setpgid setpgrp setpriority setregid setresgid setresuid setreuid
setsid setuid setxattr spawnlp spawnlpe spawnvp spawnvpe splice statvfs struct_rusage sync sysconf sysconf_names
tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 waitid waitid_result writev NGROUPS_MAX PIDFD_NONBLOCK
"""
_OS_CONSTANTS = (
    r"(?!F_OK$)(?:CLD|EFD|F|GRND|MFD|POSIX|PRIO|P_(?:ALL|PGID|PID|PIDFD)|RTLD|RWF|SCHED|SPLICE|ST|XATTR)(?:_\w+)?"
    r"|EX_(?!OK)\w+|SEEK_(?:DATA|HOLE)|W[A-Z]{4,}"
    r"|O_(?!RDONLY|WRONLY|RDWR|APPEND|CREAT|EXCL|TRUNC|BINARY|NOINHERIT|SHORT_LIVED|TEMPORARY|RANDOM|SEQUENTIAL|TEXT)\w+"
)
_SIGNAL = (
    r"SIG(?!INT$|TERM$|ABRT$|FPE$|ILL$|SEGV$|BREAK$|_DFL$|_IGN$)\w+|ITIMER_\w+|ItimerError|alarm|getitimer|setitimer"
    r"|pause|pidfd_send_signal|pthread_\w+|siginterrupt|sigpending|sigtimedwait|sigwait|sigwaitinfo"
)
_SOCKET = (
    r"AF_(?!INET6?$|UNSPEC$|BLUETOOTH$)\w+|SCM_\w+|SOCK_(?:CLOEXEC|NONBLOCK)|MSG_(?:NOSIGNAL|DONTWAIT|MORE|EOR)"
    r"|SO_(?:REUSEPORT|PEERCRED|PASSCRED|PRIORITY|MARK|BINDTODEVICE)|CMSG_\w+|send_fds|recv_fds|sethostname"
    r"|TCP_(?:CORK|QUICKACK|USER_TIMEOUT|INFO|DEFER_ACCEPT|CONGESTION|SYNCNT|LINGER2|WINDOW_CLAMP)"
)
NAMES = {
    "os": re.compile("|".join((*_OS.split(), _OS_CONSTANTS))),
    "signal": re.compile(_SIGNAL),
    "socket": re.compile(_SOCKET),
    "select": re.compile(r"(?!select$|error$|__)\w+"),
    "time": re.compile(r"clock_\w+|CLOCK_\w+|pthread_getcpuclockid|tzset"),
}
"""Attributes of modules that exist everywhere."""
ANYWHERE = frozenset(
    [
        "add_reader",
        "remove_reader",
        "add_writer",
        "remove_writer",
        "add_signal_handler",
        "remove_signal_handler",
        "create_unix_connection",
        "create_unix_server",
        "open_unix_connection",
        "start_unix_server",
        "st_blocks",
        "st_blksize",
        "st_rdev",
    ]
)
"""Attributes of event loops, which the usual one on Windows lacks, and of `stat` results."""
ARGUMENTS = frozenset({"dir_fd", "src_dir_fd", "dst_dir_fd", "preexec_fn"})
"""Arguments that a call rejects there."""
