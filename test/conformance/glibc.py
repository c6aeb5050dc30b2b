"""glibc's tests of threads (nptl and sysdeps/pthread), built as plain programs against the libc that is installed.

What to build comes from the two makefiles: the lists of tests, flags, modules to link with, arguments and variables. The tests'
frame, support/, is compiled to an archive of its own. Headers of glibc that the tests share with it and that stand alone are
linked into a folder; what needs more of glibc's inside than that does not compile, and is said.
"""
import glob
import os
import re
import shlex
import subprocess

import building
from outcome import Test

MEANING = {77: "unsupported"}
# Tests of cancellation open it in the current folder.
FILES = ["Makefile"]
FLAGS = ["-std=gnu11", "-O2", "-g", "-w", "-D_GNU_SOURCE", "-DIS_IN(x)=0", "-DMODULE_NAME=testsuite", "-D_ISOMAC",
         "-Dattribute_hidden=", "-DTIMEOUTFACTOR=1", "-include", "limits.h"]
SHARED_HEADERS = [
    "support", "test-skeleton.c", "posix", "elf", "sysdeps", "include/array_length.h", "include/libc-diag.h",
    "include/libc-pointer-arith.h", "include/libc-internal.h", "include/intprops.h", "include/scratch_buffer.h",
    "sysdeps/x86_64/stackinfo.h", "sysdeps/unix/sysv/linux/kernel-features.h", "sysdeps/pthread/eintr.c",
    "sysdeps/unix/sysv/linux/tst-skeleton-thread-affinity.c",
    "sysdeps/unix/sysv/linux/tst-skeleton-affinity.c", "sysdeps/x86/tst-stack-align.h",
]
STAND_IN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "stand_in")
FOLDERS = ("nptl", "sysdeps/pthread")
# Also needs the headers of a tree that has been configured, and of no other use here.
SUPPORT_WITHOUT = re.compile(r"_descriptors|xreadlink|time64|resolv|dns|hostent|netent|addrinfo|herrno|ptrace|selinux")


def source_entries():
    """One-line entries deb-src of where the system has its packages of the distribution from."""
    entries = []
    for path in glob.glob("/etc/apt/sources.list") + glob.glob("/etc/apt/sources.list.d/*"):
        with open(path) as file:
            text = file.read()
        if path.endswith(".list"):
            entries += [re.sub(r"^deb\s", "deb-src ", line) for line in text.splitlines() if re.match(r"deb\s", line)]
        for block in re.split(r"\n\s*\n", text) if path.endswith(".sources") else []:
            of = {k.lower(): v.split() for k, v in re.findall(r"^([\w-]+):[ \t]*(.*)$", block, re.M)}
            signed = f"[signed-by={of['signed-by'][0]}] " if of.get("signed-by") else ""
            entries += [f"deb-src {signed}{uri} {suite} {' '.join(of.get('components', []))}"
                        for uri in of.get("uris", []) for suite in of.get("suites", [])]
    return [entry for entry in entries if re.search(r"debian|ubuntu", entry)]


def fetch(work):
    """The source package of the distribution's libc. The system's own lists say nothing of sources as a rule: there are lists of
    our own in the work folder, made from the entries that the system has."""
    found = glob.glob(os.path.join(work, "glibc-2*/"))
    if not found:
        apt = os.path.join(work, "apt")
        os.makedirs(os.path.join(apt, "lists", "partial"), exist_ok=True)
        with open(os.path.join(apt, "sources.list"), "w") as file:
            file.write("\n".join(source_entries()) + "\n")
        own = [word for option in (f"Dir::Etc::SourceList={apt}/sources.list", "Dir::Etc::SourceParts=/dev/null",
                                   f"Dir::State::Lists={apt}/lists", f"Dir::Cache::srcpkgcache={apt}/srcpkgcache.bin",
                                   f"Dir::Cache::pkgcache={apt}/pkgcache.bin", "APT::Sandbox::User=root")
               for word in ("-o", option)]
        subprocess.run(["apt-get", *own, "update"], cwd=work, check=True)
        version = subprocess.run(["dpkg-query", "-W", "-f", "${source:Version}", "libc6"], text=True, check=True,
                                 stdout=subprocess.PIPE).stdout
        for wanted in (f"glibc={version}", "glibc"):
            if subprocess.run(["apt-get", *own, "source", "--download-only", wanted], cwd=work).returncode == 0:
                break
        subprocess.run(["dpkg-source", "--extract", *glob.glob(os.path.join(work, "glibc_*.dsc"))], cwd=work, check=True)
        found = glob.glob(os.path.join(work, "glibc-2*/"))
    return found[0]


