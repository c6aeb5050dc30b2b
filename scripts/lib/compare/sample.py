"""Readings of a tree of processes from /proc.

The tree is everything that descends from this process but for the roots that it is told to leave out. As this process is the
reaper of orphans (process.py), daemons are in it too.
"""
import os
import time

TICK = os.sysconf("SC_CLK_TCK")


def status(pid):
    """The lines of /proc/PID/status as a dict, or None when it is gone. Not /proc/PID/stat: that sums over all threads."""
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            text = file.read().decode("ascii", "replace")
    except OSError:
        return None
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def number(fields, key):
    text = fields.get(key)
    return int(text.split()[0]) if text else 0


def cpu_seconds(pid):
    """Processor time of the process, of all its threads, also of those that have ended."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # the process's CPU clock, as clock_getcpuclockid(3) makes it
    except OSError:
        return 0.0


def waited_cpu_seconds(pid):
    """Processor time of children that have ended and were waited for."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[13]) + int(fields[14])) / TICK


def machine_busy():
    """Processor seconds that all of the machine has used."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(n) for n in file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def maps_library(pid, name):
    """Whether a mapped file's path has the name."""
    try:
        with open("/proc/%d/maps" % pid, "rb") as file:
            return name.encode() in file.read()
    except OSError:
        return False


class Tree:
    """The descendants of this process, without those of the pids in `apart` (and with nobody else's)."""

    def __init__(self):
        self.me = os.getpid()
        self.apart = set()
        self.strangers = set()  # pids that are no descendants, so that they need not be read again

    def scan(self):
        """{pid: status} of the living members and the zombies."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        self.strangers.intersection_update(pids)
        found, parents = {}, {}
        for pid in pids:
            if pid in self.strangers or pid == self.me:
                continue
            fields = status(pid)
            if fields is None:
                continue
            found[pid] = fields
            parents[pid] = number(fields, "PPid")
        members = {}
        for pid, fields in found.items():
            at, steps = pid, 0
            while at in parents and at not in self.apart and steps < 1000:
                at, steps = parents[at], steps + 1
            if at == self.me:
                members[pid] = fields
            elif at == 0 or at in self.strangers:
                # not where the chain broke: a parent has just ended, and its child is about to be ours
                self.strangers.add(pid)
        return members


class Sampler:
    """Peaks over a run. sample() is to be called about each period() seconds; it takes about 3% of a processor at most."""

    def __init__(self, tree, library_name=None):
        self.tree = tree
        self.library_name = library_name
        self.library_seen = False
        self.high_water = {}  # VmHWM by pid
        self.peak_rss = self.peak_tables = self.peak_threads = self.peak_processes = 0
        self.cost = 0.0  # of a look, in processor seconds
        self.samples = 0

    def period(self):
        return min(2.0, max(0.01, 30 * self.cost))

    def sample(self):
        begin = time.thread_time()
        members = self.tree.scan()
        rss = tables = threads = processes = 0
        for pid, fields in members.items():
            if fields.get("State", "").strip().startswith("Z") or "VmRSS" not in fields:
                continue
            rss += number(fields, "VmRSS")
            tables += number(fields, "VmPTE")
            threads += number(fields, "Threads")
            processes += 1
            self.high_water[pid] = max(self.high_water.get(pid, 0), number(fields, "VmHWM"))
            if self.library_name and not self.library_seen:
                self.library_seen = maps_library(pid, self.library_name)
        self.peak_rss = max(self.peak_rss, rss)
        self.peak_tables = max(self.peak_tables, tables)
        self.peak_threads = max(self.peak_threads, threads)
        self.peak_processes = max(self.peak_processes, processes)
        self.samples += 1
        self.cost = time.thread_time() - begin
        return members

    def rss_kib(self):
        """The peak of the tree: exact (VmHWM) for one process, else the highest sum seen."""
        if self.peak_processes == 1 and self.high_water:
            return max(self.peak_rss, max(self.high_water.values()))
        return self.peak_rss
