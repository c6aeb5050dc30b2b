"""The benchmarks: native, preloaded and peers, in turn in one run. The entry is test/bench/run."""
