"""From the command line to the tables."""
import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

from compare import process, report
from compare.main import stop, Stopped

from . import cases, measure, peers, table


def say(text):
    print("bench: " + text, file=sys.stderr, flush=True)


def options(arguments):
    p = argparse.ArgumentParser(prog="test/bench/run", allow_abbrev=False, description="Builds the benchmark programs and runs them "
                                "natively, preloaded, and with each peer that is installed, in turn; prints the tables.")
    p.add_argument("--quick", action="store_true", help="smaller numbers and 3 runs: some minutes instead of half an hour")
    p.add_argument("-n", "--runs", type=int, metavar="N", help="runs a kind (default 5)")
    p.add_argument("-c", "--carriers", default="2", metavar="N,N...", help="VTHREAD_CARRIERS of the preloaded kinds (default 2)")
    p.add_argument("--only", metavar="REGEX", help="cases whose group or name match")
    p.add_argument("--kinds", metavar="A,B,...", help="of native, preloaded, go, fiber, java, epoll-1, epoll-2, uring-1")
    p.add_argument("-B", "--build", default="build", metavar="DIR", help="build folder (default build)")
    p.add_argument("--no-build", action="store_true", help="take what is there")
    p.add_argument("--timeout", type=float, default=120, metavar="S", help="seconds for a run (default 120)")
    p.add_argument("--json", metavar="FILE", help="all figures (default DIR/bench.json)")
    p.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    p.add_argument("--from", dest="source", metavar="FILE", help="run nothing; print (and --write) the tables of that JSON file")
    p.add_argument("--list", action="store_true", help="print the cases and run nothing")
    result = p.parse_args(arguments)
    result.runs = result.runs or (3 if result.quick else 5)
    if not re.fullmatch(r"[1-9][0-9]{0,3}(,[1-9][0-9]{0,3})*", result.carriers):
        p.error("--carriers takes numbers separated by commas, not %r" % result.carriers)
    known = {"preloaded", *peers.NAMES}
    result.kinds = set(result.kinds.split(",")) if result.kinds else set()
    if result.kinds - known:
        p.error("--kinds: unknown: %s" % ", ".join(sorted(result.kinds - known)))
    return result


def build(directory, root):
    say("building into %s" % directory)
    log = os.path.join(directory, "bench-build.log")
    os.makedirs(directory, exist_ok=True)
    with open(log, "wb") as file:
        for arguments in (["cmake", "-B", directory, "-S", root],
                          ["cmake", "--build", directory, "--parallel", str(len(os.sched_getaffinity(0))), "--target", "vthread", "bench"]):
            if subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False).returncode:
                say("the build failed; see %s" % log)
                return False
    return True


def raise_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Series:
    """The runs, and what came of them in the form of the JSON file."""

    def __init__(self, chosen, root):
        self.chosen, self.root = chosen, root
        self.data = None

    def kinds(self, found, programs):
        """All that there are, in the order of the table's columns."""
        result = ["native"] + ["preloaded-" + n for n in self.chosen.carriers.split(",")] + list(found) + ["epoll-1", "epoll-2"]
        if os.path.exists(os.path.join(programs, "echo_uring")):
            result.append("uring-1")
        else:
            say("io_uring loop: skipped: the liburing here has no multishot accept")
        wanted = self.chosen.kinds
        return [kind for kind in result if not wanted or kind in wanted or (kind.startswith("preloaded") and "preloaded" in wanted)]

    def run(self):
        chosen = self.chosen
        directory = os.path.abspath(chosen.build)
        programs = os.path.join(directory, "test", "bench")
        found = peers.find(os.path.join(self.root, "test", "bench", "peers"), os.path.join(directory, "peers"), chosen.kinds, say)
        kinds = self.kinds(found, programs)
        descriptors = raise_descriptors()
        self.data = {"form": 1, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "machine": report.machine(), "runs": chosen.runs,
                     "quick": chosen.quick, "kinds": kinds, "cases": []}
        bench = measure.Bench(programs, os.path.join(directory, "libvthread.so"), found)
        try:
            for case in self.cases():
                if case.connections + 1500 > descriptors:  # a descriptor each, and some more
                    say("%s, %s: skipped: ulimit -Hn is %d" % (case.group, case.name, descriptors))
                    continue
                if case.need_gib > measure.available_gib():
                    say("%s: skipped: needs %.0f GiB of memory" % (case.name, case.need_gib))
                    continue
                self.case(bench, case, [kind for kind in kinds if case.command(kind)])
        finally:
            bench.close()

    def cases(self):
        for case in cases.all_cases(self.chosen.quick):
            if not self.chosen.only or re.search(self.chosen.only, case.group) or re.search(self.chosen.only, case.name):
                yield case

    def case(self, bench, case, kinds):
        entry = {"group": case.group, "name": case.name, "metrics": case.metrics, "values": {}, "failures": {}, "wrong": False}
        if not kinds:
            return
        self.data["cases"].append(entry)
        rounds = 1 if case.how == "steps" else self.chosen.runs  # instructions are counted, not measured
        for i in range(rounds):
            # each round begins with another, so that what drifts meets all alike
            for kind in kinds[i % len(kinds):] + kinds[:i % len(kinds)]:
                if kind in entry["failures"]:
                    continue
                try:
                    values = bench.run(case, kind, self.chosen.timeout)
                except measure.Failed as failure:
                    entry["failures"][kind] = str(failure)
                    entry["wrong"] |= kind not in case.may_fail
                    say("%s, %s, %s: %s" % (case.group, case.name, peers.name(kind), failure))
                    continue
                into = entry["values"].setdefault(kind, {})
                for key in [key for key, *_ in case.metrics] + ["foreign"]:
                    into.setdefault(key, []).append(values[key])
        key, _, unit, _ = case.metrics[0]
        say("%s, %s: %s" % (case.group, case.name, "; ".join(
            "%s %s%s" % (peers.name(kind), table.cell(entry["values"][kind][key]), " " + unit if unit else "")
            for kind in kinds if kind in entry["values"])))


def main(arguments, root):
    chosen = options(arguments)
    document = os.path.join(root, "docs", "performance.md")
    if chosen.list:
        for case in cases.all_cases(chosen.quick):
            print("%s: %s" % (case.group, case.name))
        return 0
    stopped = None
    if chosen.source:
        with open(chosen.source, encoding="utf-8") as file:
            data = json.load(file)
    else:
        if not chosen.no_build and not build(os.path.abspath(chosen.build), root):
            return 1
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        process.become_reaper()
        series = Series(chosen, root)
        try:
            series.run()
        except Stopped as signalled:
            stopped = signalled.number
        data = series.data
        if data is None:
            return 128 + (stopped or 0)
        path = chosen.json or os.path.join(chosen.build, "bench.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
        say("the figures of all runs are in %s" % path)
    for line in table.lines(data):
        print(line)
    if stopped:
        return 128 + stopped
    if chosen.write:
        table.write(data, document)
        say("written into %s" % document)
    return 1 if any(entry.get("wrong") for entry in data["cases"]) else 0
