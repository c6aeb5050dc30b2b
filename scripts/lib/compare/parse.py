"""What load generators print, as numbers.

A parser takes the text and returns a dict with some of these keys, or {} when the text is not its tool's:

    throughput            answers a second, higher is better
    requests              how many answers there were
    errors                how many failed
    latency_mean, latency_p50, latency_p75, latency_p90, latency_p95, latency_p99, latency_p999, latency_max
                          milliseconds
"""
import re

UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "secs": 1e3, "m": 6e4, "h": 3.6e6}
NUMBER = r"([-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)"


def number(text):
    return float(text.replace(",", ""))


def find(pattern, text, flags=re.M):
    """The first group as a number, or None."""
    match = re.search(pattern, text, flags)
    return number(match.group(1)) if match else None


def latency_key(percent):
    """latency_p99 for 99 or 99.0, latency_p999 for 99.9, latency_max for 100."""
    if percent >= 100:
        return "latency_max"
    text = ("%g" % percent).replace(".", "")
    return "latency_p" + text


KEPT = {"latency_p50", "latency_p75", "latency_p90", "latency_p95", "latency_p99", "latency_p999", "latency_max"}


def percentiles(pairs):
    """From (percent, milliseconds) pairs, those that are kept."""
    result = {}
    for percent, value in pairs:
        key = latency_key(percent)
        if key in KEPT:
            result[key] = value
    return result


def without_none(values):
    return {key: value for key, value in values.items() if value is not None}


def duration(text):
    """'1.23ms' in milliseconds."""
    match = re.fullmatch(NUMBER + r"\s*(\D+)", text.strip())
    if not match or match.group(2) not in UNITS_MS:
        raise ValueError("not a duration: %r" % text)
    return float(match.group(1)) * UNITS_MS[match.group(2)]


def parse_wrk(text):
    """wrk and wrk2; percentiles need --latency, or a script that prints key=value as test/bench/wrk.lua does."""
    if not re.search(r"^Running .* test @ ", text, re.M) or "Requests/sec:" not in text:
        return {}
    result = {"throughput": find(r"^Requests/sec:\s+" + NUMBER, text),
              "requests": find(r"^\s*([0-9]+) requests in ", text)}
    match = re.search(r"^\s+Latency\s+([0-9.]+)(us|ms|s|m|h)\s+\S+\s+([0-9.]+)(us|ms|s|m|h)", text, re.M)
    if match:
        result["latency_mean"] = float(match.group(1)) * UNITS_MS[match.group(2)]
        result["latency_max"] = float(match.group(3)) * UNITS_MS[match.group(4)]
    result.update(percentiles((float(p), float(v) * UNITS_MS[u]) for p, v, u in
                              re.findall(r"^\s+([0-9.]+)%\s+([0-9.]+)(us|ms|s|m|h)\s*$", text, re.M)))
    errors = 0
    match = re.search(r"Socket errors: connect ([0-9]+), read ([0-9]+), write ([0-9]+), timeout ([0-9]+)", text)
    if match:
        errors += sum(int(n) for n in match.groups())
    errors += find(r"Non-2xx or 3xx responses: ([0-9]+)", text) or 0
    result["errors"] = float(errors)
    return without_none(result)


def parse_ab(text):
    if "This is ApacheBench" not in text or "Requests per second:" not in text:
        return {}
    result = {"throughput": find(r"^Requests per second:\s+" + NUMBER, text),
              "requests": find(r"^Complete requests:\s+([0-9]+)", text),
              "latency_mean": find(r"^Total:\s+[0-9.]+\s+([0-9.]+)", text),
              # documents of changing length count as "Length" failures, but were answered
              "errors": (find(r"^Failed requests:\s+([0-9]+)", text) or 0) +
                        (find(r"^Non-2xx responses:\s+([0-9]+)", text) or 0)}
    result.update(percentiles((float(p), float(v)) for p, v in re.findall(r"^\s+([0-9]+)%\s+([0-9]+)", text, re.M)))
    return without_none(result)


