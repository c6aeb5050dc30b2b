#include "engine.h"

#include "../scheduler/debug.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct engine engine;

/* --- the table ------------------------------------------------------------------------------------------ */

static struct vt_debug_entry *table;

bool engine_entry(const char *name, uint64_t *value)
{
    for (const struct vt_debug_entry *e = table; e && e->name[0]; e++) {
        if (strncmp(e->name, name, sizeof e->name) == 0) {
            *value = e->value;
            return true;
        }
    }
    return false;
}

static uint64_t entry(const char *name)
{
    uint64_t value;
    if (!engine_entry(name, &value))
        die(1, "the library in process %d has no '%s' in its table: it is of another version than this tool", target.pid, name);
    return value;
}

static bool read_table(void)
{
    struct vt_debug head;
    uint64_t at = target_find_table();
    size_t capacity = 0, n = 0;
    if (!at || !target_read(at, &head, sizeof head))
        return false;
    if (memcmp(head.magic, VT_DEBUG_MAGIC, sizeof VT_DEBUG_MAGIC) != 0 || head.version != VT_DEBUG_VERSION ||
        head.entry_size != sizeof(struct vt_debug_entry))
        die(1, "the library in process %d has a table that this tool does not know", target.pid);
    do {
        table = xgrow(table, &capacity, n + 1, sizeof *table);
        if (n == 1000 || !target_read(at + sizeof head + n * sizeof *table, &table[n], sizeof *table))
            die(1, "the library's table in process %d cannot be read", target.pid);
    } while (table[n++].name[0]);
    return true;
}

bool engine_table(void)
{
    engine.found = read_table();
    return engine.found;
}

const char *const wait_names[WAITS] = {"other",   "futex", "sleep", "mutex", "cond",  "rdlock", "wrlock", "sem",
                                       "barrier", "once",  "join",  "ring",  "ready", "poll",   "proxy",  "nothing"};

/* Offsets and numbers, looked up once. */
static struct layout {
    uint64_t size, chunk_threads, token, kind, tid, carrier, sp, deadline, timer_place, start, alt_stack, alt_size, wait_what,
        wait_on, wait_kind, wait_detail, since, turns, stack_lo, stack_hi, adopted, alive, generation, name;
    uint64_t is_virtual, is_blocked;
    uint64_t carrier_size, carrier_next, carrier_tid, carrier_index, carrier_mounted, carrier_place, carrier_tp,
        carrier_after_arg, carrier_stack;
    enum wait kinds[64];
    int32_t saved[8];
} at;

