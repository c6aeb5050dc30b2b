"""The scheduler: place.c, runq.c, ring.c, park.c and monitor.c as far as they matter for who runs where, under the same names.

Left out: hand-offs and spares (no thread of the workloads blocks in the kernel; each place keeps its carrier), signals,
cancellation, and the kernel's scheduler: each carrier has a core to itself."""
import heapq
from collections import deque
from machine import Core, Line, Lock, NEVER

RUNQ_SIZE = 256
DIRECT_MAX = 32
NEXT_STREAK = 16
GLOBAL_TURN = 61
SOLO_MAX = 1023
SOON = 50000
EAGER_CREDIT, EAGER_PAUSE = 2, 255
SPINS = 60
SQ_BATCH = 64
TICK = 2000000
EXPIRE = 64


class Design:
    """What the code does (the defaults), and what it might do instead."""
    # 'single': a place that leaves the list is looked for from its head. 'mask': no list, lock and count, but a word of one bit a
    # place that is changed by locked instructions.
    idle_list = 'double'
    own_first = True       # who looks for work elsewhere leaves off when there is some of its own: completions, timers
    spin_places = 8        # so many places are looked at in a turn of spin(); 0: all
    searchers = 1          # while so many search nobody is called, nor spins
    by_finders = False     # only who finds work calls as many as that; all others none while one searches
    thieves = 0            # who is not among this many that search goes to sleep without a look at the others; 0: no limit
    near_first = False     # steal from the places of the own socket first
    hint = False           # a word of one bit a place, set by who queues a second thread: who steals looks there first
    monitor = True
    last_look = True       # False, a mistake to be found: sleep_idle does not look again


class Thread:
    __slots__ = ('program', 'core', 'since', 'permit', 'blocked', 'ended', 'joiner', 'token', 'arrival')

    def __init__(self, program):
        self.program = program
        self.core = None
        self.since = 0.0
        self.permit = self.blocked = self.ended = False
        self.joiner = None
        self.token = Line()


class Place:
    def __init__(self, index):
        self.index = index
        self.runq = deque()
        self.head, self.tail, self.slots = Line(), Line(), Line()
        self.next = None
        self.next_line = Line()     # next, picks, direct, solo_*
        self.state = Line()         # carrier, mounts, idle, idle_next
        self.streak = self.picks = self.direct = self.solo_skip = self.solo_wait = self.mounts = 0
        self.idle = self.called = False
        self.timers = []
        self.timer_lock = Lock()
        self.queued = []            # requests not submitted
        self.done = deque()         # completions not taken
        self.ring = Line()          # the wake descriptor's users, mail
        self.woken = False          # the wake descriptor has been written to
        self.seen = None            # the monitor's


class Bucket(Lock):
    """Of park.c, with what waits there (one address: collisions are not modelled)."""
    __slots__ = ('waiters', 'word', 'value')

    def __init__(self, value=0):
        super().__init__()
        self.waiters = deque()
        self.word = Line()          # the object itself
        self.value = value


