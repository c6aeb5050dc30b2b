"""N threading.Thread objects that wait until all are there, then sleep: seconds, peak memory, kernel threads at the peak."""
import os
import sys
import threading
import time

count, delay = int(sys.argv[1]), float(sys.argv[2])
lock = threading.Lock()
go = threading.Event()
awake = 0
woken = 0


def sleeper():
    global awake, woken
    with lock:
        awake += 1
    go.wait()
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
try:
    for _ in range(count):
        thread = threading.Thread(target=sleeper)
        thread.start()
        threads.append(thread)
except RuntimeError as exception:
    error = str(exception)
started = time.monotonic()
while awake < len(threads):
    time.sleep(0.01)
kernel_threads = status("Threads")
alive = sum(thread.is_alive() for thread in threads)
go.set()
for thread in threads:
    thread.join()
end = time.monotonic()
print(f"threads_py n={len(threads)} woken={woken} alive_at_peak={alive} seconds={end - start:.3f} "
      f"start_s={started - start:.3f} kernel_threads={kernel_threads} peak_rss_kb={status('VmHWM')}", flush=True)
if error:
    print(f"{error} after {len(threads)} threads", file=sys.stderr)
# leave without the clean-up at exit when something went wrong: it would hide what
os._exit(0 if woken == count and not error else 1)