static void read_layout(void)
{
    static const struct {
        const char *name;
        uint64_t *to;
    } list[] = {
        {"thread.size", &at.size},
        {"chunk.threads", &at.chunk_threads},
        {"thread.token", &at.token},
        {"thread.kind", &at.kind},
        {"thread.tid", &at.tid},
        {"thread.carrier", &at.carrier},
        {"thread.sp", &at.sp},
        {"thread.deadline", &at.deadline},
        {"thread.timer_place", &at.timer_place},
        {"thread.start", &at.start},
        {"thread.alt_stack", &at.alt_stack},
        {"thread.alt_size", &at.alt_size},
        {"thread.wait_what", &at.wait_what},
        {"thread.wait_on", &at.wait_on},
        {"thread.wait_kind", &at.wait_kind},
        {"thread.wait_detail", &at.wait_detail},
        {"thread.since", &at.since},
        {"thread.turns", &at.turns},
        {"thread.stack_lo", &at.stack_lo},
        {"thread.stack_hi", &at.stack_hi},
        {"thread.adopted", &at.adopted},
        {"thread.alive", &at.alive},
        {"thread.generation", &at.generation},
        {"thread.name", &at.name},
        {"kind.virtual", &at.is_virtual},
        {"token.blocked", &at.is_blocked},
        {"carrier.size", &at.carrier_size},
        {"carrier.next", &at.carrier_next},
        {"carrier.tid", &at.carrier_tid},
        {"carrier.index", &at.carrier_index},
        {"carrier.mounted", &at.carrier_mounted},
        {"carrier.place", &at.carrier_place},
        {"carrier.tp", &at.carrier_tp},
        {"carrier.after_arg", &at.carrier_after_arg},
        {"carrier.stack", &at.carrier_stack},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        *list[i].to = entry(list[i].name);
    for (size_t i = 0; i < WAITS; i++) {
        char name[32] = "wait.";
        uint64_t number;
        strcat(name, wait_names[i]);
        if (engine_entry(name, &number) && number < 64)
            at.kinds[number] = (enum wait)i;
    }
    uint64_t outermost = entry("context.outermost");
    if (!target_read(entry("context.saved"), at.saved, sizeof at.saved) ||
        !target_read(outermost, &engine.outermost, sizeof engine.outermost))
        die(1, "the library's data in process %d cannot be read", target.pid);
}

/* --- descriptors ---------------------------------------------------------------------------------------- */

/* A copy of all descriptors, chunk after chunk. */
struct descriptors {
    uint64_t *chunk; /* addresses in the target */
    uint32_t used;
    uint8_t *data;
    size_t capacity; /* chunks that data has room for, its memory being there */
};

static uint8_t *descriptor(const struct descriptors *d, uint32_t index)
{
    return d->data + index * at.size;
}

static uint64_t word(const uint8_t *p, uint64_t offset)
{
    uint64_t x;
    memcpy(&x, p + offset, sizeof x);
    return x;
}

static uint32_t half(const uint8_t *p, uint64_t offset)
{
    uint32_t x;
    memcpy(&x, p + offset, sizeof x);
    return x;
}

static void *map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        die(1, "no memory");
    return p;
}

/* Room for those that there are and some more, so that little is to be asked of the kernel while the target
 * is stopped. */
static void make_room(struct descriptors *d, size_t chunks)
{
    size_t bytes = at.chunk_threads * at.size;
    if (chunks <= d->capacity)
        return;
    uint8_t *data = map((chunks + 4) * bytes);
    if (d->data) {
        memcpy(data, d->data, d->capacity * bytes);
        munmap(d->data, d->capacity * bytes);
    }
    d->data = data;
    d->chunk = realloc(d->chunk, (chunks + 4) * sizeof *d->chunk);
    if (!d->chunk)
        die(1, "no memory");
    d->capacity = chunks + 4;
}

/* In a forked child the parent's threads are not there, whatever their descriptors say. */
static void forget_others(struct descriptors *d, uint64_t sole)
{
    for (uint32_t i = 0; i < d->used; i++) {
        if (d->chunk[i / at.chunk_threads] + i % at.chunk_threads * at.size == sole)
            continue;
        memset(descriptor(d, i) + at.alive, 0, sizeof(uint32_t));
        memset(descriptor(d, i) + at.adopted, 0, sizeof(uint32_t));
    }
}

static void read_descriptors(struct descriptors *d)
{
    uint64_t chunks = entry("chunks");
    if (!target_read(entry("used"), &d->used, sizeof d->used))
        die(1, "the library's data in process %d cannot be read", target.pid);
    size_t n = (d->used + at.chunk_threads - 1) / at.chunk_threads, bytes = at.chunk_threads * at.size;
    if (n > 65536)
        die(1, "the library's data in process %d make no sense", target.pid);
    make_room(d, n);
    if (n && !target_read(chunks, d->chunk, n * sizeof *d->chunk))
        die(1, "the library's data in process %d cannot be read", target.pid);
    struct span *spans = xalloc(n * sizeof *spans);
    for (size_t i = 0; i < n; i++) {
        size_t count = i + 1 < n ? at.chunk_threads : d->used - i * at.chunk_threads;
        spans[i] = (struct span){d->chunk[i], count * at.size, d->data + i * bytes, false};
    }
    target_read_spans(spans, n);
    for (size_t i = 0; i < n; i++)
        if (!spans[i].ok)
            die(1, "the library's descriptors in process %d cannot be read", target.pid);
    free(spans);
    uint64_t where, sole = 0;
    if (engine_entry("sole", &where) && target_read(where, &sole, sizeof sole) && sole)
        forget_others(d, sole);
}

