"""System calls by number: those in which a rank can hang, or which tell what it is doing.

Numbers are those of Linux's headers (asm/unistd_64.h; asm-generic/unistd.h, which aarch64 uses).
"""

from __future__ import annotations

import os

# name, number on x86_64, number on aarch64 (-: the call does not exist there)
_TABLE = """
read 0 63 | write 1 64 | close 3 57 | open 2 - | openat 257 56 | openat2 437 437 | creat 85 - | stat 4 - | fstat 5 80
lstat 6 - | newfstatat 262 79 | statx 332 291 | access 21 - | faccessat 269 48 | faccessat2 439 439 | readlink 89 -
readlinkat 267 78 | pread64 17 67 | pwrite64 18 68 | readv 19 65 | writev 20 66 | preadv 295 69 | pwritev 296 70
preadv2 327 286 | pwritev2 328 287 | fsync 74 82 | fdatasync 75 83 | sync 162 81 | syncfs 306 267
sync_file_range 277 84 | truncate 76 45 | ftruncate 77 46 | fallocate 285 47 | lseek 8 62 | poll 7 - | ppoll 271 73
select 23 - | pselect6 270 72 | epoll_wait 232 - | epoll_pwait 281 22 | epoll_pwait2 441 441 | futex 202 98
futex_waitv 449 449 | nanosleep 35 101 | clock_nanosleep 230 115 | sched_yield 24 124 | wait4 61 260 | waitid 247 95
recvfrom 45 207 | recvmsg 47 212 | recvmmsg 299 243 | sendto 44 206 | sendmsg 46 211 | sendmmsg 307 269
connect 42 203 | accept 43 202 | accept4 288 242 | flock 73 32 | fcntl 72 25 | ioctl 16 29 | getdents 78 -
getdents64 217 61 | pause 34 - | rt_sigsuspend 130 133 | rt_sigtimedwait 128 137 | restart_syscall 219 128
semtimedop 220 192 | semop 65 193 | msgrcv 70 188 | msgsnd 69 189 | mmap 9 222 | munmap 11 215 | mremap 25 216
mprotect 10 226 | madvise 28 233 | msync 26 227 | brk 12 214 | unlink 87 - | unlinkat 263 35 | rename 82 -
renameat 264 38 | renameat2 316 276 | mkdir 83 - | mkdirat 258 34 | rmdir 84 - | link 86 - | linkat 265 37
symlink 88 - | symlinkat 266 36 | statfs 137 43 | fstatfs 138 44 | utimensat 280 88 | mount 165 40 | umount2 166 39
execve 59 221 | splice 275 76 | sendfile 40 71 | copy_file_range 326 285 | io_getevents 208 4 | io_pgetevents 333 292
io_submit 209 2 | io_uring_enter 426 426 | mq_timedreceive 243 183 | exit 60 93 | exit_group 231 94 | clone 56 220
clone3 435 435 | fork 57 - | vfork 58 - | socket 41 198 | getrandom 318 278
"""
_COLUMN = {"x86_64": 1, "aarch64": 2}.get(os.uname().machine, 0)
_NAMES = {
    int(row.split()[_COLUMN]): row.split()[0]
    for row in _TABLE.replace("\n", "|").split("|")
    if row.strip() and _COLUMN and row.split()[_COLUMN] != "-"
}

# Calls whose first argument is a descriptor.
_DESCRIPTOR = """
read write close fstat pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 fsync fdatasync syncfs
sync_file_range ftruncate fallocate lseek epoll_wait epoll_pwait epoll_pwait2 recvfrom recvmsg recvmmsg sendto sendmsg
sendmmsg connect accept accept4 flock fcntl ioctl getdents getdents64 fstatfs splice sendfile copy_file_range
io_uring_enter
"""
DESCRIPTOR = frozenset(_DESCRIPTOR.split())

# Calls that take a path as their first argument, or as their second behind the descriptor of a folder.
_PATH = "open creat stat lstat access readlink truncate unlink rename mkdir rmdir link statfs"
_PATH_AT = """
openat openat2 newfstatat statx faccessat faccessat2 readlinkat unlinkat renameat renameat2 mkdirat linkat utimensat
"""
PATH = {**dict.fromkeys(_PATH.split(), 0), **dict.fromkeys(_PATH_AT.split(), 1)}

# Calls whose first argument is an array of `struct pollfd`, and whose second says how long it is.
POLL = frozenset({"poll", "ppoll"})

# Calls whose first argument counts the descriptors of the fd_sets that follow, and calls on an epoll descriptor.
SELECT = frozenset({"select", "pselect6"})
EPOLL = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2"})

# Calls that do not want the lock of the process's address space for themselves. Of one that sleeps uninterruptibly in
# any other (mmap, execve, io_setup, shmat), the memory is not to be read: whoever does would wait behind it.
LEAVE_MEMORY = frozenset({
    "read", "pread64", "readv", "preadv", "preadv2", "write", "pwrite64", "writev", "pwritev", "pwritev2", "open",
    "openat", "openat2", "creat", "close", "stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs",
    "access", "faccessat", "faccessat2", "readlink", "readlinkat", "getdents", "getdents64", "lseek", "fsync",
    "fdatasync", "sync", "syncfs", "sync_file_range", "truncate", "ftruncate", "fallocate", "rename", "renameat",
    "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "link", "linkat", "symlink", "symlinkat",
    "flock", "fcntl", "sendfile", "copy_file_range", "splice", "ioctl", "futex", "poll", "ppoll", "select",
    "pselect6", "epoll_wait", "epoll_pwait", "recvfrom", "recvmsg", "sendto", "sendmsg", "accept", "accept4",
    "connect", "wait4", "waitid", "pause", "nanosleep", "clock_nanosleep", "utimensat",
})  # fmt: skip


def name(number: int) -> str:
    """The name of a call on this machine, or its number as text."""
    return _NAMES.get(number, str(number))
