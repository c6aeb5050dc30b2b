"""The figures: what they are called, their units, and which way is better."""

# key: label, unit, direction
KNOWN = {
    "throughput": ("throughput", "/s", 1),
    "latency_mean": ("latency, mean", "ms", -1),
    "latency_p50": ("latency, median", "ms", -1),
    "latency_p75": ("latency, 75%", "ms", -1),
    "latency_p90": ("latency, 90%", "ms", -1),
    "latency_p95": ("latency, 95%", "ms", -1),
    "latency_p99": ("latency, 99%", "ms", -1),
    "latency_p999": ("latency, 99.9%", "ms", -1),
    "latency_max": ("latency, longest", "ms", -1),
    "errors": ("errors", "", -1),
    "wall": ("wall time", "s", -1),
    "cpu": ("CPU time", "s", -1),
    "cpu_user": ("CPU time, user", "s", -1),
    "cpu_system": ("CPU time, system", "s", -1),
    "cpu_request": ("CPU time a request", "us", -1),
    "start": ("until ready", "s", -1),
    "rss": ("peak memory (RSS)", "MiB", -1),
    "page_tables": ("peak page tables", "MiB", -1),
    "threads": ("peak kernel threads", "", 0),
    "voluntary_switches": ("voluntary switches", "", -1),
    "involuntary_switches": ("involuntary switches", "", -1),
    "requests": ("requests", "", 0),
    "foreign": ("used by others", "", 0),
}
HIDDEN = {"requests", "foreign"}


def label(key):
    return KNOWN[key][0] if key in KNOWN else key


def unit(key):
    return KNOWN[key][1] if key in KNOWN else ""


def direction(key):
    return KNOWN[key][2] if key in KNOWN else 0


def ordered(keys):
    """Users' own first, then as above."""
    order = list(KNOWN)
    return sorted((key for key in keys if key not in HIDDEN), key=lambda key: order.index(key) if key in KNOWN else -1)


def figure(value):
    """Four digits that count, without exponents."""
    size = abs(value)
    if value == int(value) and size < 1e6 or size >= 1000:
        return "%.0f" % value
    for limit, digits in ((100, 1), (10, 2), (1, 3), (0.1, 4)):
        if size >= limit:
            return "%.*f" % (digits, value)
    return "%.4g" % value if size >= 0.0001 else "%.1e" % value


def text(key, value):
    u = unit(key)
    return figure(value) + (u if u.startswith("/") else " " + u if u else "")
