"""scripts/compare from end to end, with programs and servers that are small enough for any machine."""
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

COMPARE = os.environ["COMPARE"]
LAUNCHER = os.environ["LAUNCHER"]
LIBRARY = os.environ["LIBRARY"]
BENCH = os.environ["BENCH"]  # where the benchmark programs are
CREATEJOIN, ECHO, LOAD = (os.path.join(BENCH, name) for name in ("createjoin", "echo_tpc", "load"))


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class End(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="compare-test.")
        self.addCleanup(shutil.rmtree, self.directory, True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def compare(self, *arguments, status=0, runs=2, environment=None):
        """The report and the JSON file's content."""
        done = subprocess.run([COMPARE, "-l", LIBRARY, "-n", str(runs), "--json", self.path("json"), *arguments],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200,
                              env={**os.environ, "TMPDIR": self.directory, **(environment or {})}, check=False)
        out, err = done.stdout.decode(), done.stderr.decode()
        self.assertEqual(done.returncode, status, out + err)
        self.assertFalse([name for name in os.listdir(self.directory) if name.startswith("vthread-compare")])
        try:
            with open(self.path("json"), encoding="utf-8") as file:
                return out, err, json.load(file)
        except OSError:
            return out, err, None

    # --- programs ---

    def test_program(self):
        out, err, result = self.compare("--carriers", "2", "--metric", r"each-=us_each=([\d.]+)", "--", CREATEJOIN, "30000", "50")
        self.assertIn("[6/6]", err)
        self.assertIn("the library made 30000 virtual threads", out)
        point = result["points"][0]
        self.assertTrue(point["library_seen"])
        self.assertEqual(len(point["runs"]), 4)
        self.assertEqual(point["results"]["each"]["native"]["runs"], 2)
        for key in ("throughput", "wall", "cpu", "voluntary_switches", "each"):
            self.assertIn(key, point["results"])
            self.assertGreaterEqual(point["results"][key]["native"]["median"], 0)

    def test_environment(self):
        """Variables reach the sides that they are for, and nothing else does."""
        script = 'echo "${LD_PRELOAD:-none} ${VTHREAD_CARRIERS:-none} ${VTHREAD_IO:-none} ${MINE:-none} ${BOTH:-none}"'
        self.compare("-c", "3", "--io", "epoll", "--setenv", "MINE=a b", "--setenv-both", "BOTH=c", "--keep", self.path("kept"),
                     "--warm-up", "0", "--", "sh", "-c", script, runs=1)
        seen = {}
        for name in os.listdir(self.path("kept")):
            with open(os.path.join(self.path("kept"), name, "command.out"), encoding="utf-8") as file:
                seen[name.partition("-")[2]] = file.read().strip()
        self.assertEqual(seen, {"native": "none none none none c", "preloaded": os.path.realpath(LIBRARY) + " 3 epoll a b c"})

    def test_memory_and_threads(self):
        """Threads that live for long enough to be seen."""
        program = "import threading, time; [threading.Thread(target=time.sleep, args=(1.5,)).start() for _ in range(20)]"
        _, _, result = self.compare("--warm-up", "1", "-c", "2", "--", sys.executable, "-c", program, runs=1)
        results = result["points"][0]["results"]
        self.assertGreaterEqual(results["threads"]["native"]["median"], 20)
        self.assertLess(results["threads"]["preloaded"]["median"], 20)
        for side in ("native", "preloaded"):
            self.assertTrue(2 < results["rss"][side]["median"] < 500)
            self.assertTrue(0 < results["page_tables"][side]["median"] < 50)

    def test_same_output(self):
        out, _, result = self.compare("--same-output", "--", "seq", "1000", runs=2)
        self.assertIn("output: the same on both sides", out)
        self.assertIs(result["points"][0]["same_output"], True)
        out, _, result = self.compare("--same-output", "--", "sh", "-c", 'echo "${LD_PRELOAD:+other}"', status=1)
        self.assertIn("native and preloaded runs differ", out)
        self.assertIs(result["points"][0]["same_output"], False)
        shuffled = 'if [ "$LD_PRELOAD" ]; then printf "a\\nb\\n"; else printf "b\\na\\n"; fi'
        self.compare("--same-output", "--", "sh", "-c", shuffled, status=1)
        self.compare("--same-output=sorted", "--", "sh", "-c", shuffled)
        out, _, _ = self.compare("--same-output", "--", "sh", "-c", "date +%N", status=1)
        self.assertIn("native runs differ from each other already", out)

    def test_failures(self):
        fails = 'if [ "$LD_PRELOAD" ]; then echo reason >&2; exit 3; fi'
        out, _, result = self.compare("--", "sh", "-c", fails, status=1)
        self.assertIn("FAILED, preloaded, 2 times: ended with status 3, not 0: reason", out)
        self.assertNotIn("FAILED, native", out)
        self.assertEqual(result["points"][0]["failures"]["native"], [])
        self.compare("--expect-status", "3", "--", "sh", "-c", "exit 3")
        out, _, _ = self.compare("--", "sh", "-c", "kill -SEGV $$", status=1)
        self.assertIn("FAILED, native, 2 times: ended with status 139", out)
        out, _, _ = self.compare("--", "/nonexistent/program", status=1)
        self.assertIn("cannot run /nonexistent/program", out)
        out, _, _ = self.compare("--metric", "x=never", "--", "true", status=1)
        self.assertIn("--metric x: no match", out)

    def test_library_not_loaded(self):
        """A static program is not taken for a preloaded one."""
        if not os.environ.get("STATIC_SLEEP"):
            self.skipTest("no static libc")
        out, _, result = self.compare("--warm-up", "0", "--", os.environ["STATIC_SLEEP"], "1.5", status=1)
        self.assertIn("seen in no process", out)
        self.assertFalse(result["points"][0]["library_seen"])
        out, _, _ = self.compare("--warm-up", "0", "--", os.environ["STATIC_SLEEP"], "0.2")
        self.assertRegex(out, "not seen on the preloaded side|seen in no process")

    def test_timeout(self):
        pids = self.path("pids")
        command = "sleep 600 & echo $! >>%s; setsid sleep 600 & echo $! >>%s; wait" % (pids, pids)
        out, _, _ = self.compare("--timeout", "0.5", "--warm-up", "0", "--", "sh", "-c", command, status=1)
        self.assertIn("no end within 0.5 s", out)
        self.assert_gone(pids, 8)

    def assert_gone(self, path, number):
        with open(path, encoding="ascii") as file:
            pids = [int(line) for line in file]
        self.assertEqual(len(pids), number)
        for pid in pids:
            self.assertTrue(wait_until(lambda p=pid: not alive(p), 10), "process %d was left behind" % pid)

    def interrupted(self, number, status):
        pids = self.path("pids")
        command = "sleep 600 & echo $! >>%s; sleep 600 & echo $! >>%s; wait" % (pids, pids)
        # apart from the terminal: the test's runner is not to be interrupted
        with subprocess.Popen([COMPARE, "-l", LIBRARY, "--", "sh", "-c", command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              start_new_session=True, env={**os.environ, "TMPDIR": self.directory}) as popen:
            self.assertTrue(wait_until(lambda: os.path.exists(pids) and len(open(pids, encoding="ascii").read().split()) == 2))
            popen.send_signal(number)
            popen.stderr.read()
            self.assertEqual(popen.wait(60), status)
        self.assert_gone(pids, 2)
        self.assertTrue(wait_until(lambda: not [n for n in os.listdir(self.directory) if n.startswith("vthread-compare")], 10))

    def test_interrupt(self):
        self.interrupted(signal.SIGINT, 128 + signal.SIGINT)

    def test_terminate(self):
        self.interrupted(signal.SIGTERM, 128 + signal.SIGTERM)

    def test_killed(self):
        self.interrupted(signal.SIGKILL, -signal.SIGKILL)

    # --- servers ---

    def load(self, seconds="0.5", connections="20"):
        return "%s -w 0.1 {port} %s %s" % (shlex.quote(LOAD), connections, seconds)

    def test_server(self):
        out, _, result = self.compare("--ready", "tcp:{port}", "--load", self.load(), "-c", "2", "--", ECHO, "{port}")
        point = result["points"][0]
        self.assertTrue(point["library_seen"])
        for key in ("throughput", "latency_p50", "latency_p99", "cpu", "cpu_request", "start", "rss", "threads"):
            self.assertIn(key, point["results"])
        self.assertGreaterEqual(point["results"]["threads"]["native"]["median"], 21)
        self.assertLess(point["results"]["threads"]["preloaded"]["median"], 21)
        self.assertIn("ratio", out)

    def test_server_commands(self):
        """--ready and --stop by commands; the server is stopped by the latter."""
        stopped = self.path("stopped")
        self.compare("--ready", "echo > /dev/tcp/127.0.0.1/{port}".join(("bash -c '", "'")), "--load", self.load("0.2"),
                     "--stop", "echo {port} >>%s; kill $(cat %s)" % (stopped, self.path("pid")), "--warm-up", "0", "--",
                     "sh", "-c", "echo $$ >%s; exec %s {port}" % (self.path("pid"), shlex.quote(ECHO)), runs=1)
        with open(stopped, encoding="ascii") as file:
            self.assertEqual(len(file.readlines()), 2)

    def test_server_failures(self):
        out, _, _ = self.compare("--ready", "tcp:{port}", "--ready-timeout", "0.3", "--load", "true", "--", "sleep", "600", status=1)
        self.assertIn("not ready within 0.3 s", out)
        out, _, _ = self.compare("--ready", "tcp:{port}", "--load", "true", "--", "false", status=1)
        self.assertIn("ended with status 1 before it was ready", out)
        out, _, _ = self.compare("--ready", "true", "--load", "echo bad >&2; exit 9", "--", "sleep", "600", status=1)
        self.assertIn("the load ended with status 9: bad", out)
        out, _, _ = self.compare("--ready", "true", "--load", "sleep 600", "--", "sleep", "0.3", status=1)
        self.assertIn("ended under the load, with status 0", out)
        out, _, _ = self.compare("--ready", "true", "--load", "sleep 600", "--timeout", "0.3", "--", "sleep", "600", status=1)
        self.assertIn("no end within 0.3 s", out)

    def test_sweep(self):
        out, _, result = self.compare("--sweep", "connections=5,10", "--ready", "tcp:{port}", "--load",
                                      self.load("0.3", "{connections}"), "--warm-up", "0", "--", ECHO, "{port}", runs=1)
        self.assertEqual([point["values"] for point in result["points"]], [{"connections": "5"}, {"connections": "10"}])
        self.assertEqual([point["results"]["threads"]["native"]["median"] for point in result["points"]], [6, 11])
        self.assertIn("throughput [/s]", out)

    def test_sweep_of_a_variable(self):
        self.compare("--sweep", "VTHREAD_CARRIERS=1,2", "--warm-up", "0", "--keep", self.path("kept"), "--", "sh", "-c",
                     "echo ${VTHREAD_CARRIERS:-none}", runs=1)
        seen = []
        for name in sorted(os.listdir(self.path("kept"))):
            with open(os.path.join(self.path("kept"), name, "command.out"), encoding="utf-8") as file:
                seen.append(file.read().strip())
        self.assertEqual(seen, ["none", "1", "none", "2"])

    def test_plot(self):
        arguments = ("--sweep", "n=1,2,3", "--warm-up", "0", "--plot", self.path("plot"), "--", "sh", "-c", "seq {n}00 >/dev/null")
        if shutil.which("gnuplot"):
            self.compare(*arguments)
            with open(self.path("plot.svg"), encoding="utf-8") as file:
                self.assertIn("</svg>", file.read())
            with open(self.path("plot.png"), "rb") as file:
                self.assertEqual(file.read(4), b"\x89PNG")
        # without it, one line says so
        folder = self.path("bin")
        os.mkdir(folder)
        for name in ("python3", "sh", "seq", "env"):
            os.symlink(shutil.which(name), os.path.join(folder, name))
        _, err, _ = self.compare(*arguments, status=1, environment={"PATH": folder})
        self.assertIn("no plot: gnuplot is not installed", err)

    def test_native_command(self):
        _, _, result = self.compare("--native", "sh -c 'echo n=1'", "--metric", "n=n=(.)", "--", "sh", "-c", "echo n=2")
        self.assertEqual(result["points"][0]["results"]["n"]["ratio"], 2)

    def test_syscalls(self):
        if not shutil.which("strace") and not shutil.which("perf"):
            self.skipTest("neither perf nor strace")
        out, _, result = self.compare("--syscalls", "--warm-up", "0", "--", "sh", "-c", "echo hello", runs=1)
        self.assertIn("system calls", out)
        for side in ("native", "preloaded"):
            self.assertGreater(sum(result["points"][0]["syscalls"][side].values()), 10)

    # --- the command line ---

    def test_usage(self):
        for arguments in ((), ("--ready", "true", "--", "x"), ("--load", "true", "--", "x"), ("--sweep", "a=1", "--", "x"),
                          ("--plot", "p", "--", "x"), ("--metric", "a", "--", "x"), ("--unknown", "--", "x"),
                          ("--runs", "0", "--", "x"), ("--timeout", "no", "--", "x"), ("--setenv", "=x", "--", "x"),
                          ("-l", "/nonexistent.so", "--", "x")):
            done = subprocess.run([COMPARE, *(() if "-l" in arguments else ("-l", LIBRARY)), *arguments], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertTrue(done.stderr, arguments)

    def test_launcher(self):
        """vthread compare is the same; a command of that name goes behind --."""
        done = subprocess.run([LAUNCHER, "compare", "--help"], stdout=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"usage: compare", done.stdout)


if __name__ == "__main__":
    unittest.main()
