-- One line of key=value at wrk's end: its own summary has no 95th percentile.
done = function(summary, latency, _)
    local e = summary.errors
    local seconds = summary.duration / 1e6
    io.write(string.format(
        "wrk seconds=%.3f requests=%d req_s=%.0f mean_us=%.0f p50_us=%.0f p95_us=%.0f p99_us=%.0f " ..
        "connect_errors=%d read_errors=%d write_errors=%d status_errors=%d timeouts=%d\n",
        seconds, summary.requests, summary.requests / seconds, latency.mean, latency:percentile(50),
        latency:percentile(95), latency:percentile(99), e.connect, e.read, e.write, e.status, e.timeout))
end
