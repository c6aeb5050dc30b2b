"""One run of one side: a program to its end, or a server from its start over the load to its stop."""
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import parse, process, sample
from .options import fill

STOP_SECONDS = 10.0
FEW_SAMPLES = 5


class Failed(Exception):
    """The run went wrong; the text says how."""


class Run:
    """What became of a run: values by metric, a failure's text or None, notes."""

    def __init__(self, side):
        self.side = side
        self.values = {}
        self.failure = None
        self.notes = []
        self.output_hash = self.sorted_hash = None
        self.library_seen = False
        self.threads_made = None
        self.brief = False  # over before the samples told anything
        self.calls = None  # system calls by name, where they were counted

    def as_dict(self):
        result = {"side": self.side, "values": self.values}
        if self.failure:
            result["failure"] = self.failure
        if self.notes:
            result["notes"] = self.notes
        return result


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def last_line(path):
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 2000))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1].strip()[:200] if lines else ""
    except OSError:
        return ""


def text_of(path, most=8 << 20):
    """The end of a file, where the results stand."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - most))
        return file.read().decode("utf-8", "replace")


def hashes(path):
    """Of the whole, and of the sorted lines."""
    with open(path, "rb") as file:
        data = file.read()
    return hashlib.sha256(data).hexdigest(), hashlib.sha256(b"\n".join(sorted(data.split(b"\n")))).hexdigest()


def with_reason(text, path):
    reason = last_line(path)
    return text + (": " + reason if reason else "")


class Runner:
    """Runs sides by the options. The guard and the tree serve all runs."""

    def __init__(self, options, counter=None):
        self.options = options
        self.work = tempfile.mkdtemp(prefix="vthread-compare.")
        self.guard = process.Guard(self.work)
        self.tree = sample.Tree()
        self.counter = counter
        self.tree.apart.add(self.guard.pid)
        self.children = []
        self.number = 0

    def close(self):
        """Ends whatever is left, and removes the outputs."""
        self.tree.apart = {self.guard.pid}
        process.clear(self.tree, self.guard, self.children)
        self.guard.end()

    # --- what is run ---

    def environment(self, side, values):
        options = self.options
        result = dict(os.environ)
        for name, value in options.setenv_both:
            result[name] = fill(value, values)
        variable = options.sweep and options.sweep_variable and options.sweep[0]
        if variable and not variable.startswith("VTHREAD_"):
            result[variable] = values[variable]
        if side == "native":
            return result
        for name, value in (("VTHREAD_CARRIERS", options.carriers), ("VTHREAD_STACK_SIZE", options.stack_size),
                            ("VTHREAD_IO", options.io)):
            if value is not None:
                result[name] = str(value)
        for name, value in options.setenv:
            result[name] = fill(value, values)
        if variable and variable.startswith("VTHREAD_"):
            result[variable] = values[variable]
        others = [path for path in result.get("LD_PRELOAD", "").replace(":", " ").split() if path != options.library]
        result["LD_PRELOAD"] = ":".join([options.library] + others)
        return result

    def start(self, arguments, environment, name):
        """A Child with its output in files of the name."""
        with open(os.path.join(self.directory, name + ".out"), "wb") as out, \
                open(os.path.join(self.directory, name + ".err"), "wb") as err:
            try:
                child = process.Child(self.guard, arguments, environment, out, err)
            except OSError as error:
                raise Failed("cannot run %s: %s" % (arguments[0], error.strerror)) from None
        self.children.append(child)
        return child

    def path(self, name):
        return os.path.join(self.directory, name)

    # --- a run ---

    def run(self, side, values, stats=False, count=False):
        """A Run. stats: the library's counters are asked for, which tell whether it was at work. count: under the counter
        of system calls."""
        run = Run(side)
        self.number += 1
        self.directory = os.path.join(self.work, "%03d-%s" % (self.number, side))
        os.mkdir(self.directory)
        self.children = []
        self.tree.apart = {self.guard.pid}
        self.tree.scan()  # the first look at strangers takes longest
        self.sampler = sample.Sampler(self.tree, os.path.basename(self.options.library) if side == "preloaded" else None)
        values = dict(values, port=free_port())
        environment = self.environment(side, values)
        if stats and side == "preloaded":
            environment.setdefault("VTHREAD_STATS", self.path("stats"))
        command = self.options.native_command if side == "native" else self.options.command
        arguments = [fill(text, values) for text in command]
        prefix = []
        if count:
            prefix, environment = self.counter.prefix(environment, self.path("calls"))
        began, busy = time.monotonic(), sample.machine_busy()
        own = time.process_time()
        try:
            if self.options.load:
                self.server(run, prefix + arguments, environment, values, bool(prefix))
            else:
                self.program(run, prefix + arguments, environment)
            if count:
                run.calls = self.counter.read(self.path("calls"))
                if run.calls is None:
                    raise Failed("no system calls were counted")
        except Failed as failure:
            run.failure = str(failure)
        finally:
            self.tree.apart = {self.guard.pid}
            left, _ = process.clear(self.tree, self.guard, self.children)
            for child in self.children:
                self.guard.closed(child.pid)
        if left and not run.failure and not self.options.load:
            run.notes.append("left processes behind, which were killed")
        self.library(run)
        # what the rest of the machine did meanwhile
        took = time.monotonic() - began
        ours = time.process_time() - own + sum(c.usage.ru_utime + c.usage.ru_stime for c in self.children if c.usage)
        foreign = (sample.machine_busy() - busy - ours) / (took * (os.cpu_count() or 1)) if took > 0.2 else 0
        run.values["foreign"] = min(1.0, max(0.0, foreign))
        self.tidy()
        return run

    def library(self, run):
        """Whether it was seen at work, by its mapping or by its counters, and how many threads it made (None: unknown)."""
        run.library_seen = self.sampler.library_seen
        try:
            counters = text_of(self.path("stats"))
        except OSError:
            return
        run.library_seen = True
        run.threads_made = sum(int(n) for n in re.findall(r"threads created +([0-9]+)", counters))

    def tidy(self):
        if self.options.keep:
            shutil.copytree(self.directory, os.path.join(self.options.keep, os.path.basename(self.directory)), dirs_exist_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def watch(self, child, until, others=()):
        """Samples until the child has ended; Failed when the time is up. Ends early when one of the others ends."""
        while True:
            begin = time.monotonic()
            self.sampler.sample()
            if child.wait(min(self.sampler.period(), max(0, until - begin))):
                return True
            if any(other.wait(0) for other in others):
                return False
            if time.monotonic() >= until:
                raise Failed("no end within %g s" % self.options.timeout)

    def program(self, run, arguments, environment):
        options = self.options
        child = self.start(arguments, environment, "command")
        self.watch(child, child.begin + options.timeout)
        if child.status != options.expect_status:
            raise Failed(with_reason("ended with status %d, not %d" % (child.status, options.expect_status), self.path("command.err")))
        values = run.values
        values["wall"] = child.end - child.begin
        self.by_usage(values, child)
        self.peaks(run)
        run.output_hash, run.sorted_hash = hashes(self.path("command.out"))
        self.figures(values, "command")

    def server(self, run, arguments, environment, values, counted):
        options = self.options
        ready, load = fill(options.ready, values), fill(options.load, values)
        if ready.startswith("tcp:") and self.connects(ready):
            raise Failed("something listens on %s already" % ready[4:])
        child = self.start(arguments, environment, "command")
        self.wait_ready(child, ready)
        run.values["start"] = time.monotonic() - child.begin
        cpu = self.tree_cpu()
        loader = self.start(["/bin/sh", "-c", load], self.plain(), "load")
        self.tree.apart.add(loader.pid)
        if not self.watch(loader, loader.begin + options.timeout, [child]):
            raise Failed(with_reason("ended under the load, with status %d" % child.status, self.path("command.err")))
        run.values["cpu"] = self.tree_cpu() - cpu
        run.values["wall"] = loader.end - loader.begin
        if loader.status:
            raise Failed(with_reason("the load ended with status %d" % loader.status, self.path("load.err")))
        if child.wait(0):
            raise Failed(with_reason("ended under the load, with status %d" % child.status, self.path("command.err")))
        self.sampler.sample()
        self.stop(run, child, values, counted)
        self.by_usage(run.values, child, cpu=False)
        self.peaks(run)
        self.figures(run.values, "load")

    def plain(self):
        """What load, ready and stop commands get: never the library."""
        return dict(os.environ)

    def connects(self, ready):
        host, _, port = ready[4:].rpartition(":")
        if not port.isdigit():
            raise Failed("--ready %s: not a port" % ready)
        try:
            socket.create_connection((host or "127.0.0.1", int(port)), 1).close()
            return True
        except OSError:
            return False

    def wait_ready(self, child, ready):
        until = time.monotonic() + self.options.ready_timeout
        while True:
            self.sampler.sample()
            if child.wait(0):
                raise Failed(with_reason("ended with status %d before it was ready" % child.status, self.path("command.err")))
            if ready.startswith("tcp:"):
                if self.connects(ready):
                    return
            else:
                probe = self.start(["/bin/sh", "-c", ready], self.plain(), "ready")
                self.tree.apart.add(probe.pid)
                probe.wait(max(0.0, until - time.monotonic()))
                if probe.status == 0:
                    return
            if time.monotonic() >= until:
                raise Failed(with_reason("not ready within %g s" % self.options.ready_timeout, self.path("command.err")))
            child.wait(0.05)

    def stop(self, run, child, values, counted):
        if self.options.stop:
            stopper = self.start(["/bin/sh", "-c", fill(self.options.stop, values)], self.plain(), "stop")
            self.tree.apart.add(stopper.pid)
            stopper.wait(STOP_SECONDS)
            if stopper.status:
                raise Failed(with_reason("the stop command ended with status %d" % stopper.status, self.path("stop.err")))
        elif counted:  # the counter is to live on to print
            for pid, fields in self.tree.scan().items():
                if sample.number(fields, "PPid") == child.pid:
                    os.kill(pid, signal.SIGTERM)
        else:
            child.signal(signal.SIGTERM)
        if not child.wait(STOP_SECONDS):
            run.notes.append("did not end within %g s of being stopped, and was killed" % STOP_SECONDS)
            child.signal(signal.SIGKILL)
            child.wait(STOP_SECONDS)
        elif child.status not in (0, 128 + signal.SIGTERM):
            run.notes.append("ended with status %d when stopped" % child.status)
        # what a wrapper has left behind
        process.clear(self.tree, self.guard, self.children, signal.SIGTERM, 2.0)

    # --- figures ---

    def tree_cpu(self):
        """Of the whole command by now, without the load."""
        total = 0.0
        for pid, fields in self.tree.scan().items():
            total += sample.cpu_seconds(pid) + sample.waited_cpu_seconds(pid)
        return total

    @staticmethod
    def by_usage(values, child, cpu=True):
        usage = child.usage
        if usage is None:
            return
        if cpu:
            values["cpu"] = usage.ru_utime + usage.ru_stime
            values["cpu_user"], values["cpu_system"] = usage.ru_utime, usage.ru_stime
        values["voluntary_switches"] = float(usage.ru_nvcsw)
        values["involuntary_switches"] = float(usage.ru_nivcsw)

    def peaks(self, run):
        sampler, values = self.sampler, run.values
        if sampler.samples < FEW_SAMPLES:
            run.brief = True
            return
        values["rss"] = sampler.rss_kib() / 1024
        values["page_tables"] = sampler.peak_tables / 1024
        values["threads"] = float(sampler.peak_threads)

    def figures(self, values, name):
        """What is printed, by the tool's parser and by the user's expressions."""
        text = text_of(self.path(name + ".out")) + "\n" + text_of(self.path(name + ".err"))
        values.update(parse.parse(text, self.options.parse))
        if self.options.parse not in ("auto", "none") and "throughput" not in values:
            raise Failed("no results of %s in what was printed" % self.options.parse)
        if values.get("errors") and values.get("requests") == 0:
            raise Failed("the load had no answer but %.0f errors" % values["errors"])
        for metric in self.options.metric:
            value = metric.value(text)
            if value is None:
                raise Failed("--metric %s: no match in what was printed" % metric.name)
            values[metric.name] = value
        if values.get("requests") and "cpu" in values:
            values["cpu_request"] = values["cpu"] / values["requests"] * 1e6
