"""Time, cores, cache lines and spin locks.

A core's program is a generator. It runs ahead of the others by itself, on its own clock, and yields where others must come
first: before it takes a lock or looks at what they change. So what happens between two yields is as one step."""
import heapq
import random

NEVER = float('inf')


class Line:
    """A cache line: who has a copy (a mask of cores), and whether it is modified. Hand-overs of a modified line come one after
    the other."""
    __slots__ = ('mask', 'dirty', 'free', 'moves', 'busy')

    def __init__(self):
        self.mask = 0
        self.dirty = False
        self.free = 0.0
        self.moves = 0      # how often it was fetched by a core that did not have it
        self.busy = 0.0     # ns in which it was under way


class Lock(Line):
    """struct vt_lock: what it guards is mostly on the same line."""
    __slots__ = ('until', 'taken', 'contended', 'held')

    def __init__(self):
        super().__init__()
        self.until = 0.0
        self.taken = self.contended = 0
        self.held = 0.0


class Core:
    """A clock, and what its time went to."""

    def __init__(self, machine, index):
        p = machine.prices
        self.machine = machine
        self.index = index
        self.bit = 1 << index
        socket = index // p.cores_per_socket
        self.near = ((1 << p.cores_per_socket) - 1) << socket * p.cores_per_socket
        self.t = 0.0
        self.spent = {'run': 0.0, 'switch': 0.0, 'look': 0.0, 'call': 0.0, 'sleep': 0.0}
        self.lines = 0.0    # of that, for lines of others
        self.locks = 0.0    # and for locks
        self.kind = 'look'
        self.mark = 0.0

    def doing(self, kind):
        """What follows is of this kind."""
        self.spent[self.kind] += self.t - self.mark
        self.mark = self.t
        before, self.kind = self.kind, kind
        return before

    def read(self, line):
        if line.mask & self.bit:
            return
        p = self.machine.prices
        start = self.t
        if line.dirty:
            cost = p.line_near if line.mask & self.near else p.line_far
            if line.free > start:
                start = line.free
            line.free = start + cost
            line.dirty = False
        else:
            cost = p.line_shared if line.mask & self.near or not line.mask else p.line_far
        line.mask |= self.bit
        line.moves += 1
        line.busy += cost
        self.lines += start + cost - self.t
        self.t = start + cost

    def write(self, line, locked=True):
        p = self.machine.prices
        if line.mask == self.bit:
            line.dirty = True
            self.t += p.locked if locked else 1
            return
        start = self.t
        cost = p.line_far if line.mask & ~self.near else p.line_near if line.mask else p.line_shared
        if line.free > start:
            start = line.free
        line.free = start + cost
        line.mask = self.bit
        line.dirty = True
        line.moves += 1
        line.busy += cost
        self.lines += start + cost - self.t
        self.t = start + cost

    def take(self, lock):
        """After a yield (see ahead)."""
        lock.taken += 1
        begin = self.t
        if lock.until > self.t:
            lock.contended += 1
            # Those who wait read the line; the holder's store must fetch it back, and the next must fetch it again.
            self.t = lock.until + self.machine.prices.line_near
        self.locks += self.t - begin
        lock.held -= self.t
        self.write(lock)

    def release(self, lock):
        self.write(lock, False)
        lock.until = self.t
        lock.held += self.t

    def ahead(self):
        """Whether others have to come first. Used as: if core.ahead(): yield core.t"""
        q = self.machine.queue
        return bool(q) and q[0][0] < self.t


class Machine:
    def __init__(self, prices, seed):
        self.prices = prices
        self.random = random.Random(seed)
        self.queue = []
        self.serial = 0
        self.now = 0.0

    def at(self, t, what):
        """Calls what(t) then, or lets that generator go on."""
        self.serial += 1
        heapq.heappush(self.queue, (t, self.serial, what))

    def wake_delay(self):
        p = self.prices
        if self.random.random() < 0.02:
            return p.wake_deep
        return self.random.uniform(p.wake_low, p.wake_high)

    def run(self, until, stop, watch=8):
        """Until the time, or stop() says so, or nothing happens any more."""
        queue, n = self.queue, 0
        while queue:
            t, _, what = heapq.heappop(queue)
            if t > until:
                return
            self.now = t
            if hasattr(what, 'send'):
                again = next(what, None)
                if again is not None:
                    self.at(again, what)
            else:
                what(t)
            n += 1
            if n % watch == 0 and stop():
                return
