"""The command line."""
import argparse
import os
import re
import shlex

from . import parse

DESCRIPTION = """\
Runs a command natively and on virtual threads, in turn, several times, and prints how they differ.

A program that ends is run as it is. A server is given with what to wait for (--ready) and what to
load it with (--load); it is stopped by SIGTERM, or by --stop. {port} in any of the commands is a
free port, {NAME} the value of a --sweep.
"""

EPILOG = """\
examples:
  compare -- ./program its arguments
  compare --ready tcp:{port} --load 'wrk -t2 -c300 -d5s --latency http://127.0.0.1:{port}/' -- ./server {port}
  compare --sweep connections=50,300,1000 --plot server --ready tcp:8080 \\
      --load 'wrk -t2 -c{connections} -d5s --latency http://127.0.0.1:8080/' -- ./server 8080

Exit status: 0 when all runs went well, 1 when one did not or the outputs differ, 2 when used wrongly.
"""


class Wrong(Exception):
    """Used wrongly; the text says how."""


def assignment(text):
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
        raise argparse.ArgumentTypeError("takes NAME=VALUE, not %r" % text)
    return name, value


def sweep(text):
    name, equals, values = text.partition("=")
    values = [value for value in values.split(",") if value]
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not values or name == "port":
        raise argparse.ArgumentTypeError("takes NAME=VALUE,VALUE..., not %r" % text)
    return name, values


def positive(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError("takes a number of seconds above 0, not %r" % text)
    return value


def count(low):
    def convert(text):
        if not text.isdigit() or not low <= int(text) <= 10000:
            raise argparse.ArgumentTypeError("takes a whole number, %d or more, not %r" % (low, text))
        return int(text)
    return convert


def metric(text):
    try:
        return parse.Metric(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parser():
    p = argparse.ArgumentParser(prog="compare", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False,
                                usage="compare [options] [--] command [arguments...]",
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    g = p.add_argument_group("a server")
    g.add_argument("--ready", metavar="WHAT", help="tcp:PORT, tcp:HOST:PORT, or a shell command that succeeds once the server is up")
    g.add_argument("--load", metavar="CMD", help="shell command that loads it, and whose end is the end of the run")
    g.add_argument("--stop", metavar="CMD", help="shell command that stops it (default: SIGTERM)")
    g.add_argument("--ready-timeout", metavar="S", type=positive, default=30.0, help="seconds for --ready (default 30)")
    g = p.add_argument_group("the runs")
    g.add_argument("-n", "--runs", metavar="N", type=count(1), default=5, help="runs a side (default 5)")
    g.add_argument("--warm-up", metavar="N", type=count(0), default=1, help="runs a side before, not counted (default 1)")
    g.add_argument("--timeout", metavar="S", type=positive, default=300.0, help="seconds for a run (default 300)")
    g.add_argument("--expect-status", metavar="N", type=count(0), default=0, help="the exit status that a program should have (default 0)")
    g.add_argument("--sweep", metavar="NAME=A,B,...", type=sweep, help="all of it for each value: of {NAME} in the commands, or of a variable")
    g.add_argument("--same-output", nargs="?", const="exact", choices=("exact", "sorted"),
                   help="check that standard output is the same on both sides (=sorted: its lines in any order)")
    g.add_argument("--syscalls", action="store_true", help="count system calls, by perf or strace, in a further run a side")
    g = p.add_argument_group("what is measured")
    g.add_argument("--parse", metavar="TOOL", choices=["auto", "none"] + list(parse.PARSERS), default="auto",
                   help="whose output it is (default auto): none, " + ", ".join(parse.PARSERS))
    g.add_argument("--metric", metavar="NAME=REGEX", type=metric, action="append", default=[],
                   help="a figure of your own: the first group of the last match. NAME+= where higher is better, NAME-= where lower is")
    g = p.add_argument_group("the preloaded side")
    g.add_argument("-l", "--library", metavar="PATH", help="the libvthread.so to use (default: beside this script)")
    g.add_argument("-c", "--carriers", metavar="N", type=count(1), help="VTHREAD_CARRIERS")
    g.add_argument("-s", "--stack-size", metavar="SIZE", help="VTHREAD_STACK_SIZE")
    g.add_argument("--io", choices=("auto", "io_uring", "epoll"), help="VTHREAD_IO")
    g.add_argument("--setenv", metavar="NAME=VALUE", type=assignment, action="append", default=[], help="a variable of the preloaded side")
    g.add_argument("--setenv-both", metavar="NAME=VALUE", type=assignment, action="append", default=[], help="a variable of both sides")
    g.add_argument("--native", metavar="CMD", help="another command for the native side, as one string (quotes as in a shell)")
    g = p.add_argument_group("what comes out")
    g.add_argument("--json", metavar="FILE", help="all figures of all runs")
    g.add_argument("--plot", metavar="BASE", help="with --sweep: BASE.svg and BASE.png, by gnuplot")
    g.add_argument("--plot-metrics", metavar="A,B,...", help="what to plot, by the names in the JSON file (default: what there is of throughput, latency_p99, cpu_request, rss, ...)")
    g.add_argument("--title", help="of the report and the plot")
    g.add_argument("--keep", metavar="DIR", help="keep the outputs of all runs there")
    g.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")
    p.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return p


def find_library(root):
    """Beside the script: in the build tree, or where cmake --install put both."""
    import glob
    for pattern in ("build/libvthread.so", "lib*/libvthread.so", "lib*/*/libvthread.so"):
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            return path
    return None


def read(arguments, root):
    """The options, checked. root: the folder above the script's."""
    options = parser().parse_args(arguments)
    if options.command[:1] == ["--"]:
        options.command = options.command[1:]
    if not options.command:
        raise Wrong("no command (see compare --help)")
    if (options.ready or options.stop) and not options.load:
        raise Wrong("--ready and --stop are for a server, and that needs --load CMD")
    if options.load and not options.ready:
        raise Wrong("--load needs --ready tcp:PORT or --ready CMD, to know when the server is up")
    if options.plot and not options.sweep:
        raise Wrong("--plot needs --sweep NAME=A,B,...")
    if options.load and options.same_output:
        raise Wrong("--same-output is for programs that end, not for servers")
    options.native_command = options.command
    if options.native is not None:
        try:
            options.native_command = shlex.split(options.native)
        except ValueError as error:
            raise Wrong("--native: %s" % error) from None
        if not options.native_command:
            raise Wrong("--native: no command")
    options.library = options.library or find_library(root)
    if not options.library:
        raise Wrong("libvthread.so is not beside this script: build it (cmake -B build && cmake --build build) or give -l PATH")
    options.library = os.path.abspath(options.library)
    if not os.access(options.library, os.R_OK):
        raise Wrong("library %s: not a file that can be read" % options.library)
    if re.search(r"[\s:]", options.library):
        raise Wrong("library %s: LD_PRELOAD cannot name a path with a space or a colon in it" % options.library)
    if options.sweep:
        name = options.sweep[0]
        texts = options.command + options.native_command + [options.ready or "", options.load or "", options.stop or ""]
        texts += [value for _, value in options.setenv + options.setenv_both]
        options.sweep_variable = not any("{%s}" % name in text for text in texts)
        if options.sweep_variable and not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            raise Wrong("--sweep %s: none of the commands has {%s}, and it is not the name of a variable" % (name, name))
    return options


def fill(text, values):
    """{port} and {NAME} replaced; other braces stay."""
    for name, value in values.items():
        text = text.replace("{%s}" % name, str(value))
    return text