class Makefiles:
    """What the makefiles say, as far as it is needed: variables whose values are words, and what programs are linked with."""

    def __init__(self, source):
        text = ""
        for folder in FOLDERS:
            with open(os.path.join(source, folder, "Makefile")) as file:
                text += re.sub(r"\\\n", " ", file.read()) + "\n"
        self.values, self.needs = {}, {}
        for line in text.splitlines():
            if line.startswith("\t"):
                continue
            line = line.split(" #")[0]
            if match := re.match(r"([\w.-]+)\s*[:+]?=\s*(.*)", line):
                self.values[match[1]] = self.values.get(match[1], "") + " " + match[2]
            elif match := re.match(r"\$\(objpfx\)([\w.-]+):\s*(.*)", line):
                self.needs[match[1]] = self.needs.get(match[1], []) + re.findall(r"\$\(objpfx\)([\w.-]+)", match[2])

    def words(self, name):
        text = re.sub(r"\$\(addprefix ([\w-]+),([^)]*)\)",
                      lambda m: " ".join(m[1] + word for word in m[2].split()), self.values.get(name, ""))
        return [word for word in text.split() if not word.startswith(("#", "$"))]

    def value(self, name, names):
        text = self.values.get(name, "")
        text = re.sub(r"\$\((tst-[\w-]+)\)", lambda other: self.values.get(other[1], ""), text)
        for variable, value in names.items():
            text = text.replace(f"$({variable})", value)
        return shlex.split(text)

    def tests(self):
        static = set(self.words("tests-static") + self.words("xtests-static"))
        listed = self.words("tests") + self.words("tests-internal") + self.words("xtests") + self.words("tests-container")
        return sorted({name for name in listed if name.startswith("tst-")} - static)

    def modules(self):
        return sorted(name for name in set(self.words("modules-names")) if name.startswith("tst-"))


def names(source):
    return Makefiles(source).tests()


def find(source, name):
    for folder in FOLDERS:
        for suffix in (".c", ".cc"):
            if os.path.exists(path := os.path.join(source, folder, name + suffix)):
                return path
    return None


def headers(source, out):
    """A folder with what of glibc's headers the tests may see."""
    folder = os.path.join(out, "include")
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, "config.h"), "w").close()
    # what is included as "../file"
    os.makedirs(os.path.join(folder, "beside"), exist_ok=True)
    # what the x86 header goes on to
    generic = os.path.join(folder, "beside", "tst-stack-align.h")
    if not os.path.lexists(generic):
        os.symlink(os.path.join(source, "sysdeps/generic/tst-stack-align.h"), generic)
    for path in SHARED_HEADERS:
        here, there = os.path.join(source, path), os.path.join(folder, os.path.basename(path))
        if os.path.exists(here) and not os.path.lexists(there):
            os.symlink(here, there)
    return folder


def support(source, out, include, jobs):
    archive = os.path.join(out, "libsupport.a")
    with open(os.path.join(source, "support", "Makefile")) as file:
        text = re.sub(r"\\\n", " ", file.read())
    routines = re.search(r"^libsupport-routines =(.*)", text, re.M)[1].split()
    routines = [name for name in routines if not SUPPORT_WITHOUT.search(name)]
    folder = os.path.join(out, "support.o")
    os.makedirs(folder, exist_ok=True)
    paths = [f'-D{name}_PATH="{out}"' for name in
             ("SRCDIR", "OBJDIR", "OBJDIR_ELF_LDSO", "INSTDIR", "LIBDIR", "BINDIR", "SBINDIR", "SLIBDIR", "ROOTSBINDIR",
              "COMPLOCALEDIR")]

    def compile_one(name):
        path, target = os.path.join(source, "support", name + ".c"), os.path.join(folder, name + ".o")
        if building.newer(target, path):
            return None
        return building.command(["cc", *FLAGS, *paths, "-I", include, "-I", STAND_IN, "-I", os.path.join(include, "support"), "-c", path, "-o", target])

    wrong = building.in_parallel(jobs, {name: lambda name=name: compile_one(name) for name in routines})
    for name, why in wrong.items():
        if why:
            print(f"not built: support/{name}: {why}")
    objects = [os.path.join(folder, name + ".o") for name in routines if not wrong[name]]
    if os.path.exists(archive):
        os.unlink(archive)
    if why := building.command(["ar", "rcs", archive, *objects]):
        raise SystemExit(f"{archive}: {why}")
    return archive


