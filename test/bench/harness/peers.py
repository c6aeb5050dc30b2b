"""What runs beside the library: the benchmark programs in other languages and libraries, built where those are there."""
import os
import re
import shutil
import subprocess


class Absent(Exception):
    """The peer cannot be had; the text says why."""


def build(arguments, directory, environment=None):
    done = subprocess.run(arguments, cwd=directory, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
    if done.returncode:
        lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
        raise Absent("does not build: " + (lines[-1] if lines else "status %d" % done.returncode))


def newer(made, *sources):
    return os.path.exists(made) and all(os.path.getmtime(made) >= os.path.getmtime(source) for source in sources)


def go(sources, out):
    if not shutil.which("go"):
        raise Absent("no Go compiler (Debian: golang-go)")
    source, made = os.path.join(sources, "goroutines.go"), os.path.join(out, "goroutines")
    if not newer(made, source):
        build(["go", "build", "-o", made, source], out, {"GO111MODULE": "off", "GOFLAGS": "", "GOCACHE": os.path.join(out, "go-cache")})
    return [made]


def fiber(sources, out):
    compiler = os.environ.get("CXX") or "c++"
    source, made = os.path.join(sources, "fibers.cpp"), os.path.join(out, "fibers")
    if not newer(made, source):
        probe = subprocess.run([compiler, "-E", "-x", "c++", "-"], input=b"#include <boost/fiber/all.hpp>\n", stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, check=False)
        if probe.returncode:
            raise Absent("no boost/fiber/all.hpp (Debian: libboost-fiber-dev)")
        build([compiler, "-O2", "-std=c++17", "-pthread", "-o", made, source, "-lboost_fiber", "-lboost_context"], out)
    return [made]


def java(sources, out):
    """Java has virtual threads from 21 on."""
    home = os.environ.get("JAVA_HOME")
    command, compiler = (os.path.join(home, "bin", name) if home else shutil.which(name) for name in ("java", "javac"))
    if not command or not os.path.exists(command):
        raise Absent("no java")
    text = subprocess.run([command, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode()
    match = re.search(r'version "([0-9]+)', text)
    if not match or int(match.group(1)) < 21:
        raise Absent("java %s has no virtual threads: 21 or newer is needed (JAVA_HOME names another)" % (match.group(1) if match else "?"))
    if not compiler or not os.path.exists(compiler):
        raise Absent("no javac")
    source = os.path.join(sources, "JavaThreads.java")
    if not newer(os.path.join(out, "JavaThreads.class"), source):
        build([compiler, "-d", out, source], out)
    return [command, "-cp", out, "JavaThreads", "virtual"]


BUILDERS = {"go": go, "fiber": fiber, "java": java}
NAMES = {"native": "native", "go": "Go", "fiber": "Boost.Fiber", "java": "Java", "epoll-1": "epoll, 1 loop", "epoll-2": "epoll, 2 loops",
         "uring-1": "io_uring, 1 loop"}


def name(kind):
    if kind.startswith("preloaded-"):
        return "preloaded, %s carrier%s" % (kind[10:], "" if kind == "preloaded-1" else "s")
    return NAMES[kind]


def find(sources, out, wanted, say):
    """{kind: command} of the peers that are there."""
    found = {}
    os.makedirs(out, exist_ok=True)
    for kind, builder in BUILDERS.items():
        if wanted and kind not in wanted:
            continue
        try:
            found[kind] = builder(sources, out)
        except (Absent, OSError, subprocess.TimeoutExpired) as error:
            say("%s: skipped: %s" % (NAMES[kind], error))
    return found
