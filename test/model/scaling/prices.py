"""What things cost, in nanoseconds, and what the machine looks like. Each figure with its source; change them by --price NAME=NS."""


class Prices:
    # A cache line that another core of the socket has modified. Compare-and-swap to and fro between two cores: 45 to 75 ns on
    # Sapphire Rapids and Ice Lake servers, 20 within and 90 to 120 between the core complexes of one EPYC (published tables of
    # core-to-core latency).
    line_near = 80
    # The same from another socket: 110 to 140 ns (Ice Lake), 200 and more (EPYC, Cascade Lake).
    line_far = 200
    # A line that is not modified anywhere, from the socket's shared cache.
    line_shared = 40
    sharers_wait = True   # modified lines are handed over one after the other
    cores_per_socket = 32
    # A locked instruction, or a full fence, on a line of one's own: 18 to 33 cycles.
    locked = 6
    fence = 10
    # `pause`: 140 cycles since Skylake. VT_SPINS times 8 of them are the "some 20 us" of place.c.
    pause = 40
    # vt_context_switch with mount and pick: test/bench/micro and `pingpong yield`, some 10 ns of it the exchange of stacks.
    switch = 30
    look = 50             # instructions of a look round in vt_find that finds nothing; and of each place looked at
    probe = 2
    clock = 25            # clock_gettime by the vDSO
    # What a thread touches that was last run by another core: 8 lines of stack (VT_STACK_LINES), its TLS and TCB, its
    # descriptor; they are prefetched, so several are under way at once.
    thread_lines = 14
    at_once = 4
    # Writing to an eventfd on which a sleeper waits, or FUTEX_WAKE: 1 to 2 us, the inter-processor interrupt included.
    wake_call = 1500
    # From there until the sleeper runs: some 3 us from a shallow sleep, tens of us from a deep one (intel_idle's table:
    # C1E 10 us or less, C6 more than 100). Uniform between the two; one in fifty is a deep one.
    wake_low = 3000
    wake_high = 9000
    wake_deep = 50000
    # io_uring_enter: the call; a request in it; taking a completion. test/bench/syscalls counts them, perf trace times them.
    enter = 600
    request = 400
    completion = 150
    # Calls that a thread makes itself.
    write_call = 1500     # send on a stream of the loopback or a card's queue
    create = 1500         # vt_create without queueing: descriptor, slot, reset of the TCB
    end = 500             # destructors, giving back


def of(settings):
    p = Prices()
    for s in settings:
        name, value = s.split('=')
        if not hasattr(Prices, name):
            raise SystemExit(f'no such price: {name}')
        setattr(p, name, type(getattr(p, name))(float(value)))
    return p