def build(source, out, wanted, jobs):
    os.makedirs(out, exist_ok=True)
    make = Makefiles(source)
    include = headers(source, out)
    archive = support(source, out, include, jobs)

    def flags(file):
        return [flag for flag in make.value("CFLAGS-" + file, {}) if flag.startswith(("-f", "-std", "-D"))]

    def compile_to(path, name, target, *more):
        compiler = "c++" if path.endswith(".cc") else "cc"
        given = [flag for flag in FLAGS if compiler == "cc" or not flag.startswith("-std")]
        of_file = flags(os.path.basename(path)) + flags(name + ".o")
        return building.command([compiler, *given, *of_file, "-I", include, "-I", STAND_IN, "-I", include + "/beside",
                                 *[word for folder in FOLDERS for word in ("-I", os.path.join(source, folder))],
                                 "-I", os.path.join(include, "support"), *more])

    def links(name):
        return [word for word in make.value("LDFLAGS-" + name, {}) if word.startswith(("-W", "-r"))]

    def module(name):
        path, target = find(source, name), os.path.join(out, name + ".so")
        if path is None:
            return "no source"
        if building.newer(target, path):
            return None
        return compile_to(path, name, target, "-fPIC", "-shared", path, "-o", target, *links(name + ".so"),
                          *[os.path.join(out, need) for need in make.needs.get(name + ".so", []) if need.endswith(".so")])

    def program(name):
        path, target = find(source, name), os.path.join(out, name)
        if path is None:
            return "no source"
        if building.newer(target, path, archive if not os.path.exists(target) else path):
            return None
        with_them = [os.path.join(out, need) for need in make.needs.get(name, []) if need.endswith(".so")]
        for need in make.needs.get(name, []):
            if need.endswith(".o") and (beside := find(source, need[:-2])):
                with_them.append(beside)
        return compile_to(path, name, target, path, "-o", target, *links(name), *with_them, archive, "-Wl,-rpath," + out,
                          *[word for word in make.value("LDLIBS-" + name, {}) if word.startswith(("-l", "-W"))],
                          "-lpthread", "-lrt", "-ldl", "-lm")

    modules = make.modules()
    # first those that others are linked with
    later = [name for name in modules if make.needs.get(name + ".so")]
    wrong = building.in_parallel(jobs, {name: lambda name=name: module(name) for name in modules if name not in later})
    wrong.update(building.in_parallel(jobs, {name: lambda name=name: module(name) for name in later}))
    for name, why in wrong.items():
        if why:
            print(f"not built: module {name}: {why}")
    for i in range(20):
        for j in range(20):
            copy = os.path.join(out, f"tst-stack4mod-{i}-{j}.so")
            if "tst-stack4" in wanted and not os.path.lexists(copy):
                building.command(["cp", os.path.join(out, "tst-stack4mod.so"), copy])

    wrong = building.in_parallel(jobs, {name: lambda name=name: program(name) for name in wanted})
    tests = []
    for name in wanted:
        if wrong[name]:
            continue
        exe = os.path.join(out, name)
        given = {"objpfx": out + "/", "host-test-program-cmd": exe, "common-objpfx": "/usr/lib/", "shared-thread-library": ""}
        # the suite's own limit, 20 s for most, is for a machine that does nothing else
        env = {"TIMEOUTFACTOR": "3", "LD_LIBRARY_PATH": out}
        for word in make.value(name + "-ENV", given):
            variable, _, value = word.partition("=")
            if variable != "LD_PRELOAD":
                env[variable] = value
        tests.append(Test(name, [exe, *make.value(name + "-ARGS", given)], env, MEANING, FILES))
    return tests, {name: why for name, why in wrong.items() if why}