def parse_hey(text):
    if "Requests/sec:" not in text or "Response time histogram:" not in text:
        return {}
    result = {"throughput": find(r"^\s+Requests/sec:\s+" + NUMBER, text)}
    for key, name in (("latency_mean", "Average"), ("latency_max", "Slowest")):
        value = find(r"^\s+%s:\s+%s secs" % (name, NUMBER), text)
        result[key] = None if value is None else value * 1e3
    result.update(percentiles((float(p), float(v) * 1e3) for p, v in
                              re.findall(r"^\s+([0-9.]+)%+ in ([0-9.]+) secs", text, re.M)))
    good = bad = 0
    for status, count in re.findall(r"^\s+\[([0-9]{3})\]\s+([0-9]+) responses", text, re.M):
        if status < "400":
            good += int(count)
        else:
            bad += int(count)
    _, _, errors = text.partition("Error distribution:")
    bad += sum(int(n) for n in re.findall(r"^\s+\[([0-9]+)\]", errors, re.M))
    result["requests"] = float(good)
    result["errors"] = float(bad)
    return without_none(result)


def parse_sysbench(text):
    if not re.search(r"^sysbench [0-9]", text, re.M) or "Latency (ms):" not in text:
        return {}
    throughput = find(r"^\s+transactions:\s+[0-9]+\s+\(([0-9.]+) per sec", text)
    if throughput is None:
        throughput = find(r"^\s*events per second:\s*([0-9.]+)", text)
    events = find(r"^\s*total number of events:\s+([0-9]+)", text)
    seconds = find(r"^\s*total time:\s+([0-9.]+)s", text)
    if throughput is None and events is not None and seconds:
        throughput = events / seconds
    result = {"throughput": throughput, "requests": events,
              "latency_mean": find(r"^\s+avg:\s+([0-9.]+)", text), "latency_max": find(r"^\s+max:\s+([0-9.]+)", text)}
    result.update(percentiles((float(p), float(v)) for p, v in
                              re.findall(r"^\s+([0-9.]+)(?:st|nd|rd|th) percentile:\s+([0-9.]+)", text, re.M)))
    result["errors"] = find(r"^\s+ignored errors:\s+([0-9]+)", text)
    return without_none(result)


def parse_redis_benchmark(text):
    """redis-benchmark: plain, -q and --csv. Of several tests, the sum of answers over the sum of their times, and the
    worst of the latencies."""
    rates, counts, found = [], [], []
    if re.search(r'^"test","rps"', text, re.M):
        header = None
        for line in text.splitlines():
            cells = re.findall(r'"([^"]*)"', line)
            if cells[:2] == ["test", "rps"]:
                header = cells
            elif header and len(cells) == len(header):
                row = dict(zip(header, cells))
                rates.append(float(row["rps"]))
                found.append(without_none({
                    "latency_mean": number(row["avg_latency_ms"]) if "avg_latency_ms" in row else None,
                    "latency_p50": number(row["p50_latency_ms"]) if "p50_latency_ms" in row else None,
                    "latency_p95": number(row["p95_latency_ms"]) if "p95_latency_ms" in row else None,
                    "latency_p99": number(row["p99_latency_ms"]) if "p99_latency_ms" in row else None,
                    "latency_max": number(row["max_latency_ms"]) if "max_latency_ms" in row else None}))
    elif "requests per second" in text:
        text = text.replace("\r", "\n")  # progress lines end so
        for line in text.splitlines():
            match = re.match(r"^(\S.*): ([0-9.]+) requests per second(?:, p50=([0-9.]+) msec)?", line)
            if match:
                rates.append(float(match.group(2)))
                found.append({"latency_p50": float(match.group(3))} if match.group(3) else {})
        if not rates:
            for block in re.split(r"^====== ", text, flags=re.M)[1:]:
                rate = find(r"throughput summary: ([0-9.]+) requests per second", block)
                if rate is None:
                    rate = find(r"^([0-9.]+) requests per second", block)
                if rate is None:
                    continue
                rates.append(rate)
                counts.append(find(r"^\s+([0-9]+) requests completed in", block))
                match = re.search(r"latency summary \(msec\):\s+avg\s+min\s+p50\s+p95\s+p99\s+max\s+" +
                                  r"\s+".join([NUMBER] * 6), block)
                found.append({} if not match else dict(zip(
                    ("latency_mean", "latency_p50", "latency_p95", "latency_p99", "latency_max"),
                    (float(match.group(i)) for i in (1, 3, 4, 5, 6)))))
    if not rates or min(rates) <= 0:
        return {}
    # each test has the same number of requests, so the harmonic mean is answers over time
    result = {"throughput": len(rates) / sum(1 / rate for rate in rates)}
    if counts and None not in counts:
        result["requests"] = sum(counts)
    for values in found:
        for key, value in values.items():
            result[key] = max(result.get(key, 0.0), value)
    return result