/* --- stacks --------------------------------------------------------------------------------------------- */

/* More of one stack is not kept: it would be a recursion without end. */
#define STACK_LIMIT ((size_t)64 << 20)

/* Memory that stays, handed out from the front. */
static uint8_t *arena_get(size_t size)
{
    static uint8_t *block;
    static size_t left;
    if (size > left) {
        left = size > (8u << 20) ? size : 8u << 20;
        block = map(left);
    }
    uint8_t *p = block;
    block += size;
    left -= size;
    return p;
}

/* A parked thread's stack, copied before the stop, and by what it is known that it is the same. */
struct early {
    uint64_t turns, sp;
    uint32_t generation;
    const uint8_t *data; /* of [sp, stack_hi) */
};

static bool is_alive(const uint8_t *t)
{
    return half(t, at.alive) && half(t, at.kind) == at.is_virtual;
}

static bool is_parked(const uint8_t *t)
{
    return is_alive(t) && half(t, at.token) >= at.is_blocked;
}

static bool saved_stack(const uint8_t *t, uint64_t *sp, uint64_t *size)
{
    uint64_t lo = word(t, at.stack_lo), hi = word(t, at.stack_hi);
    *sp = word(t, at.sp);
    if (*sp < lo || *sp >= hi)
        return false;
    *size = hi - *sp < STACK_LIMIT ? hi - *sp : STACK_LIMIT;
    return true;
}

static bool unchanged(const struct early *e, const uint8_t *t)
{
    return e->data && e->turns == word(t, at.turns) && e->generation == half(t, at.generation) && e->sp == word(t, at.sp);
}

#define BATCH 512

/* Copies the stacks of parked threads that have run since the last look. Returns how many. */
static size_t copy_early(const struct descriptors *d, struct early *early)
{
    struct span spans[BATCH];
    uint32_t whose[BATCH];
    size_t n = 0, total = 0;
    for (uint32_t i = 0; i <= d->used; i++) {
        if (n == BATCH || (i == d->used && n)) {
            target_read_spans(spans, n);
            for (size_t k = 0; k < n; k++)
                early[whose[k]].data = spans[k].ok ? spans[k].to : NULL;
            n = 0;
        }
        if (i == d->used)
            break;
        const uint8_t *t = descriptor(d, i);
        uint64_t sp, size;
        if (!is_parked(t) || unchanged(&early[i], t) || !saved_stack(t, &sp, &size))
            continue;
        early[i] = (struct early){word(t, at.turns), sp, half(t, at.generation), NULL};
        spans[n] = (struct span){sp, size, arena_get(size), false};
        whose[n++] = i;
        total++;
    }
    return total;
}

/* Memory from lo, as much of it as there is up to hi; false if there is none. */
static bool copy_piece(struct piece *piece, uint64_t lo, uint64_t hi)
{
    if (lo >= hi)
        return false;
    if (hi - lo > STACK_LIMIT)
        hi = lo + STACK_LIMIT;
    const uint8_t *data = target_core_at(lo, hi - lo);
    if (!data) {
        uint8_t *to = arena_get(hi - lo);
        if (!target_read(lo, to, hi - lo)) {
            uint64_t got = lo;
            while (got < hi) {
                uint64_t next = (got | 4095) + 1 < hi ? (got | 4095) + 1 : hi;
                if (!target_read(got, to + (got - lo), next - got))
                    break;
                got = next;
            }
            hi = got;
        }
        data = to;
    }
    *piece = (struct piece){lo, hi, data};
    return lo < hi;
}

/* --- what is copied while the target stands ------------------------------------------------------------- */

