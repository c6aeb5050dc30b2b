"""One run of one kind in one case: its figures."""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from compare import process, sample

KERNEL_STACK_KIB = 16  # x86-64, THREAD_SIZE; not in a process's RSS


class Failed(Exception):
    """No figures; the text says why."""


def pairs(text):
    """The figures of the last line that has key=value."""
    for line in reversed(text.splitlines()):
        found = re.findall(r"(\w+)=(-?[0-9][0-9.eE+-]*)\b", line)
        if found:
            return {key: float(value) for key, value in found}
    return {}


def available_gib():
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / (1 << 20)
    return 0.0


class Bench:
    """Runs the commands. programs: where those of test/bench are; peers: {kind: command}."""

    def __init__(self, programs, library, peers):
        self.programs, self.library, self.peers = programs, library, peers
        self.work = tempfile.mkdtemp(prefix="vthread-bench.")
        self.guard = process.Guard(self.work)
        self.tree = sample.Tree()
        self.tree.apart.add(self.guard.pid)
        self.children = []

    def close(self):
        self.end_all()
        self.guard.end()
        shutil.rmtree(self.work, ignore_errors=True)

    def end_all(self):
        self.tree.apart = {self.guard.pid}
        process.clear(self.tree, self.guard, self.children)
        for child in self.children:
            self.guard.closed(child.pid)
        self.children = []

    def arguments(self, kind, command, port=0):
        words = command.replace("{port}", str(port)).split()
        if kind in self.peers:
            return self.peers[kind] + words
        return [os.path.join(self.programs, words[0])] + words[1:]

    def environment(self, kind):
        result = dict(os.environ)
        for name in list(result):
            if name.startswith("VTHREAD_") or name == "LD_PRELOAD":
                del result[name]
        if kind.startswith("preloaded-"):
            result["LD_PRELOAD"] = self.library
            result["VTHREAD_CARRIERS"] = kind[len("preloaded-"):]
        return result

    def start(self, arguments, environment, name, stdout=None):
        err = open(os.path.join(self.work, name + ".err"), "wb")
        out = stdout if stdout is not None else open(os.path.join(self.work, name + ".out"), "wb")
        try:
            child = process.Child(self.guard, arguments, environment, out, err)
        except OSError as error:
            raise Failed("cannot run %s: %s" % (arguments[0], error.strerror)) from None
        finally:
            err.close()
            if stdout is None:
                out.close()
        self.children.append(child)
        return child

    def text(self, name):
        result = ""
        for kind in (".out", ".err"):
            path = os.path.join(self.work, name + kind)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    file.seek(max(0, os.path.getsize(path) - 10000))
                    result += file.read().decode("utf-8", "replace") + "\n"
        return result

    def run(self, case, kind, timeout):
        """The figures by key, or Failed."""
        busy, began, own = sample.machine_busy(), time.monotonic(), time.process_time()
        children = []
        try:
            if case.how == "program":
                values = self.program(kind, case.command(kind), timeout)
            elif case.how == "steps":
                values = self.steps(kind, case.command(kind), timeout)
            else:
                _, warm, seconds = case.how.split()
                values = self.server(kind, case.command(kind), case.connections, float(warm), float(seconds), timeout)
            missing = [key for key, *_ in case.metrics if key not in values]
            if missing:
                raise Failed("printed no %s" % missing[0])
        finally:
            children = self.children
            self.end_all()
        ours = time.process_time() - own + sum(c.usage.ru_utime + c.usage.ru_stime for c in children if c.usage)
        took = time.monotonic() - began
        values["foreign"] = max(0.0, (sample.machine_busy() - busy - ours) / (took * (os.cpu_count() or 1)))
        return values

    def ended(self, child, timeout, name):
        if not child.wait(timeout):
            raise Failed("no end within %g s" % timeout)
        if child.status:
            lines = [line for line in self.text(name).splitlines() if line.strip()]
            reason = next((line for line in lines if re.search(r"rror|annot|exhaust|unavail|Resource", line)), lines[-1] if lines else "")
            raise Failed(("status %d: %s" % (child.status, reason))[:150])

    def program(self, kind, command, timeout):
        # dots are not to go to a disk
        stdout = subprocess.DEVNULL if command.startswith("sleepers") else None
        child = self.start(self.arguments(kind, command), self.environment(kind), "program", stdout)
        self.ended(child, timeout, "program")
        if stdout is not None and os.path.exists(os.path.join(self.work, "program.out")):
            os.remove(os.path.join(self.work, "program.out"))
        return pairs(self.text("program"))

    def steps(self, kind, command, timeout):
        """Instructions of one operation: what 200 take more than none, by single steps."""
        environment = self.environment(kind)
        environment["STEPS_PRELOAD"] = environment.pop("LD_PRELOAD", "")
        counts = []
        for m in (0, 200):
            child = self.start([os.path.join(self.programs, "steps")] + self.arguments(kind, "%s %d" % (command, m)), environment, "steps")
            self.ended(child, timeout, "steps")
            counts.append(pairs(self.text("steps")).get("instructions", 0.0))
        if counts[0] <= 0 or counts[1] <= counts[0]:
            raise Failed("no instructions were counted: single steps do not work here")
        return {"instructions": (counts[1] - counts[0]) / 200}

    def server(self, kind, command, connections, warm, seconds, timeout):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        child = self.start(self.arguments(kind, command, port), self.environment(kind), "server")
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if child.wait(0.02) or time.monotonic() > until:
                    raise Failed("does not listen: " + self.text("server").strip()[-100:]) from None
        time.sleep(0.1)  # until the thread of that connection has gone
        idle = self.memory(child.pid)
        reader, writer = os.pipe()
        try:
            load = self.start([os.path.join(self.programs, "load"), "-w", "%g" % warm, str(port), str(connections), "%g" % seconds],
                              self.environment("native"), "load", writer)
        finally:
            os.close(writer)
        begin = cpu = None
        line = ""
        until = time.monotonic() + timeout
        with open(reader, encoding="ascii") as lines:
            # its marks come when the measured time begins and ends
            for line in lines:
                if line.startswith("load_warm"):
                    begin = sample.cpu_seconds(child.pid)
                elif line.startswith("load_done") and begin is not None:
                    cpu = sample.cpu_seconds(child.pid) - begin
                    busy = self.memory(child.pid)
                if time.monotonic() > until:
                    break
        self.ended(load, max(1, until - time.monotonic()), "load")
        values = pairs(line)
        if cpu is None or not values.get("requests"):
            raise Failed("the load has measured nothing")
        if child.wait(0):
            raise Failed("the server ended with status %d" % child.status)
        if values.get("errors"):
            raise Failed("%d errors" % values["errors"])
        child.signal(signal.SIGTERM)
        child.wait(5)
        values["cpu_us"] = cpu * 1e6 / values["requests"]
        values["kib_connection"] = (busy - idle) / connections
        return values

    @staticmethod
    def memory(pid):
        """KiB: resident, page tables, and the kernel's stacks of its threads."""
        fields = sample.status(pid)
        if fields is None:
            raise Failed("the server is gone")
        return sample.number(fields, "VmRSS") + sample.number(fields, "VmPTE") + KERNEL_STACK_KIB * sample.number(fields, "Threads")
