"""The parsers, by outputs of the real tools."""
import os
import unittest

from compare import parse

OUTPUTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outputs")


def output(name):
    with open(os.path.join(OUTPUTS, name + ".txt"), encoding="utf-8", newline="") as file:
        return file.read()


class Tools(unittest.TestCase):
    def same(self, name, tool, expected):
        text = output(name)
        result = parse.parse(text)
        self.assertEqual(result, parse.parse(text, tool))
        for key, value in expected.items():
            self.assertIn(key, result)
            self.assertAlmostEqual(result[key], value, places=4, msg=key)
        for other, parser in parse.PARSERS.items():
            if other != tool:
                self.assertEqual(parser(text), {}, "%s takes it for its own" % other)

    def test_wrk(self):
        self.same("wrk", "wrk", {"throughput": 267.6, "requests": 271, "latency_mean": 34.74, "latency_p50": 11.04,
                                 "latency_p75": 39.49, "latency_p90": 99.89, "latency_p99": 249.92, "latency_max": 287.43,
                                 "errors": 0})

    def test_wrk_errors(self):
        text = output("wrk").replace("Requests/sec:", "  Socket errors: connect 1, read 2, write 3, timeout 4\n"
                                     "  Non-2xx or 3xx responses: 5\nRequests/sec:")
        self.assertEqual(parse.parse(text)["errors"], 15)

    def test_ab(self):
        self.same("ab", "ab", {"throughput": 672.2, "requests": 300, "errors": 0, "latency_mean": 9, "latency_p50": 5,
                               "latency_p95": 39, "latency_p99": 85, "latency_max": 119})

    def test_hey(self):
        self.same("hey", "hey", {"throughput": 185.8389, "requests": 200, "errors": 0, "latency_mean": 23.9,
                                 "latency_p50": 3.5, "latency_p99": 1019.1, "latency_max": 1036.2})

    def test_hey_without_answers(self):
        self.same("hey_errors", "hey", {"requests": 0, "errors": 20})

    def test_sysbench(self):
        self.same("sysbench_cpu", "sysbench", {"throughput": 1367.95, "requests": 1454, "latency_mean": 1.45, "latency_p95": 6.67,
                                               "latency_max": 86.52})
        self.same("sysbench_threads", "sysbench", {"throughput": 544 / 1.003, "latency_p95": 20.74})

    def test_redis_benchmark(self):
        both = 2 / (1 / 12048.19 + 1 / 54054.05)
        self.same("redis_csv", "redis-benchmark", {"throughput": both, "latency_p99": 2.799, "latency_max": 6.967})
        self.same("redis", "redis-benchmark", {"requests": 4000})
        self.same("redis_q", "redis-benchmark", {"throughput": 2 / (1 / 21505.38 + 1 / 25000)})

    def test_memtier(self):
        self.same("memtier", "memtier", {"throughput": 123434, "latency_mean": 1.6194, "latency_p50": 1.543, "latency_p99": 2.895,
                                         "latency_p999": 4.959})

    def test_pgbench(self):
        self.same("pgbench", "pgbench", {"throughput": 908.812345, "requests": 4545, "errors": 3, "latency_mean": 11.003})

    def test_pgbench_before_14(self):
        text = output("pgbench").replace("tps = 908.812345 (without initial connection time)",
                                         "tps = 900.5 (including connections establishing)\n"
                                         "tps = 908.8 (excluding connections establishing)")
        self.assertEqual(parse.parse(text)["throughput"], 908.8)

    def test_key_values(self):
        line = "load conns=3 requests=90 req_s=45 mean_us=10 p50_us=8 p99_us=2000 max_us=3000 errors=2\n"
        self.assertEqual(parse.parse(line), {"throughput": 45, "requests": 90, "latency_mean": 0.01, "latency_p50": 0.008,
                                             "latency_p99": 2, "latency_max": 3, "errors": 2})

    def test_nothing(self):
        for text in ("", "hello\n", "Requests/sec: 7\n", "Latency (ms):\n", "sysbench 1.0.20\n"):
            self.assertEqual(parse.parse(text), {}, text)
        self.assertEqual(parse.parse(output("wrk"), "none"), {})
        self.assertEqual(parse.parse(output("wrk"), "ab"), {})

    def test_truncated(self):
        """Half of an output, where a tool was killed, is no error."""
        for name in os.listdir(OUTPUTS):
            text = output(name[:-4])
            for i in range(0, len(text), 37):
                parse.parse(text[:i])


class Metrics(unittest.TestCase):
    def test_direction(self):
        self.assertEqual(parse.Metric("ops+=x").direction, 1)
        self.assertEqual(parse.Metric("time-=x").direction, -1)
        self.assertEqual(parse.Metric("size=x").direction, 0)
        self.assertEqual(parse.Metric("ops/s+=x").name, "ops/s")

    def test_value(self):
        metric = parse.Metric(r"ops+=ops: ([0-9,.]+)")
        self.assertEqual(metric.value("ops: 1\nops: 2,345.5\n"), 2345.5)  # the last, without separators
        self.assertIsNone(metric.value("none"))
        self.assertEqual(parse.Metric(r"n=\d+").value("a 12"), 12)
        self.assertIsNone(parse.Metric(r"n=(\w+)").value("word"))
        self.assertEqual(parse.Metric("a=b=(.)").value("b=3"), 3)

    def test_wrong(self):
        for text in ("", "x", "=x", "a=", "a=(", "+=x"):
            with self.assertRaises(ValueError, msg=text):
                parse.Metric(text)


if __name__ == "__main__":
    unittest.main()