def parse_memtier(text):
    """memtier_benchmark: the Totals line, by the names in the header."""
    match = re.search(r"^Type\s+(Ops/sec.*)\n-+\n(?:.*\n)*?Totals\s+(.*)$", text, re.M)
    if not match:
        return {}
    names = re.split(r"\s{2,}", match.group(1).strip())
    names = [name for part in names for name in ([part] if "Latency" in part else part.split())]
    cells = match.group(2).split()
    if len(names) != len(cells):
        return {}
    row = dict(zip(names, cells))
    result = {"throughput": number(row["Ops/sec"])}
    pairs = []
    for name, cell in row.items():
        if cell in ("---", "nan", "-nan"):
            continue
        percent = re.match(r"p([0-9.]+) Latency", name)
        if percent:
            pairs.append((float(percent.group(1)), number(cell)))
        elif name in ("Avg. Latency", "Latency"):
            result["latency_mean"] = number(cell)
    result.update(percentiles(pairs))
    return result


def parse_pgbench(text):
    if "transaction type:" not in text or not re.search(r"^tps = ", text, re.M):
        return {}
    rates = re.findall(r"^tps = ([0-9.]+)(.*)$", text, re.M)
    # before version 14 there are two, and the one without the time to connect is what 14 prints
    rate = next((r for r, note in rates if "excluding" in note or "without" in note), rates[0][0])
    result = {"throughput": float(rate),
              "requests": find(r"^number of transactions actually processed: ([0-9]+)", text),
              "errors": find(r"^number of failed transactions: ([0-9]+)", text),
              "latency_mean": find(r"^latency average = ([0-9.]+) ms", text)}
    return without_none(result)


def parse_key_values(text):
    """Lines of the project's own programs and of test/bench/wrk.lua: 'load conns=1 req_s=2 p99_us=3'."""
    line = None
    for candidate in text.splitlines():
        if re.search(r"(^| )(req_s|ops_s)=[0-9]", candidate):
            line = candidate
    if line is None:
        return {}
    row = dict(re.findall(r"(\S+?)=(\S+)", line))
    result = {"throughput": float(row.get("req_s", row.get("ops_s")))}
    if "answers" in row or "requests" in row:
        # answers: with those of the load's own warm-up, for which processor time was used too
        result["requests"] = float(row.get("answers", row.get("requests")))
    for name in ("mean", "p50", "p75", "p90", "p95", "p99", "max"):
        if name + "_us" in row:
            result["latency_" + name] = float(row[name + "_us"]) / 1e3
    errors = [float(value) for key, value in row.items()
              if key == "errors" or key.endswith("_errors") or key == "timeouts"]
    if errors:
        result["errors"] = sum(errors)
    return result


# key=value first: wrk prints both where it runs test/bench/wrk.lua, and the line has more
PARSERS = {
    "key-values": parse_key_values,
    "wrk": parse_wrk,
    "ab": parse_ab,
    "hey": parse_hey,
    "sysbench": parse_sysbench,
    "redis-benchmark": parse_redis_benchmark,
    "memtier": parse_memtier,
    "pgbench": parse_pgbench,
}


def parse(text, which="auto"):
    """Numbers in the text by the named parser, or (auto) by the first that knows it; {} when none does."""
    if which == "none":
        return {}
    parsers = PARSERS.values() if which == "auto" else [PARSERS[which]]
    for parser in parsers:
        try:
            result = parser(text)
        except (ValueError, KeyError, TypeError):
            result = {}  # looks like its tool's output but is not
        if result:
            return result
    return {}


class Metric:
    """A user's own: NAME[+|-]=REGEX, + where higher is better and - where lower is. The value is the first group, or
    the whole match where there is none; of several matches the last counts."""

    def __init__(self, text):
        match = re.fullmatch(r"([A-Za-z_][\w .%/()-]*?)([+-]?)=(.+)", text, re.S)
        if not match:
            raise ValueError("--metric takes NAME=REGEX, NAME+=REGEX or NAME-=REGEX, not %r" % text)
        self.name, sign, pattern = match.groups()
        self.direction = {"+": 1, "-": -1, "": 0}[sign]
        try:
            self.pattern = re.compile(pattern, re.M)
        except re.error as error:
            raise ValueError("--metric %s: not a regular expression: %s" % (self.name, error)) from None

    def value(self, text):
        """The number, or None when the text has none."""
        last = None
        for match in self.pattern.finditer(text):
            last = match
        if last is None:
            return None
        try:
            return number(last.group(1) if self.pattern.groups else last.group(0))
        except (ValueError, AttributeError):
            return None
