"""The plot of a sweep, by gnuplot: a panel for each figure, both sides in each, as SVG and PNG."""
import os
import shutil
import subprocess
import tempfile

from . import report
from .campaign import SIDES

COLOURS = {"native": "#b3532c", "preloaded": "#1f5fa8"}


class Failed(Exception):
    """No plot; the text says why."""


def numeric(points, name):
    try:
        return [float(point.values[name]) for point in points]
    except ValueError:
        return None


def quoted(text):
    return "'" + text.replace("'", "''").replace("\n", " ") + "'"


def data(points, key, side, xs):
    """Lines of x, median, lowest, highest."""
    for x, point in zip(xs, points):
        result = point.results.get(key)
        summary = result[side] if result else point.one_sided[side].get(key)
        if summary:
            yield "%.15g %.15g %.15g %.15g" % (x, summary["median"], summary["min"], summary["max"])


def script(campaign, keys, directory, base, names):
    """What gnuplot is to do."""
    points, sweep = campaign.points, campaign.options.sweep[0]
    xs = numeric(points, sweep)
    wide = xs and len(xs) > 2 and min(xs) > 0 and max(xs) / min(xs) > 15
    positions = xs or list(range(len(points)))
    across = 1 if len(keys) == 1 else 2
    down = (len(keys) + across - 1) // across
    title = campaign.options.title or ""
    lines = []
    for kind, terminal in (("svg", "svg size %d,%d enhanced font 'sans,13' background rgb 'white'"),
                           ("png", "pngcairo size %d,%d enhanced font 'sans,11'")):
        lines += ["reset", "set terminal " + terminal % (560 * across, 400 * down + (40 if title else 0)),
                  "set output " + quoted("%s.%s" % (base, kind)),
                  "set multiplot layout %d,%d%s" % (down, across, " title %s noenhanced" % quoted(title) if title else ""),
                  "set grid ytics lc rgb '#d8d8d8'", "set border 3", "set tics nomirror", "set key tmargin center horizontal noenhanced",
                  "set tmargin 5", "set xlabel %s noenhanced" % quoted(sweep.replace("_", " "))]
        # some room at both ends; gnuplot's own offsets go wrong by powers of ten
        low, high = min(positions), max(positions)
        if wide:
            lines += ["set logscale x", "set xrange [%.15g:%.15g]" % (low / (high / low) ** 0.05, high * (high / low) ** 0.05)]
        else:
            room = (high - low) * 0.05 or 1
            lines.append("set xrange [%.15g:%.15g]" % (low - room, high + room))
        marks = ", ".join("%s %.15g" % (quoted(point.values[sweep]), x) for point, x in zip(points, positions))
        lines.append("set xtics rotate by -45 (%s) noenhanced" % marks)
        for key in keys:
            lines.append("set title %s noenhanced" % quoted(report.labelled(key)))
            lines += scale_y(points, key)
            curves = []
            for side in SIDES:
                path = os.path.join(directory, "%d.%s" % (keys.index(key), side))
                rows = list(data(points, key, side, positions))
                if not rows:
                    continue
                with open(path, "w", encoding="ascii") as file:
                    file.write("\n".join(rows) + "\n")
                curves.append("%s using 1:2:3:4 with yerrorbars lw 1.5 pt 7 ps 0.6 lc rgb '%s' notitle" % (quoted(path), COLOURS[side]))
                curves.append("'' using 1:2 with linespoints lw 2 pt 7 ps 0.6 lc rgb '%s' title %s" % (COLOURS[side], quoted(names[side])))
            lines.append("plot " + ", ".join(curves))
        lines += ["unset multiplot", "set output"]
    return "\n".join(lines) + "\n"


def scale_y(points, key):
    """From 0, or by powers of ten where the sides are far apart."""
    values = [point.results[key][side]["median"] for point in points if key in point.results for side in SIDES]
    if values and min(values) > 0 and max(values) / min(values) > 50:
        return ["set logscale y", "set yrange [*:*]"]
    return ["unset logscale y", "set yrange [0:*]"]


def draw(campaign, base, keys=None, names=None):
    """Writes base.svg and base.png."""
    have = set().union(*(point.results for point in campaign.points))
    if keys:
        unknown = [key for key in keys if key not in have]
        if unknown:
            raise Failed("--plot-metrics: no figures of %s; there are %s" % (", ".join(unknown), ", ".join(sorted(have))))
    else:
        keys = report.sweep_keys(campaign.points, 4)
    if not keys:
        raise Failed("no plot: no figures of both sides")
    gnuplot = shutil.which("gnuplot")
    if not gnuplot:
        raise Failed("no plot: gnuplot is not installed (Debian: gnuplot-nox)")
    with tempfile.TemporaryDirectory(prefix="vthread-plot.") as directory:
        text = script(campaign, keys, directory, base, names or {side: side for side in SIDES})
        try:
            done = subprocess.run([gnuplot, "-"], input=text.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  timeout=60, check=False)
        except subprocess.TimeoutExpired:
            raise Failed("no plot: gnuplot did not end within 60 s") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Failed("no plot: gnuplot: " + (lines[-1] if lines else "status %d" % done.returncode))