struct carrier {
    uint64_t address, mounted, place, tp, after_arg;
    pid_t tid;
    unsigned index;
};

/* A thread whose registers are on a kernel thread. */
struct live {
    uint32_t index; /* of the descriptor; UINT32_MAX: a kernel thread's own */
    const struct task *task;
    const struct carrier *carrier;
    struct piece pieces[2];
    unsigned npieces;
};

static struct copy {
    struct descriptors d;
    struct piece *saved; /* by descriptor: the stack of one that is on no kernel thread; data NULL: not to be had */
    uint32_t *owner_of;  /* by descriptor: 1 + an index of owners; 0: none */
    uint32_t *owners;    /* who holds the locks that are waited for */
    struct carrier *carriers;
    struct live *lives;
    size_t nlives, live_capacity;
} copy;

static void read_carriers(void)
{
    size_t capacity = 0;
    uint64_t next;
    uint8_t c[4096];
    if (!target_read(entry("carriers"), &next, sizeof next) || at.carrier_size > sizeof c)
        return;
    while (next && engine.ncarriers < 100000 && target_read(next, c, at.carrier_size)) {
        copy.carriers = xgrow(copy.carriers, &capacity, engine.ncarriers + 1, sizeof *copy.carriers);
        copy.carriers[engine.ncarriers++] = (struct carrier){
            .address = next,
            .mounted = word(c, at.carrier_mounted),
            .place = word(c, at.carrier_place),
            .tp = word(c, at.carrier_tp),
            .after_arg = word(c, at.carrier_after_arg),
            .tid = (pid_t)half(c, at.carrier_tid),
            .index = half(c, at.carrier_index),
        };
        next = word(c, at.carrier_next);
    }
}

static const struct carrier *carrier_by_tid(pid_t tid)
{
    for (size_t i = 0; i < engine.ncarriers; i++)
        if (copy.carriers[i].tid == tid)
            return &copy.carriers[i];
    return NULL;
}

/* The index of a descriptor by its address; UINT32_MAX: it is none. */
static uint32_t index_of(uint64_t address)
{
    size_t n = (copy.d.used + at.chunk_threads - 1) / at.chunk_threads;
    for (size_t i = 0; i < n; i++) {
        uint64_t distance = address - copy.d.chunk[i];
        if (distance < at.chunk_threads * at.size)
            return (uint32_t)(i * at.chunk_threads + distance / at.size);
    }
    return UINT32_MAX;
}

static bool is_on_stack(uint32_t index, uint64_t rsp)
{
    if (index >= copy.d.used)
        return false;
    const uint8_t *t = descriptor(&copy.d, index);
    return is_alive(t) && rsp >= word(t, at.stack_lo) && rsp < word(t, at.stack_hi);
}

/* 128 bytes below the stack pointer belong to a leaf function (psABI, "red zone"). */
#define RED_ZONE      128
#define OTHER_STACK   (UINT64_C(1) << 20)   /* so much of a stack whose end is not known */
#define BELOW_HANDLER (UINT64_C(256) << 10) /* so much of a thread's own while it is on another */

static void copy_live_stack(struct live *l)
{
    if (!l->task->stopped)
        return;
    uint64_t rsp = l->task->regs.r[REG_NR_RSP];
    if (l->index != UINT32_MAX) {
        const uint8_t *t = descriptor(&copy.d, l->index);
        uint64_t lo = word(t, at.stack_lo), hi = word(t, at.stack_hi);
        if (rsp >= lo && rsp < hi) {
            l->npieces += copy_piece(&l->pieces[l->npieces], rsp - lo > RED_ZONE ? rsp - RED_ZONE : lo, hi);
            return;
        }
        l->npieces += copy_piece(&l->pieces[l->npieces], hi - lo > BELOW_HANDLER ? hi - BELOW_HANDLER : lo, hi);
    }
    const struct mapping *m = target_mapping(rsp);
    uint64_t end = m && m->end - rsp < OTHER_STACK ? m->end : rsp + OTHER_STACK;
    l->npieces += copy_piece(&l->pieces[l->npieces], rsp - RED_ZONE, end);
}

