"""The cases: what is run for each kind, and which figures count.

A command begins with the name of a program of test/bench, or with a kind's own ({go}, {fiber}, {java}); PRE stands for all
preloaded kinds. A case that a kind has no command for is not run for it.
"""
PRE = "preloaded"


class Case:
    """group: the section of the table. metrics: (key in the output, title, unit, direction)."""

    def __init__(self, group, name, metrics, commands, how="program", need_gib=0.0, may_fail=(), connections=0):
        self.group, self.name, self.metrics, self.commands, self.how = group, name, metrics, commands, how
        self.need_gib = need_gib  # memory that must be available
        self.may_fail = set(may_fail)  # kinds whose failure is a result
        self.connections = connections

    def command(self, kind):
        return self.commands.get(PRE if kind.startswith(PRE) else kind)


def same(command, *kinds):
    return {kind: command for kind in kinds}


def threads(quick):
    n = 100000 if quick else 1000000
    many = "%s threads" % ("100,000" if quick else "a million")
    for ms, name in ((10, "%s sleep 10 ms and print a dot" % many), (1000, "%s asleep for 1 s" % many)):
        yield Case("Threads", name,
                   [("seconds", "", "s", -1), ("peak_rss_kb", "peak RSS", "KiB", -1)],
                   {**same("sleepers %d %d" % (n, ms), "native", PRE, "go", "java"), "fiber": "sleepers %d %d 16" % (n, ms)},
                   need_gib=n * 16e-6, may_fail=["native"])
    for batch in (1, 1000):
        few, more = (10000, 50000) if quick else (20000, 300000)
        yield Case("Threads", "create and join, %s" % ("one at a time" if batch == 1 else "%d at a time" % batch), [("us_each", "", "us", -1)],
                   {"native": "createjoin %d %d" % (few, batch), **same("createjoin %d %d" % (more, batch), PRE, "go", "fiber", "java")})


def handing_over(quick):
    few, more = (10000, 50000) if quick else (50000, 300000)
    for way, name, kinds in (("cond", "ping-pong by condition variables", (PRE, "go", "fiber", "java")),
                             ("yield", "ping-pong by sched_yield", (PRE, "go", "fiber", "java")),
                             ("pipe", "ping-pong by two pipes", (PRE, "go", "java"))):
        m = few if way == "pipe" else more
        yield Case("Handing over", name, [("ns_round", "", "ns", -1)],
                   {"native": "pingpong %s %d" % (way, few), **same("pingpong %s %d" % (way, m), *kinds)})
    total = 500000 if quick else 2000000
    for n in (2, 8, 64, 1000):
        yield Case("Handing over", "a mutex that %d threads want" % n, [("ns_op", "", "ns", -1)],
                   same("mutexbench %d %d" % (n, total // n), "native", PRE, "go", "java"))


def without_waiting(quick):
    for op, name, m in (("lock", "lock and unlock a free mutex", 2000000), ("sem", "post and wait a semaphore", 2000000),
                        ("getspecific", "pthread_getspecific", 5000000), ("read-pipe", "read a byte that is there, pipe", 200000),
                        ("read-socket", "read a byte that is there, socket", 200000)):
        yield Case("Without waiting", name, [("ns_op", "", "ns", -1)], same("micro %s %d" % (op, m // (4 if quick else 1)), "native", PRE))
        yield Case("Without waiting", name + ", instructions", [("instructions", "", "", -1)], same("micro -t %s" % op, "native", PRE), how="steps")
    for n in (2, 8):
        yield Case("Without waiting", "%d threads that compute" % n, [("seconds", "", "s", -1)],
                   same("crunch %d %d" % (n, 100000000 if quick else 400000000), "native", PRE))


def side_by_side(quick):
    ticks = 1 if quick else 2
    for what, n, name in (("block", 8, "a 1 ms ticker's lateness while 8 block out of sight"),
                          ("compute", 4, "a 1 ms ticker's lateness while 4 compute")):
        yield Case("Side by side", name, [("p50_us", "median", "us", -1), ("p99_us", "99%", "us", -1)],
                   same("ticker %s %d %d" % (what, n, ticks), "native", PRE))
    yield Case("Side by side", "1000 threads that wait", [("wakes_s", "wake-ups a second", "", -1), ("cpu_us_s", "CPU time a second", "us", -1)],
               same("idlers 1000 2", "native", PRE))


SERVER = [("cpu_us", "CPU time a request", "us", -1), ("req_s", "requests a second", "", 1), ("p50_us", "latency, median", "us", -1),
          ("p99_us", "latency, 99%", "us", -1), ("kib_connection", "memory a connection", "KiB", -1)]


def servers(quick):
    levels = (50, 500, 1000) if quick else (50, 150, 300, 500, 1000, 5000, 10000)
    seconds = 1 if quick else 3
    for n in levels:
        yield Case("Echo server", "%d connections" % n, SERVER,
                   {**same("echo_tpc {port}", "native", PRE), **same("echo {port}", "go", "java"), "epoll-1": "echo_epoll {port} 1",
                    "epoll-2": "echo_epoll {port} 2", "uring-1": "echo_uring {port}"},
                   how="server %g %d" % (0.3 if n <= 1000 else 1, seconds), connections=n)
    n = 1000 if quick else 10000
    yield Case("Server that waits 100 ms", "%d requests at once" % n, SERVER,
               {**same("delay_tpc {port} 100", "native", PRE), **same("echo {port} 100", "go", "java")},
               how="server 1 %d" % seconds, connections=n)


def all_cases(quick):
    for make in (threads, handing_over, without_waiting, side_by_side, servers):
        yield from make(quick)
