"""The results as Markdown, for the terminal and for docs/performance.md."""
from compare import metrics, stats

from . import peers

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def cell(values):
    if len(values) < 2:
        return metrics.figure(values[0])
    middle = stats.median(values)
    half = (max(values) - min(values)) / 2
    return metrics.figure(middle) + (" ±%.0f%%" % (half / abs(middle) * 100) if middle else "")


def with_ratio(values, preloaded):
    """A peer's cell: its median, and in parentheses what of it the preloaded one takes."""
    middle, mine = stats.median(values), stats.median(preloaded)
    if abs(middle) * 1000 < abs(mine) or not middle:
        return cell(values)  # next to nothing: a ratio would say nothing
    return "%s (%.3g)" % (cell(values), mine / middle)


def ratio_range(values, base, direction):
    """The ratio with the rounds' range and the verdict."""
    result = stats.compare(base, values, direction)
    if result["ratio"] is None:
        return "-"
    text = "%.3g" % result["ratio"]
    if len(base) < 2:
        return text  # counted, or too few to say more
    if "ratio_min" in result:
        text += " (%.3g..%.3g)" % (result["ratio_min"], result["ratio_max"])
    return "%s %s" % (text, result["verdict"])


def rows_of(entry, kinds, first):
    """A row for each metric of the case."""
    for key, title, unit, direction in entry["metrics"]:
        name = entry["name"] + (": " + title if title else "") + (" [%s]" % unit if unit else "")
        row = [name]
        base = entry["values"].get(first, {}).get(key)
        for kind in kinds:
            values = entry["values"].get(kind, {}).get(key)
            if not values:
                row.append("failed" if kind in entry["failures"] else "")
            elif kind == first or not base or kind == "native" or kind.startswith("preloaded"):
                row.append(cell(values))
            else:
                row.append(with_ratio(values, base))
            if kind == first:
                native = entry["values"].get("native", {}).get(key)
                row.append(ratio_range(base, native, direction) if base and native else "")
        yield row


def markdown(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for i, row in enumerate(rows):
        yield "| " + " | ".join(text.ljust(width) if k == 0 else text.rjust(width) for k, (text, width) in enumerate(zip(row, widths))) + " |"
        if i == 0:
            yield "|" + "|".join("-" * (width + 2) if k == 0 else "-" * (width + 1) + ":" for k, width in enumerate(widths)) + "|"


def lines(data):
    """All of it. data: what main.py writes as JSON."""
    machine = data["machine"]
    yield "%s: %s, %d processor%s, %s, Linux %s, %s. Medians of %d runs%s, ± half of the range." % (
        data["time"][:10], machine["processor"] or "unknown processor", machine["processors"], "" if machine["processors"] == 1 else "s",
        machine["memory"], machine["kernel"], machine["libc"], data["runs"], " (--quick)" if data["quick"] else "")
    first = next((kind for kind in data["kinds"] if kind.startswith("preloaded")), None)
    groups = []
    for entry in data["cases"]:
        if entry["group"] not in groups:
            groups.append(entry["group"])
    for group in groups:
        entries = [entry for entry in data["cases"] if entry["group"] == group]
        kinds = [kind for kind in data["kinds"] if any(kind in entry["values"] or kind in entry["failures"] for entry in entries)]
        header = [group]
        for kind in kinds:
            header.append(peers.name(kind))
            if kind == first:
                header.append("preloaded / native")
        rows = [header] + [row for entry in entries for row in rows_of(entry, kinds, first)]
        yield ""
        yield from markdown(rows)
    said = []
    for entry in data["cases"]:
        for kind, text in entry["failures"].items():
            said.append("- %s, %s: %s" % (entry["name"], peers.name(kind), text))
    if said:
        yield ""
        yield "Failed:"
        yield ""
        yield from said
    foreign = [value for entry in data["cases"] for values in entry["values"].values() for value in values.get("foreign", [])]
    if foreign and stats.median(foreign) >= 0.05:
        yield ""
        yield "Other processes used %.0f%% of the machine meanwhile (median of all runs): trust the ratios, not the figures." % (
            stats.median(foreign) * 100)


def write(data, path):
    """Puts the tables between the marks in the file."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    before, mark, rest = text.partition(BEGIN)
    _, mark2, after = rest.partition(END)
    if not mark or not mark2:
        raise OSError("%s has no '%s' and '%s'" % (path, BEGIN, END))
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n" + "\n".join(lines(data)) + "\n" + END + after)
