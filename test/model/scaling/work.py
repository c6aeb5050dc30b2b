"""What the programs' threads do. A program is a generator that yields nanoseconds of computing, True to park, or something that
the carrier does (a generator, which gives True if the thread is to park then)."""
import heapq
from engine import Bucket, Thread


class Work:
    """ops: done so far; goal: when it is over; response: ns of each, where there is such a thing."""
    ideal = None    # ops a second of a machine without any cost of scheduling, where it is not limited by carriers alone

    def __init__(self, scheduler, goal):
        self.s, self.m = scheduler, scheduler.machine
        self.ops, self.goal = 0, goal
        self.response = []
        self.threads = []

    def over(self):
        return self.ops >= self.goal

    def start(self, i, thread):
        """At the beginning: the thread lies on place i % n, which will find it."""
        self.s.living += 1
        self.s.places[i % self.s.n].runq.append(thread)
        self.threads.append(thread)


# --- what threads call ---------------------------------------------------------------------------------------------------


def spawn(c, thread):
    s = c.scheduler
    c.t += s.machine.prices.create
    s.living += 1
    if s.living % 16 == 0:
        if c.ahead():
            yield c.t
        c.take(s.classes)
        c.release(s.classes)
    if s.living % 32 == 0:
        c.take(s.pool)
        c.release(s.pool)
    thread.core = c
    yield from c.ready_last(thread)


def join(c, thread, child):
    if child.ended:
        return False
    child.joiner = thread
    return True
    yield


def post(c, sem):
    s = c.scheduler
    if c.ahead():
        yield c.t
    c.write(sem.word)
    c.t += s.machine.prices.fence
    c.read(sem)
    if not sem.waiters:
        sem.value += 1
        return
    if c.ahead():
        yield c.t
    c.take(sem)
    thread = sem.waiters.popleft()
    c.release(sem)
    yield from c.unblock(thread)


def wait(c, sem, thread):
    if c.ahead():
        yield c.t
    c.write(sem.word)
    if sem.value:
        sem.value -= 1
        return False
    c.write(sem)
    if c.ahead():
        yield c.t
    c.take(sem)
    if sem.value:
        sem.value -= 1
        c.release(sem)
        return False
    sem.waiters.append(thread)
    c.release(sem)
    return True


# --- (a) and (d) -----------------------------------------------------------------------------------------------------------


class Requests(Work):
    """Connections, one thread each, 16 a carrier; requests come by themselves (Poisson). Each: the ring's completion, `think`,
    a write, and the next request to the ring."""
    think = 4000

    def __init__(self, s, goal, load):
        super().__init__(s, goal)
        price = self.m.prices
        self.each = self.think + price.write_call + price.request + price.enter / 4 + price.completion + price.switch
        self.gap = self.each / load / s.n
        self.backlog, self.waits = [], []
        for i in range(16 * s.n):
            self.backlog.append([])
            self.waits.append(None)
            t = Thread(None)
            t.program = self.serve(i, t)
            self.start(i, t)
        self.m.at(50000.0, self.arrive)
        self.began = 50000.0

    def arrive(self, t):
        i = self.m.random.randrange(len(self.waits))
        self.backlog[i].append(t)
        place, self.waits[i] = self.waits[i], None
        if place:
            self.s.complete(place, self.threads[i], t)
        self.m.at(t + self.m.random.expovariate(1 / self.gap), self.arrive)

    def serve(self, i, thread):
        def wanted(place, t):
            if self.backlog[i]:
                self.s.complete(place, thread, t)
            else:
                self.waits[i] = place
        while True:
            c = thread.core
            c.place.queued.append(wanted)
            if len(c.place.queued) >= 64:
                c.submit()
            yield True
            came = self.backlog[i].pop(0)
            yield self.think
            yield self.m.prices.write_call
            self.response.append(thread.core.t - came)
            self.ops += 1