static struct live *add_live(uint32_t index, const struct task *task, const struct carrier *c)
{
    copy.lives = xgrow(copy.lives, &copy.live_capacity, copy.nlives + 1, sizeof *copy.lives);
    struct live *l = &copy.lives[copy.nlives++];
    *l = (struct live){.index = index, .task = task, .carrier = c};
    copy_live_stack(l);
    return l;
}

/* One of the library's kernel threads that is no carrier. */
static bool is_staff(const struct task *task)
{
    static pid_t staff[64];
    static uint64_t n = UINT64_MAX;
    uint64_t where;
    if (n == UINT64_MAX && (!engine.found || !engine_entry("staff.count", &n) || n > 64 || !engine_entry("staff", &where) ||
                            !target_read(where, staff, n * sizeof *staff)))
        n = 0;
    for (uint64_t i = 0; i < n; i++)
        if (staff[i] == task->tid)
            return true;
    return false;
}

/* Finds out which virtual thread is on which kernel thread: scheduler/debug.c says why by the stack pointer.
 * Between two threads it is on the stack of the one that is left, carrier.after_arg, or of the one that
 * comes. */
static void copy_lives(bool all)
{
    for (size_t i = 0; i < target.ntasks; i++) {
        const struct task *task = &target.tasks[i];
        const struct carrier *c = carrier_by_tid(task->tid);
        /* Workers of a ring never run the program's code: they have no registers but zeros. */
        if (task->state == 'X' || (task->stopped && task->regs.r[REG_NR_RIP] == 0))
            continue;
        if (c) {
            uint64_t rsp = task->regs.r[REG_NR_RSP];
            uint32_t mounted = c->mounted ? index_of(c->mounted) : UINT32_MAX;
            uint32_t left = c->after_arg ? index_of(c->after_arg) : UINT32_MAX;
            if (task->stopped && is_on_stack(left, rsp)) {
                add_live(left, task, c);
                continue;
            }
            bool own = task->stopped && rsp < c->tp && c->tp - rsp <= at.carrier_stack;
            if (mounted < copy.d.used && !own && is_alive(descriptor(&copy.d, mounted))) {
                add_live(mounted, task, c);
                continue;
            }
        }
        if (all || (!c && !is_staff(task)))
            add_live(UINT32_MAX, task, c);
    }
}

static enum wait kind_of(uint32_t number)
{
    return number < 64 ? at.kinds[number] : WAIT_OTHER;
}

/* Locks that are waited for, each once: a hash, with room for as many as there are threads. */
static struct {
    uint64_t *address; /* 0: free */
    uint32_t *which;
    uint32_t mask, n;
    struct span *spans;
    uint64_t mutex, rdlock, wrlock; /* where the owner is, from what is waited on */
} locks;

static void prepare_locks(size_t room)
{
    uint64_t writer = 0, back = 0;
    locks.mask = 1023;
    while (locks.mask < 2 * room)
        locks.mask = 2 * locks.mask + 1;
    locks.address = map((locks.mask + 1) * sizeof *locks.address);
    locks.which = map((locks.mask + 1) * sizeof *locks.which);
    locks.spans = map(room * sizeof *locks.spans);
    engine_entry("mutex.owner", &locks.mutex);
    engine_entry("rwlock.writer", &writer);
    engine_entry("rwlock.rdlock", &back);
    locks.rdlock = writer - back;
    engine_entry("rwlock.wrlock", &back);
    locks.wrlock = writer - back;
}

