"""The Open POSIX Test Suite, as it is kept in the Linux Test Project."""
import os
import re
import subprocess

import building
from outcome import Test

REPOSITORY = "https://github.com/linux-test-project/ltp.git"
INSIDE = "testcases/open_posix_testsuite"
MEANING = {1: "FAIL", 2: "UNRESOLVED", 4: "UNSUPPORTED", 5: "UNTESTED"}
FLAGS = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-D_XOPEN_SOURCE=700", "-g", "-O2", "-w"]
# What may not be called here, whatever the rights of who runs it.
FORBIDDEN = re.compile(r"\b(clock_settime|settimeofday|stime|adjtimex?|clock_adjtime|reboot)\s*\(")


def fetch(work):
    folder = os.path.join(work, "ltp")
    if not os.path.isdir(folder):
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", REPOSITORY, folder], check=True)
    return folder


def root(source):
    inside = os.path.join(source, INSIDE)
    return inside if os.path.isdir(inside) else source


def names(source):
    """Paths without suffix: numbered programs of the conformance tests, all programs of the functional ones. Those that are
    only compiled, and stress tests, which measure, are left out; so are those that set the clock."""
    found = []
    for part in ("conformance", "functional"):
        for folder, _, files in os.walk(os.path.join(root(source), part)):
            for file in files:
                if not file.endswith(".c") or "buildonly" in file:
                    continue
                if part == "conformance" and not file[-3].isdigit():
                    continue
                path = os.path.join(folder, file)
                if sets_clock(path):
                    continue
                found.append(os.path.relpath(path, root(source))[:-2])
    return sorted(found)


def sets_clock(path):
    with open(path, errors="replace") as file:
        text = file.read()
    local = re.findall(r'#\s*include\s+"([^"]+)"', text)
    for name in local:
        beside = os.path.join(os.path.dirname(path), name)
        if os.path.exists(beside) and os.path.abspath(beside) != os.path.abspath(path) and sets_clock(beside):
            return True
    return bool(FORBIDDEN.search(text))


def words(folder, name):
    try:
        with open(os.path.join(folder, name)) as file:
            return [word for word in file.read().split() if word.startswith("-")]
    except FileNotFoundError:
        return []


def build(source, out, wanted, jobs):
    top = root(source)
    os.makedirs(out, exist_ok=True)
    common = os.path.join(out, "common.o")
    if wrong := building.command(["cc", *FLAGS, "-I", f"{top}/include", "-c", f"{top}/lib/common.c", "-o", common]):
        raise SystemExit(f"{top}/lib/common.c: {wrong}")

    def program(name):
        path, target = os.path.join(top, name + ".c"), os.path.join(out, name)
        if building.newer(target, path):
            return None
        os.makedirs(os.path.dirname(target), exist_ok=True)
        folder = os.path.dirname(path)
        return building.command(["cc", *FLAGS, "-I", f"{top}/include", "-I", folder, path, common, "-o", target,
                                 *words(folder, "LDFLAGS"), *words(folder, "LDLIBS"), "-lpthread", "-lrt", "-lm"], folder)

    wrong = building.in_parallel(jobs, {name: lambda name=name: program(name) for name in wanted})
    tests = [Test(name, [os.path.join(out, name)], meaning=MEANING) for name in wanted if not wrong[name]]
    return tests, {name: why for name, why in wrong.items() if why}
