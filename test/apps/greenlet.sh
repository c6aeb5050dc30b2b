#!/bin/bash
# greenlet, which switches stacks inside threads, in several threads at once.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
need "$python" python3
if ! "$python" -c 'import greenlet' 2>/dev/null; then
    [[ ! $install ]] || apt-get -q install -y --no-install-recommends python3-greenlet >/dev/null 2>&1
    if ! "$python" -c 'import greenlet' 2>/dev/null; then
        echo "$test_name: skipped: no module greenlet (package python3-greenlet; --install installs it)"
        exit 77
    fi
fi
compare "40 threads of 25 greenlets each" "$python" -c '
import threading, time, queue
from greenlet import greenlet, getcurrent

THREADS, GREENLETS, ROUNDS = 40, 25, 20
sums, lock, met = [], threading.Lock(), threading.Barrier(THREADS)

def deep(n):  # the switch is made from the depth of the stack
    return getcurrent().parent.switch(n) if n == 0 else deep(n - 1)

def body(number):
    total = 0
    for i in range(ROUNDS):
        deep(number % 10)
        if i % 5 == number % 5:
            time.sleep(0.001)  # the thread parks with a greenlet on its stack
        with lock:
            total += number
    return total

def thread(number):
    met.wait()
    mine = [greenlet(body) for _ in range(GREENLETS)]
    results = []
    for i, g in enumerate(mine):
        g.switch(i)
    while mine:
        for g in list(mine):
            value = g.switch()
            if g.dead:
                results.append(value)
                mine.remove(g)
    with lock:
        sums.append(sum(results))

threads = [threading.Thread(target=thread, args=(i,)) for i in range(THREADS)]
for t in threads: t.start()
for t in threads: t.join()
assert sums == [ROUNDS * GREENLETS * (GREENLETS - 1) // 2] * THREADS, sums
print(len(sums), sums[0])
'
finish