static void note_lock(uint32_t index, const uint8_t *t)
{
    if (half(t, at.token) < at.is_blocked)
        return;
    enum wait kind = kind_of(half(t, at.wait_kind));
    uint64_t on = word(t, at.wait_on);
    if (kind == WAIT_MUTEX)
        on += locks.mutex;
    else if (kind == WAIT_RDLOCK || kind == WAIT_WRLOCK)
        on += kind == WAIT_RDLOCK ? locks.rdlock : locks.wrlock;
    else
        return;
    uint32_t slot = (uint32_t)(on * UINT64_C(0x9e3779b97f4a7c15) >> 32) & locks.mask;
    while (locks.address[slot] && locks.address[slot] != on)
        slot = (slot + 1) & locks.mask;
    if (!locks.address[slot]) {
        uint32_t n = locks.n++;
        locks.address[slot] = on;
        locks.which[slot] = n + 1;
        locks.spans[n] = (struct span){on, sizeof *copy.owners, &copy.owners[n], false};
    }
    copy.owner_of[index] = locks.which[slot];
}

/* How many places there are. Their clocks tell the time in a core file, as do the threads' (describe). */
static uint32_t read_places(void)
{
    uint32_t n = 0;
    uint64_t places = 0, size = entry("place.size"), clock = entry("place.clock");
    target_read(entry("nplaces"), &n, sizeof n);
    target_read(entry("places"), &places, sizeof places);
    for (uint32_t i = 0; i < n && !target.live; i++) {
        uint64_t now;
        if (target_read(places + i * size + clock, &now, sizeof now) && now > target.now)
            target.now = now;
    }
    return n;
}

/* Stacks that have changed since the early look, or were in motion then; and who holds the locks. */
static void copy_saved(const struct early *early, uint32_t nearly)
{
    struct span spans[BATCH];
    uint32_t whose[BATCH];
    size_t n = 0;
    for (uint32_t i = 0; i <= copy.d.used; i++) {
        if (n == BATCH || (i == copy.d.used && n)) {
            target_read_spans(spans, n);
            for (size_t k = 0; k < n; k++)
                if (spans[k].ok)
                    copy.saved[whose[k]] = (struct piece){spans[k].addr, spans[k].addr + spans[k].size, spans[k].to};
            n = 0;
        }
        if (i == copy.d.used)
            break;
        const uint8_t *t = descriptor(&copy.d, i);
        uint64_t sp, size;
        const void *there;
        if (!is_alive(t)) {
            if (half(t, at.adopted))
                note_lock(i, t);
            continue;
        }
        note_lock(i, t);
        if (!saved_stack(t, &sp, &size)) {
            copy_piece(&copy.saved[i], sp, sp + 65536); /* on a stack of the program's own */
        } else if (i < nearly && is_parked(t) && unchanged(&early[i], t)) {
            copy.saved[i] = (struct piece){sp, sp + size, early[i].data};
        } else if ((there = target_core_at(sp, size))) {
            copy.saved[i] = (struct piece){sp, sp + size, there};
        } else {
            spans[n] = (struct span){sp, size, arena_get(size), false};
            whose[n++] = i;
        }
    }
    target_read_spans(locks.spans, locks.n);
}

/* --- making sense of it --------------------------------------------------------------------------------- */

static void describe_wait(struct thread *t, const uint8_t *d, uint32_t index)
{
    uint64_t back = 0;
    t->wait = kind_of(half(d, at.wait_kind));
    t->on = word(d, at.wait_on);
    t->detail = half(d, at.wait_detail);
    if (t->wait == WAIT_RDLOCK || t->wait == WAIT_WRLOCK) {
        engine_entry(t->wait == WAIT_RDLOCK ? "rwlock.rdlock" : "rwlock.wrlock", &back);
        t->on -= back;
    }
    if (copy.owner_of[index])
        t->owner = copy.owners[copy.owner_of[index] - 1];
}

