"""COUNT threading.Thread objects that each sleep for DELAY seconds: seconds, peak memory, most kernel threads seen."""
import os
import sys
import threading
import time

count, delay = int(sys.argv[1]), float(sys.argv[2])
lock = threading.Lock()
woken = 0


def sleeper():
    global woken
    time.sleep(delay)
    with lock:
        woken += 1


def status(key):
    with open("/proc/self/status", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(key + ":"):
                return int(line.split()[1])
    return -1


start = time.monotonic()
threads = []
error = ""
alive = kernel_threads = 0
try:
    while len(threads) < count:
        thread = threading.Thread(target=sleeper)
        thread.start()
        threads.append(thread)
        if len(threads) % 500 == 0:
            # where threads are slow to start, the first have ended before the last are there
            alive = max(alive, threading.active_count() - 1)
            kernel_threads = max(kernel_threads, status("Threads"))
except RuntimeError as exception:
    error = str(exception)
started = time.monotonic()
for thread in threads:
    thread.join()
end = time.monotonic()
print(f"threads_py n={len(threads)} woken={woken} most_alive={alive} seconds={end - start:.3f} "
      f"start_s={started - start:.3f} kernel_threads={kernel_threads} peak_rss_kb={status('VmHWM')}", flush=True)
if error:
    print(f"{error} after {len(threads)} threads", file=sys.stderr)
# leave without the clean-up at exit when something went wrong: it would hide what
os._exit(0 if woken == count and not error else 1)
