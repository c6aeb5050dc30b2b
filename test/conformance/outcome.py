"""One test, and how a run of it ends."""
import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time

PR_CAPBSET_DROP, CAP_SYS_BOOT, CAP_SYS_TIME = 24, 22, 25
MARK = "CONFORMANCE_RUN"
libc = ctypes.CDLL(None)
number = itertools.count()


class Test:
    """A program of a suite: its name, command, and variables of its own; `meaning` says what an exit status means; `files` are
    to be in its folder."""

    def __init__(self, name, argv, env=None, meaning=None, files=()):
        self.name, self.argv, self.env, self.meaning, self.files = name, argv, env or {}, meaning or {}, files

    def file_name(self):
        return self.name.replace("/", "_")


def drop_rights():
    """In the child: what it executes can neither set the clock nor reboot, whoever runs it."""
    for right in (CAP_SYS_TIME, CAP_SYS_BOOT):
        libc.prctl(PR_CAPBSET_DROP, right, 0, 0, 0)


def new_mark():
    """Put into the environment of a run, it tells its processes from all others."""
    return f"{os.getpid()}.{next(number)}."


def has_mark(name, wanted):
    """Whether one of the first two threads has it: a main thread that has ended has no environment."""
    for thread in os.listdir(f"/proc/{name}/task")[:2]:
        try:
            with open(f"/proc/{name}/task/{thread}/environ", "rb") as file:
                if wanted in b"\0" + file.read():
                    return True
        except OSError:
            pass
    return False


def processes(mark, session=None):
    """Those of the runs with this mark, or with marks that begin so, and those in this session: tests make process groups
    and sessions of their own (the frame of glibc's tests does for each), and execute programs without an environment."""
    wanted = f"\0{MARK}={mark}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            # a process whose main thread has ended is a zombie that runs
            if int(name) == os.getpid() or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1):
                continue
            if int(fields[3]) == session or has_mark(name, wanted):
                found.append(int(name))
        except OSError:
            pass
    return found


def kill(mark, session=None):
    """Ends all processes of runs, also those that they make meanwhile."""
    give_up = time.monotonic() + 10
    while (left := processes(mark, session)) and time.monotonic() < give_up:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.001)


def once(test, env, timeout, output):
    folder = tempfile.mkdtemp(prefix="conformance.")
    mark = new_mark()
    for name in test.files:
        with open(os.path.join(folder, name), "w") as file:
            file.write("# a file\n")
    with open(output, "wb") as file:
        child = subprocess.Popen(test.argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder,
                                 env=dict(env, **{MARK: mark}), start_new_session=True, preexec_fn=drop_rights)
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        kill(mark, child.pid)
        child.wait()
    shutil.rmtree(folder, ignore_errors=True)
    if status is None:
        return "hangs"
    if status < 0:
        return f"signal {-status}"
    return "pass" if status == 0 else test.meaning.get(status, f"status {status}")


def of(test, variables, timeout, output):
    """ "pass", "pass, flaky" or how it ended; the output of the last run that did not pass is in the file."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VTHREAD_", "LD_"))}
    env.update(variables)
    how = once(test, env, timeout, output)
    if how == "pass":
        os.unlink(output)
        return how
    again = once(test, env, timeout, output + ".again")
    if again == "pass":
        os.unlink(output + ".again")
        return f"pass, flaky: {how}"
    os.replace(output + ".again", output)
    return again if again == how else f"{again}, flaky: {how}"