static void describe(struct thread *t, uint32_t index)
{
    const uint8_t *d = descriptor(&copy.d, index);
    *t = (struct thread){.tid = half(d, at.tid), .carrier = -1, .deadline = UINT64_MAX, .wait = WAIT_NOTHING};
    t->descriptor = copy.d.chunk[index / at.chunk_threads] + index % at.chunk_threads * at.size;
    memcpy(t->name, d + at.name, sizeof t->name - 1);
    t->since = word(d, at.since);
    t->virtual = half(d, at.kind) == at.is_virtual;
    if (half(d, at.token) >= at.is_blocked)
        describe_wait(t, d, index);
    if (!t->virtual) {
        if (t->wait != WAIT_NOTHING)
            t->deadline = word(d, at.deadline);
        return;
    }
    t->state = t->wait != WAIT_NOTHING ? STATE_PARKED : STATE_RUNNABLE;
    if (word(d, at.timer_place))
        t->deadline = word(d, at.deadline);
    t->start = word(d, at.start);
    t->stack_lo = word(d, at.stack_lo);
    t->stack_hi = word(d, at.stack_hi);
}

/* The registers of a context that does not run, from the frame at its stack pointer. */
static bool saved_registers(struct thread *t)
{
    static const int numbers[8] = {REG_NR_RIP, REG_NR_RSP,     REG_NR_RBP,     REG_NR_RBX,
                                   REG_NR_R12, REG_NR_R12 + 1, REG_NR_R12 + 2, REG_NR_R12 + 3};
    const struct piece *p = &t->pieces[0];
    for (unsigned i = 0; i < 8; i++) {
        uint64_t value = p->lo - (uint64_t)(int64_t)at.saved[i];
        if (at.saved[i] >= 0) {
            if ((uint64_t)at.saved[i] + 8 > p->hi - p->lo)
                return false;
            memcpy(&value, p->data + at.saved[i], 8);
        }
        t->regs.r[numbers[i]] = value;
    }
    return true;
}

static void take_live(struct thread *t, const struct live *l)
{
    t->lwp = l->task->tid;
    t->carrier = l->carrier ? (int)l->carrier->index : -1;
    t->regs = l->task->regs;
    memcpy(t->pieces, l->pieces, sizeof l->pieces);
    t->npieces = l->npieces;
    if (!l->task->stopped)
        t->trouble = l->task->state == 'D' ? "its kernel thread sleeps uninterruptibly in the kernel"
                                           : "its kernel thread got no processor to stop in time";
}

static uint32_t *tids; /* a hash of threads by tid: 1 + index; 0: free */
static uint32_t tid_mask = 1023;

static void index_tids(void)
{
    while (tid_mask < 2 * engine.nthreads)
        tid_mask = 2 * tid_mask + 1;
    tids = xalloc((tid_mask + 1) * sizeof *tids);
    for (size_t i = 0; i < engine.nthreads; i++) {
        uint32_t slot = engine.threads[i].tid * 2654435761u & tid_mask;
        while (tids[slot])
            slot = (slot + 1) & tid_mask;
        tids[slot] = (uint32_t)i + 1;
    }
}

struct thread *engine_by_tid(uint32_t tid)
{
    for (uint32_t slot = tid * 2654435761u & tid_mask; tids && tids[slot]; slot = (slot + 1) & tid_mask)
        if (engine.threads[tids[slot] - 1].tid == tid)
            return &engine.threads[tids[slot] - 1];
    return NULL;
}

static uint32_t *thread_of; /* by descriptor: 1 + index of engine.threads; 0: none */

struct thread *engine_by_descriptor(uint64_t address)
{
    uint32_t index = thread_of ? index_of(address) : UINT32_MAX;
    return index < copy.d.used && thread_of[index] ? &engine.threads[thread_of[index] - 1] : NULL;
}