class Skew(Work):
    """Four of the places have an accepting thread each, which makes a thread for every connection; that computes for 60 us and
    ends. The load is 60 % of all carriers."""
    think = 60000

    def __init__(self, s, goal):
        super().__init__(s, goal)
        self.hot = min(4, s.n)
        self.gap = (self.think + 2000) / 0.6 / s.n
        self.backlog = [[] for _ in range(self.hot)]
        self.waits = [None] * self.hot
        for i in range(self.hot):
            t = Thread(None)
            t.program = self.accept(i, t)
            self.start(i * (s.n // self.hot), t)
        self.m.at(50000.0, self.arrive)
        self.began = 50000.0

    def arrive(self, t):
        i = self.m.random.randrange(self.hot)
        self.backlog[i].append(t)
        place, self.waits[i] = self.waits[i], None
        if place:
            self.s.complete(place, self.threads[i], t)
        self.m.at(t + self.m.random.expovariate(1 / self.gap), self.arrive)

    def accept(self, i, thread):
        def wanted(place, t):
            if self.backlog[i]:
                self.s.complete(place, thread, t)
            else:
                self.waits[i] = place
        while True:
            thread.core.place.queued.append(wanted)
            yield True
            while self.backlog[i]:
                yield 1000
                child = Thread(None)
                child.program = self.serve(child, self.backlog[i].pop(0))
                yield spawn(thread.core, child)

    def serve(self, thread, came):
        yield self.think
        self.response.append(thread.core.t - came)
        self.ops += 1


# --- (b) to (f) -------------------------------------------------------------------------------------------------------------


class Forks(Work):
    """One thread makes 8 a carrier that compute for 100 us each, and joins them; again and again."""
    began = 0.0
    child_time = 100000

    def __init__(self, s, goal):
        super().__init__(s, goal)
        price = self.m.prices
        batch = 8 * s.n
        self.ideal = batch / max(batch * price.create, 8 * (self.child_time + price.end)) * 1e9
        t = Thread(None)
        t.program = self.producer(t, batch)
        self.start(0, t)

    def producer(self, thread, batch):
        while True:
            children = []
            for _ in range(batch):
                child = Thread(None)
                child.program = self.child(child)
                children.append(child)
                yield spawn(thread.core, child)
            for child in children:
                while not child.ended:
                    yield join(thread.core, thread, child)

    def child(self, thread):
        yield self.child_time
        self.ops += 1


class Pairs(Work):
    """As many pairs as carriers, each a semaphore for either; who is woken computes for 1 us and wakes the other, which began
    on the neighbour's place. An op is one hand-over."""
    began = 0.0

    def __init__(self, s, goal, pairs=1):
        super().__init__(s, goal)
        n = max(1, int(pairs * s.n))
        for i in range(n):
            sems = [Bucket(1), Bucket(0)]
            for me in range(2):
                t = Thread(None)
                t.program = self.hand(t, sems[me], sems[1 - me])
                self.start(i + me, t)

    def hand(self, thread, mine, other):
        while True:
            yield wait(thread.core, mine, thread)
            yield 1000
            self.ops += 1
            yield post(thread.core, other)


class Mutex(Work):
    """1000 threads: lock, 100 ns, unlock, `outside` ns without it, as sync/mutex.c has it. The word: 0, 1, 2."""
    began = 0.0
    inside = 100

    def __init__(self, s, goal, outside):
        super().__init__(s, goal)
        self.outside = outside
        self.m1 = Bucket(0)
        for i in range(1000):
            t = Thread(None)
            t.program = self.worker(t)
            # As many as a queue holds; the rest is the process's.
            if len(s.places[i % s.n].runq) < 256:
                self.start(i, t)
            else:
                s.living += 1
                s.globq.append(t)
                self.threads.append(t)

    def lock(self, c, thread):
        m, price = self.m1, self.m.prices
        if c.ahead():
            yield c.t
        c.write(m.word)
        if m.value == 0:
            m.value = 1
            return False
        spins = 0 if m.value == 2 or self.s.n == 1 else 60   # VT_SPINS of sync.c
        while spins and m.value != 2:
            c.read(m.word)
            if m.value == 0:
                c.write(m.word)
                m.value = 1
                return False
            c.t += price.pause
            spins -= 1
            yield c.t
        if c.ahead():
            yield c.t
        c.write(m.word)
        if m.value == 0:
            m.value = 2
            return False
        m.value = 2
        c.write(m)
        if c.ahead():
            yield c.t
        c.take(m)
        c.read(m.word)
        if m.value != 2:
            c.release(m)
            return None     # once more
        m.waiters.append(thread)
        c.release(m)
        return True

    def unlock(self, c):
        m = self.m1
        if c.ahead():
            yield c.t
        c.write(m.word)
        if m.value == 1:
            m.value = 0
            return
        if c.ahead():
            yield c.t
        c.take(m)
        first = m.waiters.popleft() if m.waiters else None
        c.write(m.word, False)
        m.value = 0
        c.release(m)
        if first:
            yield from c.unblock(first)

    def worker(self, thread):
        state = [False]

        def attempt(c):
            got = yield from self.lock(c, thread)
            state[0] = got is False
            return got is True
        while True:
            state[0] = False
            while not state[0]:
                yield attempt(thread.core)
            yield self.inside
            self.ops += 1
            yield self.unlock(thread.core)
            if self.outside:
                yield self.outside


class Sleepers(Work):
    """100 threads a carrier: sleep 1 ms, compute for 1 us. An op is one sleep."""
    began = 1000000.0

    def __init__(self, s, goal):
        super().__init__(s, goal)
        self.serial = 0
        for i in range(100 * s.n):
            t = Thread(None)
            t.program = self.sleeper(t)
            self.start(i, t)
        self.ideal = 100 * s.n / 0.001001

    def sleeper(self, thread):
        yield self.m.random.randrange(10000)
        while True:
            c = thread.core
            c.t += self.m.prices.clock
            due = -(-(c.t + 1e6) // 32768) * 32768      # a tick of the wheel, rounded up
            self.serial += 1
            yield self.arm(c, thread, due)
            thread.core.t += self.m.prices.clock
            self.response.append(thread.core.t - due)
            yield 1000
            self.ops += 1

    def arm(self, c, thread, due):
        c.take(c.place.timer_lock)
        heapq.heappush(c.place.timers, (due, self.serial, thread))
        c.t += 20
        c.release(c.place.timer_lock)
        return True
        yield


class Drops(Work):
    """For the check of liveness alone: kernel threads make threads runnable, two when the last one has just ended and carriers
    look, spin, or go to sleep; every fourth wakes two others and computes for long."""
    began = 0.0

    def __init__(self, s, goal):
        super().__init__(s, goal)
        s.living += 1
        self.m.at(10000.0, self.arrive)
        self.made = 0

    def arrive(self, t):
        self.made += 1
        thread = Thread(None)
        thread.program = self.hog(thread) if self.made % 4 == 0 else self.child(thread)
        self.m.at(t, self.s.from_outside(thread))

    def ended(self, thread):
        self.ops += 1
        if self.s.living == 1:      # the last
            self.s.living += 2
            self.m.at(thread.core.t + self.m.random.randrange(1000), self.arrive)
            self.m.at(thread.core.t + self.m.random.randrange(30000), self.arrive)

    def hog(self, thread):
        for _ in range(2):
            child = Thread(None)
            child.program = self.child(child)
            yield spawn(thread.core, child)
            yield self.m.random.randrange(30000)
        yield 200000
        self.ended(thread)

    def child(self, thread):
        yield self.m.random.randrange(5000)
        self.ended(thread)


CASES = [
    ('requests at 30 %', lambda s, k: Requests(s, k * max(2000, 100 * s.n), 0.3)),
    ('requests at 70 %', lambda s, k: Requests(s, k * max(2000, 100 * s.n), 0.7)),
    ('requests at 95 %', lambda s, k: Requests(s, k * max(2000, 150 * s.n), 0.95)),
    ('fork and join', lambda s, k: Forks(s, k * max(64, 32 * s.n))),
    ('pairs', lambda s, k: Pairs(s, k * max(2000, 100 * s.n))),
    ('skew', lambda s, k: Skew(s, k * max(300, 40 * s.n))),
    ('mutex, 1000 threads', lambda s, k: Mutex(s, k * 6000, 1000)),
    ('sleepers', lambda s, k: Sleepers(s, k * max(1000, 200 * s.n))),
]