class Scheduler:
    def __init__(self, machine, n, design):
        self.machine, self.design, self.n = machine, design, n
        self.places = [Place(i) for i in range(n)]
        self.carriers = [Carrier(self, p) for p in self.places]
        self.globq = deque()
        self.globq_lock, self.globq_len = Lock(), Line()
        self.word = Line()          # nidle and searching
        self.nidle = self.searching = 0
        self.idle_lock = Lock()
        self.idle = []              # the last is the head
        self.hints = Line()
        self.pool, self.classes = Lock(), Lock()
        self.count = dict.fromkeys(
            ('steals', 'thefts', 'scans', 'probes', 'vain', 'called', 'sleeps', 'parks', 'wakes', 'mounts', 'direct',
             'enters', 'spins', 'spins_vain', 'monitor_called'), 0)
        self.delays = []
        self.living = 0
        self.kernel = Core(machine, n)      # where the monitor runs
        self.kernel.scheduler = self
        for c in self.carriers:
            c.process = c.attend()
            machine.at(0.0, c.process)
        if design.monitor:
            machine.at(TICK, self.monitor)

    # --- what kernel threads and the kernel do ---

    def monitor(self, t):
        k = self.kernel
        k.t = max(k.t, t)
        for p in self.places:
            k.read(p.state)
            if p.seen != p.mounts:
                p.seen = p.mounts
            elif self.carriers[p.index].mounted and (p.runq or p.next or self.globq or p.done) and self.nidle:
                before = self.count['called']
                for _ in wake_idle(k, self):
                    pass
                self.count['monitor_called'] += self.count['called'] - before
        self.machine.at(t + TICK, self.monitor)

    def from_outside(self, thread):
        """A kernel thread makes one runnable (vt_ready without a place)."""
        k = self.kernel
        k.t = max(k.t, self.machine.now)
        thread.since = k.t
        for _ in globq_push(k, self, thread):
            pass
        yield k.t
        k.t = max(k.t, self.machine.now)
        yield from wake_idle(k, self)

    def complete(self, p, thread, t):
        """The kernel has finished a request of p's ring."""
        p.done.append(thread)
        self.wake(p, t)

    def wake(self, p, t):
        """What ends a sleep in the ring has happened."""
        c = self.carriers[p.index]
        if c.asleep:
            c.asleep = False
            self.machine.at(t + self.machine.wake_delay(), c.process)

    # --- for who looks ---

    def overdue(self):
        """Whether a thread lies in a queue, a place sleeps that has not been called, and nobody is on the way. Not `next`, nor
        what a carrier is about to take up itself: the design leaves these to their owner."""
        if self.searching or not any(self.carriers[p.index].asleep and not p.done and not p.woken for p in self.idle):
            return False
        return bool(self.globq) or any(p.runq and self.carriers[p.index].mounted for p in self.places)


def globq_push(c, s, thread):
    if c.ahead():
        yield c.t
    c.take(s.globq_lock)
    s.globq.append(thread)
    c.write(s.globq_len, False)
    c.release(s.globq_lock)


def globq_pop(c, s, most):
    c.read(s.globq_len)
    if not most or not s.globq:
        return []
    if c.ahead():
        yield c.t
    c.take(s.globq_lock)
    got = [s.globq.popleft() for _ in range(min(most, len(s.globq)))]
    if got:
        c.write(s.globq_len, False)
    c.release(s.globq_lock)
    return got


def idle_remove(c, s, p, called):
    """Under idle_lock. The head is the last of s.idle."""
    if s.design.idle_list == 'mask':
        s.idle.remove(p)
        p.idle = False
        s.nidle -= 1
        c.write(s.word)
        return
    if s.design.idle_list == 'single' and not called:
        for q in reversed(s.idle):
            c.read(q.state)
            if q is p:
                break
    at = s.idle.index(p)
    if at + 1 < len(s.idle) and not called:
        c.write(s.idle[at + 1].state, False)        # the one before it
    if at and s.design.idle_list == 'double':
        c.write(s.idle[at - 1].state, False)        # the one behind it
    del s.idle[at]
    p.idle = False
    c.write(p.state, False)
    s.nidle -= 1
    c.write(s.word)


def take_idle(c, s):
    if c.ahead():
        yield c.t
    if s.design.idle_list != 'mask':
        c.take(s.idle_lock)


def release_idle(c, s):
    if s.design.idle_list != 'mask':
        c.release(s.idle_lock)


def call_one(c, s):
    yield from take_idle(c, s)
    p = s.idle[-1] if s.idle else None
    if p:
        idle_remove(c, s, p, True)
        p.called = True
    release_idle(c, s)
    if not p:
        return False
    before = c.doing('call')
    c.write(p.ring)
    c.write(p.ring)
    c.t += s.machine.prices.wake_call
    c.doing(before)
    s.count['called'] += 1
    if c.ahead():
        yield c.t
    p.woken = True
    s.wake(p, c.t)
    return True


def wake_idle(c, s, found=False):
    most = s.design.searchers if found or not s.design.by_finders else 1
    while True:
        if c.ahead():
            yield c.t
        c.read(s.word)
        if not s.nidle or s.searching >= most:
            return
        c.write(s.word)
        s.searching += 1
        if (yield from call_one(c, s)):
            return
        if c.ahead():
            yield c.t
        c.write(s.word)
        s.searching -= 1
        if not (work_elsewhere(c, s, None) and s.idle):
            return


