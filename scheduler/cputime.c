#include "cputime.h"

#include "park.h"
#include "place.h"
#include "sys.h"

bool vt_cpu_kept;

/* The kernel's number for the clock of a kernel thread (posix-timers.h): 0 is the calling one. */
static uint64_t kernel_time(pid_t tid)
{
    struct timespec ts;
    long clock = tid ? (long)~tid * 8 + 6 : CLOCK_THREAD_CPUTIME_ID;
    if (vt_sys2(SYS_clock_gettime, clock, (long)&ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

void vt_cpu_begin(struct vt_carrier *c)
{
    atomic_store_explicit(&c->cpu_mark, kernel_time(0), memory_order_relaxed);
}

static void changes(struct vt_carrier *c)
{
    atomic_store_explicit(&c->cpu_changes, atomic_load_explicit(&c->cpu_changes, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

/* Adds ns to the account of t, and begins anew at the time now of c, which runs it. */
static void book(struct vt_carrier *c, struct vt_thread *t, uint64_t ns, uint64_t now)
{
    changes(c);
    atomic_store_explicit(&t->cpu, atomic_load_explicit(&t->cpu, memory_order_relaxed) + ns, memory_order_relaxed);
    atomic_store_explicit(&c->cpu_mark, now, memory_order_relaxed);
    changes(c);
}

void vt_cpu_leave(struct vt_carrier *c, struct vt_thread *t)
{
    uint64_t now = kernel_time(0), mark = atomic_load_explicit(&c->cpu_mark, memory_order_relaxed);
    book(c, t, mark ? now - mark : 0, now);
}

static uint64_t own_time(void)
{
    struct vt_thread *t = vt_enter();
    struct vt_carrier *c = t->carrier;
    uint64_t now = kernel_time(0), mark = atomic_load_explicit(&c->cpu_mark, memory_order_relaxed), ns = 0;
    if (mark) {
        ns = now - mark;
    } else {
        if (!__atomic_exchange_n(&vt_cpu_kept, true, __ATOMIC_RELAXED)) {
            uint64_t clock = vt_now();
            if (t->since && clock > t->since)
                ns = clock - t->since < now ? clock - t->since : now;
        }
        book(c, t, ns, now);
        ns = 0;
    }
    ns += atomic_load_explicit(&t->cpu, memory_order_relaxed);
    vt_leave(t);
    return ns;
}

/* t may be mounted, and leave, meanwhile. */
static uint64_t time_of(struct vt_thread *t)
{
    for (;;) {
        struct vt_carrier *c = __atomic_load_n(&t->carrier, __ATOMIC_ACQUIRE);
        uint32_t before = c ? atomic_load_explicit(&c->cpu_changes, memory_order_acquire) : 0;
        uint64_t ns = atomic_load_explicit(&t->cpu, memory_order_relaxed);
        if (!c)
            return ns;
        if (atomic_load_explicit(&c->mounted, memory_order_acquire) == t) {
            uint64_t mark = atomic_load_explicit(&c->cpu_mark, memory_order_relaxed), now = kernel_time(c->tid);
            if (mark && now > mark)
                ns += now - mark;
        }
        atomic_thread_fence(memory_order_seq_cst);
        if (before % 2 == 0 && atomic_load_explicit(&c->cpu_changes, memory_order_relaxed) == before &&
            __atomic_load_n(&t->carrier, __ATOMIC_RELAXED) == c)
            return ns;
        vt_cpu_relax();
    }
}

uint64_t vt_cpu_time(struct vt_thread *t)
{
    if (t == vt_self)
        return own_time();
    __atomic_store_n(&vt_cpu_kept, true, __ATOMIC_RELAXED);
    return time_of(t);
}
