"""Starting commands so that nothing of them outlives a run, or this process."""
import ctypes
import os
import select
import shutil
import signal
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NAME = 15


def become_reaper():
    """Orphans of what we start become children of this process, so that they are found and ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


class Guard:
    """A process that, when this one is gone, whatever ended it (SIGKILL too), ends the process groups that are then open
    and removes the directory of outputs."""

    def __init__(self, directory):
        reader, self.writer = os.pipe()  # close-on-exec: no command keeps it open
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.writer)
                self.watch(reader, directory)
            finally:
                os._exit(0)
        os.close(reader)

    @staticmethod
    def watch(reader, directory):
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"compare-guard", 0, 0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):  # a pipeline that we are in ends without us
            os.dup2(null, fd)
        groups, rest = set(), b""
        while True:
            block = os.read(reader, 4096)
            if not block:
                break
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
        for group in groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except OSError:
                pass
        shutil.rmtree(directory, ignore_errors=True)

    def opened(self, group):
        os.write(self.writer, b"+%d\n" % group)

    def closed(self, group):
        os.write(self.writer, b"-%d\n" % group)

    def end(self):
        os.close(self.writer)
        os.waitpid(self.pid, 0)


class Child:
    """A command apart from our terminal, with files for its output."""

    def __init__(self, guard, arguments, environment, stdout, stderr, stdin=subprocess.DEVNULL):
        """OSError when it cannot be started."""
        self.guard = guard
        self.begin = time.monotonic()
        self.popen = subprocess.Popen(arguments, env=environment, stdin=stdin, stdout=stdout, stderr=stderr,
                                      start_new_session=True)
        self.pid = self.popen.pid
        guard.opened(self.pid)
        self.pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        self.end = None
        self.status = None  # as a shell has it: 128 + n for signal n
        self.usage = None

    def wait(self, seconds):
        """True when it has ended, within the seconds; status, usage and end are then set."""
        if self.status is not None:
            return True
        if self.pidfd is not None:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            ready = bool(poll.poll(max(0, seconds * 1000)))
            now = time.monotonic()
            if not ready:
                return False
            self.reap(os.wait4(self.pid, 0), now)
            return True
        until = time.monotonic() + seconds
        while True:
            result = os.wait4(self.pid, os.WNOHANG)
            if result[0]:
                self.reap(result, time.monotonic())
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.002)

    def reap(self, result, now):
        _, status, self.usage = result
        code = os.waitstatus_to_exitcode(status)
        self.status = code if code >= 0 else 128 - code
        self.popen.returncode = code  # so that it does not wait for a process that is not its any more
        self.end = now
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def signal(self, number):
        if self.status is None:
            os.kill(self.pid, number)


def reap_orphans(known):
    """Collects ended processes that became ours; their usages. `known` pids are left to their Child."""
    usages = []
    for name in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/children" % name, encoding="ascii") as file:
                children = [int(pid) for pid in file.read().split()]
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN
            children = []
        for pid in children:
            if pid in known:
                continue
            try:
                ended, _, usage = os.wait4(pid, os.WNOHANG)
            except ChildProcessError:
                continue
            if ended:
                usages.append(usage)
    return usages


def clear(tree, guard, children, kind=signal.SIGKILL, seconds=10.0):
    """Signals all of the tree's processes until there are none, at most for the seconds.

    Returns how many there were besides the children that had ended, and what the orphans among them had used."""
    known = {guard.pid} | {child.pid for child in children}
    usages, seen, told = [], set(), set()
    until = time.monotonic() + seconds
    while True:
        for child in children:
            child.wait(0)
        usages += reap_orphans(known)
        living = [pid for pid, fields in tree.scan().items() if not fields.get("State", "").strip().startswith("Z")]
        seen.update(living)
        if not living or time.monotonic() >= until:
            break
        for pid in living:
            if kind == signal.SIGKILL or pid not in told:
                told.add(pid)
                try:
                    os.kill(pid, kind)
                except OSError:
                    pass
        time.sleep(0.01)
    usages += reap_orphans(known)
    return len(seen), usages