def work_elsewhere(c, s, p, among=None):
    c.read(s.globq_len)
    if s.globq:
        return True
    for q in s.places if among is None else among:
        if q is not p:
            c.t += s.machine.prices.probe
            c.read(q.head)
            c.read(q.tail)
            if q.runq:
                return True
    return False


class Carrier(Core):
    def __init__(self, scheduler, place):
        super().__init__(scheduler.machine, place.index)
        self.scheduler, self.place = scheduler, place
        self.searching = self.asleep = False
        self.credit = self.rest = self.pause = self.turn = 0   # eager.h
        self.mounted = None
        self.woke_at = 0.0

    # --- queues ---

    def push_last(self, thread):
        s, p = self.scheduler, self.place
        self.read(p.head)
        if len(p.runq) >= RUNQ_SIZE:
            yield from globq_push(self, s, thread)
            return
        self.write(p.slots, False)
        self.write(p.tail, False)
        p.runq.append(thread)
        if s.design.hint and len(p.runq) == 2:
            self.write(s.hints)

    def pop(self):
        p = self.place
        if not p.runq:
            self.read(p.head)
            return None
        self.write(p.head)
        return p.runq.popleft()

    def take_global(self, most):
        got = yield from globq_pop(self, self.scheduler, most)
        for thread in got[1:]:
            yield from self.push_last(thread)
        return got[0] if got else None

    def pick(self):
        s, p = self.scheduler, self.place
        p.picks += 1
        self.write(p.next_line, False)
        if p.picks % GLOBAL_TURN == 0:
            self.read(s.globq_len)
            if s.globq:
                t = yield from self.take_global(1)
                if t:
                    return t
        if p.next:
            t, p.next = p.next, None
            self.write(p.next_line)
            p.streak += 1
            if p.streak <= NEXT_STREAK or not p.runq:
                return t
            yield from self.push_last(t)
        p.streak = 0
        return self.pop()

    def ready(self, thread):
        s, p = self.scheduler, self.place
        thread.since = self.t
        s.count['wakes'] += 1
        if self.ahead():
            yield self.t
        self.write(p.next_line)
        old, p.next = p.next, thread
        if old:
            yield from self.push_last(old)
            self.t += s.machine.prices.fence
            yield from wake_idle(self, s)
        else:
            self.read(s.word)
            if s.nidle and self.mounted:
                yield from self.solo_wake()

    def ready_last(self, thread):
        s, p = self.scheduler, self.place
        thread.since = self.t
        s.count['wakes'] += 1
        if self.ahead():
            yield self.t
        yield from self.push_last(thread)
        if len(p.runq) > 1 or self.mounted:
            self.t += s.machine.prices.fence
            yield from wake_idle(self, s)

    def solo_wake(self):
        p = self.place
        if p.solo_skip:
            p.solo_skip -= 1
            return
        p.solo_wait = 2 * p.solo_wait + 1 if p.solo_wait < SOLO_MAX // 2 else SOLO_MAX
        p.solo_skip = p.solo_wait
        yield from wake_idle(self, self.scheduler)

    def unblock(self, thread, many=False):
        self.write(thread.token)
        if not thread.blocked:
            thread.permit = True
            return
        thread.blocked = False
        if many or not self.mounted:
            yield from self.ready_last(thread)
        else:
            yield from self.ready(thread)

    # --- looking for work ---

    def own_work(self):
        p = self.place
        return bool(p.done) or bool(p.timers) and p.timers[0][0] <= self.t

    def victims(self):
        s = self.scheduler
        start = s.machine.random.randrange(s.n)
        order = s.places[start:] + s.places[:start]
        if s.design.near_first:
            order.sort(key=lambda q: not 1 << q.index & self.near)
        return [q for q in order if q is not self.place]

    def steal(self):
        s, p = self.scheduler, self.place
        if s.n == 1:
            return None
        price = s.machine.prices
        s.count['scans'] += 1
        order = self.victims()
        if s.design.hint:
            self.read(s.hints)
            order.sort(key=lambda q: len(q.runq) < 2)
        for n, q in enumerate(order):
            if n % 8 == 7:
                if self.ahead():
                    yield self.t
                if s.design.own_first and p.done:
                    return None
            s.count['probes'] += 1
            self.t += price.probe
            self.read(q.head)
            self.read(q.tail)
            if not q.runq:
                continue
            if self.ahead():
                yield self.t
            n = min(len(q.runq) - len(q.runq) // 2, RUNQ_SIZE - len(p.runq) + 1)
            if not n:
                s.count['vain'] += 1
                continue
            for _ in range((n + 7) // 8):
                q.slots.mask &= ~self.bit
                self.read(q.slots)
            self.write(q.head)
            got = [q.runq.popleft() for _ in range(n)]
            p.runq.extend(got[1:])
            if n > 1:
                self.write(p.slots, False)
                self.write(p.tail, False)
            s.count['steals'] += n
            s.count['thefts'] += 1
            return got[0]
        for n, q in enumerate(order):
            if n % 8 == 7 and s.design.own_first and p.done:
                return None
            self.read(q.next_line)
            t = q.next
            if not t:
                continue
            mounts = q.mounts
            self.t += 64 * price.pause
            yield self.t
            if q.mounts == mounts and q.next is t:
                self.write(q.next_line)
                q.next = None
                q.solo_wait = 0
                s.count['steals'] += 1
                s.count['thefts'] += 1
                return t
        s.count['vain'] += 1
        return None

    def spin(self):
        s, p = self.scheduler, self.place
        if not self.credit:
            return False
        if not self.searching:
            if self.ahead():
                yield self.t
            self.read(s.word)
            if s.searching >= s.design.searchers:
                return False
            self.write(s.word)
            s.searching += 1
            self.searching = True
        s.count['spins'] += 1
        few = s.design.spin_places
        for _ in range(SPINS):
            among = None
            if few and few < s.n:
                among = [s.places[(self.turn + i) % s.n] for i in range(few)]
                self.turn += few
            if p.done or work_elsewhere(self, s, p, among):
                self.credit = min(self.credit + 1, EAGER_CREDIT)
                self.pause = 0
                return True
            self.t += 8 * s.machine.prices.pause
            yield self.t
        self.credit -= 1
        if not self.credit:
            self.rest = self.pause = min(2 * self.pause + 1, EAGER_PAUSE)
        s.count['spins_vain'] += 1
        return False

    def sleep_idle(self, covered=False):
        """covered: who searches will look later than this place is on the list."""
        s, p, d = self.scheduler, self.place, self.scheduler.design
        yield from take_idle(self, s)
        s.idle.append(p)
        p.idle, p.called = True, False
        self.write(p.state, False)
        if d.idle_list == 'double' and len(s.idle) > 1:
            self.write(s.idle[-2].state, False)
        s.nidle += 1
        self.write(s.word)
        release_idle(self, s)
        if self.searching:
            if self.ahead():
                yield self.t
            self.searching = False
            self.write(s.word)
            s.searching -= 1
        self.t += s.machine.prices.fence
        if self.ahead():
            yield self.t
        if covered:
            self.read(s.word)
            covered = s.searching > 0
        if not s.design.last_look:
            covered = True
        if covered or not work_elsewhere(self, s, p):
            if not p.done:
                yield from self.ring_wait()
        yield from take_idle(self, s)
        if p.idle:
            idle_remove(self, s, p, False)
        self.searching, p.called = p.called, False
        release_idle(self, s)

    def ring_wait(self):
        s, p, m = self.scheduler, self.place, self.scheduler.machine
        s.count['sleeps'] += 1
        before = self.t
        self.submit(True)
        if self.ahead():
            yield self.t
        due = p.timers[0][0] if p.timers else NEVER
        if not p.woken and not p.done and due > self.t:
            self.doing('sleep')
            self.asleep = True
            if due != NEVER:
                m.at(due, lambda t: self.time_out(t))
            self.sleep_until = due
            yield None
            self.t = max(self.t, m.now)
            self.doing('look')
        p.woken = False
        self.t += m.prices.clock
        if self.t - before < SOON and s.n > 1:
            if self.rest:
                self.rest -= 1
            elif not self.credit:
                self.credit = EAGER_CREDIT

    def time_out(self, t):
        if self.asleep and self.sleep_until <= t:
            self.scheduler.wake(self.place, t)

    def submit(self, wait=False):
        s, p, price = self.scheduler, self.place, self.scheduler.machine.prices
        if not p.queued and not wait:
            return
        before = self.doing('call')
        s.count['enters'] += 1
        self.t += price.enter + price.request * len(p.queued)
        for wanted in p.queued:
            wanted(p, self.t)
        p.queued = []
        self.doing(before)

    def find(self):
        s, p, price = self.scheduler, self.place, self.scheduler.machine.prices
        d = s.design
        while True:
            p.direct = 0
            if self.ahead():
                yield self.t
            self.read(s.globq_len)
            few = min(len(s.globq) // s.n, RUNQ_SIZE - len(p.runq))
            if few:
                for t in (yield from globq_pop(self, s, few)):
                    yield from self.push_last(t)
            if p.queued or p.done:
                self.submit()
                if p.done:
                    self.t += price.enter / 2
                while p.done:
                    self.t += price.completion
                    yield from self.unblock(p.done.popleft())
            if p.timers:
                self.t += price.clock
                if p.timers[0][0] <= self.t:
                    yield from self.expire()
            share = min(len(s.globq) // s.n + 1, 64)
            t = (yield from self.pick()) or (yield from self.take_global(share))
            if t:
                break
            self.t += price.look
            covered = False
            if d.thieves and not self.searching:
                if self.ahead():
                    yield self.t
                self.read(s.word)
                if s.searching < d.thieves:
                    self.write(s.word)
                    s.searching += 1
                    self.searching = True
                else:
                    covered = True
            if not covered:
                t = yield from self.steal()
                if t:
                    break
                if d.own_first and self.own_work():
                    continue
            if covered or not (yield from self.spin()):
                yield from self.sleep_idle(covered)
        if self.searching:
            if self.ahead():
                yield self.t
            self.searching = False
            self.write(s.word)
            s.searching -= 1
            if p.runq or work_elsewhere(self, s, p):
                yield from wake_idle(self, s, True)
                if d.searchers > 1:
                    yield from wake_idle(self, s, True)
        return t

    def expire(self):
        p = self.place
        while p.timers and p.timers[0][0] <= self.t:
            if self.ahead():
                yield self.t
            self.take(p.timer_lock)
            expired = []
            while p.timers and p.timers[0][0] <= self.t and len(expired) < EXPIRE:
                expired.append(heapq.heappop(p.timers)[2])
                self.t += 20
            self.release(p.timer_lock)
            for thread in expired:
                yield from self.unblock(thread)

    # --- running ---

    def mount(self, thread):
        s, price = self.scheduler, self.scheduler.machine.prices
        self.t += price.switch
        s.count['mounts'] += 1
        s.delays.append(self.t - thread.since)
        if thread.core is not self:
            if thread.core is not None:
                line = price.line_near if thread.core.bit & self.near else price.line_far
                cost = price.thread_lines * line / price.at_once
                self.t += cost
                self.lines += cost
            thread.core = self
        self.place.mounts += 1
        self.write(self.place.state, False)
        self.mounted = thread

    def attend(self):
        s, p = self.scheduler, self.place
        while True:
            self.doing('look')
            thread = yield from self.find()
            while thread:
                self.doing('switch')
                self.mount(thread)
                self.doing('run')
                again = False
                for again in thread.program:
                    if not hasattr(again, 'send'):
                        if again is True:       # it parks
                            break
                        self.t += again
                        if self.ahead():
                            yield self.t
                    elif (yield from again):    # what it does says that it parks
                        again = True
                        break
                    again = False
                self.doing('switch')
                before, thread = thread, None
                p.direct += 1
                if p.direct < DIRECT_MAX:
                    thread = yield from self.pick()
                    if thread:
                        s.count['direct'] += 1
                self.mounted = thread
                if again is True:
                    s.count['parks'] += 1
                    self.write(before.token)
                    if before.permit:
                        before.permit = False
                        yield from self.ready(before)
                    else:
                        before.blocked = True
                else:
                    yield from self.reap(before)

    def reap(self, thread):
        s = self.scheduler
        self.t += s.machine.prices.end
        s.living -= 1
        thread.ended = True
        if s.living % 16 == 0:      # the pack of slots, VT_SLOT_PACK, which this place has filled by now
            if self.ahead():
                yield self.t
            self.take(s.classes)
            self.release(s.classes)
        if thread.joiner:
            yield from self.unblock(thread.joiner)
