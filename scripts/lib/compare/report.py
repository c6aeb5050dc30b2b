"""The tables on standard output, and the JSON file."""
import json
import os
import platform
import shlex
import time

from . import metrics, stats
from .campaign import SIDES

VERSION = 1  # of the JSON file's form


def spread(summary):
    """Half of the range, of the median."""
    if summary["runs"] < 2:
        return ""
    middle = summary["median"]
    if not middle:
        return "%s..%s" % (metrics.figure(summary["min"]), metrics.figure(summary["max"]))
    return "±%.0f%%" % ((summary["max"] - summary["min"]) / 2 / abs(middle) * 100)


def ratio(result):
    if result["ratio"] is None:
        return "-"
    text = "%.2f" % result["ratio"] if result["ratio"] < 100 else "%.0f" % result["ratio"]
    if "ratio_min" in result and result["native"]["runs"] > 1:
        text += " (%.2f..%.2f)" % (result["ratio_min"], result["ratio_max"])
    return text


def columns(rows, left=1):
    """Lines of a table; the first `left` columns flush left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if i < left or i == len(row) - 1 else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        yield "  ".join(cells).rstrip()


def labelled(key):
    unit = metrics.unit(key)
    return metrics.label(key) + (" [%s]" % unit if unit else "")


def point_table(point):
    rows = [("", "native", "", "preloaded", "", "ratio", "")]
    for key in metrics.ordered(point.results):
        result = point.results[key]
        if key == "errors" and not result["native"]["max"] and not result["preloaded"]["max"]:
            continue
        rows.append((labelled(key), metrics.figure(result["native"]["median"]), spread(result["native"]),
                     metrics.figure(result["preloaded"]["median"]), spread(result["preloaded"]), ratio(result), result["verdict"]))
    for side in SIDES:
        for key in metrics.ordered(point.one_sided[side]):
            summary = point.one_sided[side][key]
            cells = (metrics.figure(summary["median"]), spread(summary))
            rows.append((labelled(key),) + ((cells + ("-", "")) if side == "native" else ("-", "") + cells) + ("-", "only there"))
    return list(columns(rows)) if len(rows) > 1 else []


def sweep_keys(points, limit=6):
    """The figures worth a column or a plot, where both sides have them."""
    have = set().union(*(point.results for point in points))
    own = [key for key in have if key not in metrics.KNOWN]
    wanted = own + ["throughput", "latency_p99", "latency_mean", "wall", "cpu_request", "cpu", "rss", "threads"]
    result = [key for key in wanted if key in have]
    if "latency_p99" in result and "latency_mean" in result:
        result.remove("latency_mean")
    if "throughput" in result and "wall" in result:
        result.remove("wall")  # of a load, mostly as long as it was told to be
    if "cpu_request" in result:
        result.remove("cpu")
    return result[:limit]


def sweep_table(campaign):
    points = campaign.points
    name = campaign.options.sweep[0]
    for key in sweep_keys(points):
        yield ""
        yield labelled(key)
        rows = [(name, "native", "", "preloaded", "", "ratio", "")]
        for point in points:
            result = point.results.get(key)
            if result is None:
                rows.append((point.values[name], *one_side(point, "native", key), *one_side(point, "preloaded", key), "-", ""))
            else:
                rows.append((point.values[name], metrics.figure(result["native"]["median"]), spread(result["native"]),
                             metrics.figure(result["preloaded"]["median"]), spread(result["preloaded"]), ratio(result),
                             result["verdict"]))
        yield from ("  " + line for line in columns(rows))


def one_side(point, side, key):
    summary = point.one_sided[side].get(key)
    if summary is None:
        return ("failed" if point.failures[side] else "-", "")
    return (metrics.figure(summary["median"]), spread(summary))


def remarks(campaign, point):
    """What went wrong, or should be known, of a point."""
    options = campaign.options
    for side in SIDES:
        failures = point.failures[side]
        for text in sorted(set(failures)):
            yield "FAILED, %s, %d time%s: %s" % (side, failures.count(text), "s" if failures.count(text) > 1 else "", text)
        for text in sorted(set(point.notes[side])):
            yield "%s, %d time%s: %s" % (side, point.notes[side].count(text), "s" if point.notes[side].count(text) > 1 else "", text)
        brief = sum(run.brief for run in point.runs[side])
        if brief:
            yield "%s, %d time%s: over too soon for memory and threads to be seen" % (side, brief, "s" if brief > 1 else "")
    if point.threads_made is not None:
        yield "the library made %d virtual threads (in the last warm-up)" % point.threads_made
    if point.unseen():
        yield "the library was seen in no process of the preloaded side: the two sides are the same (scripts/vthread %s says why)" % \
            shlex.quote(options.command[0])
    elif not point.library_seen and point.runs["preloaded"]:
        yield "the library was not seen on the preloaded side, whose runs were short: scripts/vthread %s says whether it can be " \
            "taken over" % shlex.quote(options.command[0])
    if options.same_output:
        if point.output:
            yield "OUTPUT: " + point.output
        elif point.whole():
            yield "output: the same on both sides"
    for side, text in point.call_failures.items():
        yield "FAILED, %s: system calls: %s" % (side, text)


def foreign(campaign):
    """A line on the rest of the machine, where it was busy."""
    others = [run.values["foreign"] for point in campaign.points for side in SIDES for run in point.runs[side] if "foreign" in run.values]
    if others and stats.median(others) >= 0.05:
        yield "other processes used %.0f%% of the machine meanwhile (median): trust the ratios, not the figures" % (stats.median(others) * 100)


def calls_table(point):
    rows = [("system calls", "native", "preloaded")]
    names = sorted(set().union(*point.calls.values()), key=lambda name: -max(c.get(name, 0) for c in point.calls.values()))
    if names != ["all"]:
        rows.append(("all", *(str(sum(point.calls[side].values())) if side in point.calls else "-" for side in SIDES)))
    if all(point.call_requests.get(side) for side in SIDES) and len(point.calls) == 2:
        rows.append(("a request", *("%.2f" % (sum(point.calls[side].values()) / point.call_requests[side]) for side in SIDES)))
    for name in names[:8]:
        rows.append((name, *(str(point.calls[side].get(name, 0)) if side in point.calls else "-" for side in SIDES)))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        yield "%s  %s  %s" % (row[0].ljust(widths[0]), row[1].rjust(widths[1]), row[2].rjust(widths[2]))


def text(campaign):
    """The report, line by line."""
    options = campaign.options
    if options.title:
        yield options.title
    if options.native is not None:
        yield "native:    " + " ".join(map(shlex.quote, options.native_command))
        yield "preloaded: " + " ".join(map(shlex.quote, options.command))
    else:
        yield "command: " + " ".join(map(shlex.quote, options.command))
    yield "%d run%s a side, in turn, after %d to warm up; medians, ± half the range; ratio: preloaded / native (its range by rounds)" % (
        options.runs, "" if options.runs == 1 else "s", options.warm_up)
    if options.sweep and len(campaign.points) > 0:
        yield from sweep_table(campaign)
    for point in campaign.points:
        where = ", ".join("%s=%s" % pair for pair in point.values.items())
        lines = [] if options.sweep else list(point_table(point))
        notes = list(remarks(campaign, point))
        calls = list(calls_table(point)) if point.calls else []
        if where and (lines or notes or calls):
            yield ""
            yield where + ":"
        elif lines:
            yield ""
        yield from lines
        if calls:
            if not where:
                yield ""
            yield from calls
        if notes:
            if not where:
                yield ""
            yield from notes
    busy = list(foreign(campaign))
    if busy and options.sweep:
        yield ""
    yield from busy
    if options.syscalls and campaign.counter.tool is None:
        yield "FAILED: --syscalls: neither perf nor strace can be used here"


def machine():
    def first(path, key):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    if line.startswith(key):
                        return line.partition(":")[2].strip()
        except OSError:
            pass
        return None
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        libc = None
    return {"kernel": platform.release(), "libc": libc, "processor": first("/proc/cpuinfo", "model name"),
            "processors": len(os.sched_getaffinity(0)), "memory": first("/proc/meminfo", "MemTotal"), "load": os.getloadavg()}


def as_json(campaign):
    options = campaign.options
    points = []
    for point in campaign.points:
        points.append({
            "values": point.values,
            "runs": [run.as_dict() for side in SIDES for run in point.runs[side]],
            "failures": point.failures, "notes": point.notes, "results": point.results, "one_sided": point.one_sided,
            "syscalls": point.calls, "library_seen": point.library_seen, "threads_made": point.threads_made,
            "same_output": None if not options.same_output or not point.whole() else point.output is None,
        })
    return {"form": VERSION, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "machine": machine(), "title": options.title,
            "command": options.command, "native_command": options.native_command, "ready": options.ready, "load": options.load,
            "library": options.library, "runs": options.runs, "warm_up": options.warm_up,
            "sweep": options.sweep[0] if options.sweep else None,
            "labels": {key: {"label": metrics.label(key), "unit": metrics.unit(key)}
                       for point in campaign.points for key in point.results},
            "points": points}


def write_json(campaign, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(as_json(campaign), file, indent=1)
        file.write("\n")