static void add_virtual_threads(void)
{
    const struct live **live_of = xalloc((copy.d.used + 1) * sizeof *live_of);
    for (size_t i = 0; i < copy.nlives; i++)
        if (copy.lives[i].index != UINT32_MAX)
            live_of[copy.lives[i].index] = &copy.lives[i];
    for (uint32_t i = 0; i < copy.d.used; i++) {
        const uint8_t *d = descriptor(&copy.d, i);
        if (!is_alive(d))
            continue;
        struct thread *t = &engine.threads[engine.nthreads++];
        thread_of[i] = (uint32_t)engine.nthreads;
        describe(t, i);
        if (live_of[i]) {
            t->state = STATE_RUNNING;
            t->started = true;
            t->wait = WAIT_NOTHING;
            t->owner = 0;
            take_live(t, live_of[i]);
            if (word(d, at.wait_what))
                target_read_text(word(d, at.wait_what), t->call, sizeof t->call);
            continue;
        }
        t->pieces[0] = copy.saved[i];
        t->npieces = t->pieces[0].data != NULL;
        if (!t->npieces || !saved_registers(t))
            t->trouble = "its stack could not be read";
        t->started = t->regs.r[REG_NR_RIP] != engine.outermost;
    }
    free(live_of);
}

static void add_kernel_threads(void)
{
    for (size_t i = 0; i < copy.nlives; i++) {
        const struct live *l = &copy.lives[i];
        if (l->index != UINT32_MAX)
            continue;
        struct thread *t = &engine.threads[engine.nthreads++];
        *t = (struct thread){.carrier = -1, .deadline = UINT64_MAX, .wait = WAIT_NOTHING};
        for (uint32_t k = 0; k < copy.d.used; k++) {
            const uint8_t *d = descriptor(&copy.d, k);
            if (half(d, at.adopted) && half(d, at.kind) != at.is_virtual && half(d, at.tid) == (uint32_t)l->task->tid) {
                describe(t, k);
                thread_of[k] = (uint32_t)engine.nthreads;
            }
        }
        t->tid = (uint32_t)l->task->tid;
        strcpy(t->name, l->task->comm);
        t->state = STATE_KERNEL;
        take_live(t, l);
    }
}

void engine_copy(bool all)
{
    struct early *early = NULL;
    uint32_t nearly = 0, nplaces = 0;
    engine.found = read_table();
    if (engine.found) {
        read_layout();
        /* Most stacks do not change any more: they are copied while the target runs, and when it stands only
         * compared. */
        for (size_t round = 0, last = SIZE_MAX, changed; target.live && round < 4; round++, last = changed) {
            read_descriptors(&copy.d);
            if (copy.d.used > nearly) {
                early = realloc(early, copy.d.used * sizeof *early);
                if (!early)
                    die(1, "no memory");
                memset(early + nearly, 0, (copy.d.used - nearly) * sizeof *early);
                nearly = copy.d.used;
            }
            changed = copy_early(&copy.d, early);
            if (changed < 500 || changed > last)
                break;
        }
    }
    /* Room for what is copied then; more threads do not come in that time. */
    size_t room = 0;
    if (engine.found) {
        if (!target.live)
            target_read(entry("used"), &copy.d.used, sizeof copy.d.used);
        room = copy.d.used + (target.live ? 65536 : 1);
        copy.saved = map(room * sizeof *copy.saved);
        copy.owner_of = map(room * sizeof *copy.owner_of);
        copy.owners = map(room * sizeof *copy.owners);
        prepare_locks(room);
        arena_get(1);
    }
    target_stop();
    if (engine.found) {
        read_descriptors(&copy.d);
        if (copy.d.used > room)
            die(1, "process %d makes threads faster than they can be counted", target.pid);
        read_carriers();
        copy_saved(early, nearly);
        nplaces = read_places();
    }
    copy_lives(all);
    target_resume();
    free(early);
    engine.nplaces = nplaces;
    for (size_t i = 0; i < engine.ncarriers; i++)
        engine.nspares += !copy.carriers[i].place && !copy.carriers[i].mounted;
    engine.threads = xalloc((copy.d.used + target.ntasks + 1) * sizeof *engine.threads);
    thread_of = xalloc((copy.d.used + 1) * sizeof *thread_of);
    if (engine.found)
        add_virtual_threads();
    engine.nvirtual = engine.nthreads;
    add_kernel_threads();
    index_tids();
}
