"""All runs of both sides, in turn, for each point of a sweep."""
import sys
import time

from . import metrics, stats, syscalls
from .run import Runner

SIDES = ("native", "preloaded")


LONG_ENOUGH = 0.5  # seconds, for a program to be past its loader on a machine that is busy


class Point:
    """One value of the sweep (or the only one): its runs and what came of them."""

    def __init__(self, values):
        self.values = values
        self.runs = {side: [] for side in SIDES}
        self.failures = {side: [] for side in SIDES}
        self.notes = {side: [] for side in SIDES}
        self.calls = {}
        self.call_requests = {}
        self.call_failures = {}
        self.library_seen = False
        self.threads_made = None
        self.results = {}
        self.output = None  # with --same-output: None when equal, else how not

    def add(self, run):
        if run.failure:
            self.failures[run.side].append(run.failure)
        else:
            self.runs[run.side].append(run)
        self.notes[run.side] += run.notes

    def look(self, run):
        """What a run tells of the library."""
        self.library_seen |= run.library_seen
        if run.threads_made is not None:
            self.threads_made = run.threads_made

    def unseen(self):
        """The preloaded side ran, long enough to be looked at, and had no library."""
        runs = self.runs["preloaded"]
        return not self.library_seen and any(not run.brief and run.values["wall"] >= LONG_ENOUGH for run in runs)

    def whole(self):
        """Both sides ran, every time."""
        return not any(self.failures.values()) and all(self.runs.values())

    def finish(self, options):
        directions = {metric.name: metric.direction for metric in options.metric}
        lists = {side: {} for side in SIDES}
        for side in SIDES:
            for run in self.runs[side]:
                for key, value in run.values.items():
                    lists[side].setdefault(key, []).append(value)
        for key in lists["native"]:
            if key in lists["preloaded"]:
                direction = directions.get(key, metrics.direction(key))
                self.results[key] = stats.compare(lists["native"][key], lists["preloaded"][key], direction)
        self.one_sided = {side: {key: stats.summary(values) for key, values in lists[side].items() if key not in self.results}
                          for side in SIDES}
        if options.same_output and self.whole():
            self.output = compare_outputs(self.runs, options.same_output)

    def wrong(self):
        """Whether the exit status should say so."""
        return bool(not self.whole() or self.output or self.call_failures or self.unseen())


def compare_outputs(runs, how):
    def hashes(side):
        return {run.sorted_hash if how == "sorted" else run.output_hash for run in runs[side]}
    native, preloaded = hashes("native"), hashes("preloaded")
    if len(native) > 1:
        return "native runs differ from each other already, so nothing can be compared" + \
            ("" if how == "sorted" else " (=sorted compares lines in any order)")
    if len(preloaded) > 1:
        return "preloaded runs differ from each other, native ones do not"
    if native != preloaded:
        return "native and preloaded runs differ"
    return None


class Campaign:
    def __init__(self, options):
        self.options = options
        self.points = []
        self.counter = syscalls.Counter() if options.syscalls else None
        self.begin = time.monotonic()
        self.done = 0
        sweep = options.sweep[1] if options.sweep else [None]
        self.total = len(sweep) * 2 * (options.warm_up + options.runs + (1 if self.counter and self.counter.tool else 0))

    def say(self, text):
        if not self.options.quiet:
            print("compare: " + text, file=sys.stderr, flush=True)

    def progress(self, what, run):
        self.done += 1
        if run.failure:
            text = "FAILED: " + run.failure
        else:
            shown = [key for key in ("throughput", "latency_p99") if key in run.values] or ["wall", "cpu"]
            text = ", ".join("%s %s" % (metrics.label(key), metrics.text(key, run.values[key])) for key in shown if key in run.values)
        self.say("[%d/%d] %s: %s" % (self.done, self.total, what, text))

    def run(self):
        """All points; self.points grows as it goes, so that an interruption leaves what there is."""
        options = self.options
        runner = Runner(options, self.counter)
        try:
            for value in (options.sweep[1] if options.sweep else [None]):
                values = {options.sweep[0]: value} if options.sweep else {}
                point = Point(values)
                self.point(runner, point)
                point.finish(options)
                self.points.append(point)
        finally:
            runner.close()

    def point(self, runner, point):
        options = self.options
        where = "".join("%s=%s, " % pair for pair in point.values.items())
        for i in range(options.warm_up):
            for side in SIDES:
                run = runner.run(side, point.values, stats=True)
                point.look(run)
                self.progress("%s%s, warm-up" % (where, side), run)
                if run.failure:
                    # it may be that one side cannot do it at all; the other is still worth a look
                    point.add(run)
        for i in range(options.runs):
            # A B, B A, A B: what drifts meets both alike
            for side in SIDES if i % 2 == 0 else reversed(SIDES):
                if len(point.failures[side]) >= 2:
                    self.done += 1
                    continue  # it will not do better, and may take until the time-out each time
                run = runner.run(side, point.values)
                point.look(run)
                self.progress("%s%s, run %d of %d" % (where, side, i + 1, options.runs), run)
                point.add(run)
        if self.counter and self.counter.tool:
            for side in SIDES:
                run = runner.run(side, point.values, count=True)
                self.progress("%s%s, counting system calls by %s" % (where, side, self.counter.tool), run)
                if run.calls is None:
                    point.call_failures[side] = run.failure
                else:
                    point.calls[side] = run.calls
                    point.call_requests[side] = run.values.get("requests")
