/* scheduler/park.h, thread.h and handoff.h for kernel threads only: one lock, one list of waiters, futexes.
 * For testing what stands on them without the scheduler, and with sanitizers, which know no virtual threads.
 */
#include "cancel.h"
#include "clock.h"
#include "config.h"
#include "handoff.h"
#include "life.h"
#include "park.h"
#include "place.h"
#include "preload.h"
#include "putoff.h"
#include "real.h"
#include "sys.h"

long vt_call_number(long number, const long a[6]);
#include "thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

__thread struct vt_thread *vt_self __attribute__((tls_model("initial-exec")));
struct vt_config vt_config = {.carriers = 2};
_Atomic int vt_mode = VT_ON;
struct vt_host vt_host = {.thread_create = pthread_create};

int vt_decide(void)
{
    return VT_ON;
}

void *vt_real_find(struct vt_real_entry *entry)
{
    void *fn = dlsym(RTLD_NEXT, entry->name);
    atomic_store(&entry->function, fn);
    return fn;
}

void vt_handoff_begin(const char *what)
{
    (void)what;
}

void vt_handoff_end(void)
{
}

void vt_await_claim(struct vt_carrier *t)
{
    (void)t;
}

void vt_cancel_at_any_time(struct vt_thread *t)
{
    (void)t;
}

void vt_put_off(struct vt_thread *t)
{
    (void)t;
}

/* Never freed, as the header promises. */
struct vt_thread *vt_adopt(void)
{
    static _Atomic(char *) slab;
    static _Atomic size_t used;
    enum { SLAB = 1 << 30 };
    size_t at = atomic_fetch_add(&used, (sizeof(struct vt_thread) + 63) & ~(size_t)63);
    if (!atomic_load(&slab)) {
        char *none = NULL, *mine = vt_sys_map(SLAB);
        atomic_compare_exchange_strong(&slab, &none, mine);
    }
    if (at + sizeof(struct vt_thread) > SLAB)
        abort();
    struct vt_thread *t = (struct vt_thread *)(atomic_load(&slab) + at);
    t->tid = (uint32_t)vt_sys0(SYS_gettid);
    vt_self = t;
    return t;
}

int (*vt_clock_gettime)(clockid_t, struct timespec *) = clock_gettime;

uint64_t vt_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

void vt_block(uint64_t deadline)
{
    struct vt_thread *t = vt_current();
    struct timespec until = {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)};
    if (atomic_exchange(&t->token, 0) == 0 && !atomic_load(&t->interrupt))
        vt_sys_futex_wait(&t->token, 0, deadline == VT_NEVER ? NULL : &until);
}

void vt_block_real(uint64_t deadline)
{
    struct vt_thread *t = vt_current();
    struct timespec until = {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)};
    if (atomic_exchange(&t->token, 0) == 0 && !atomic_load(&t->interrupt))
        vt_sys_futex_wait_real(&t->token, 0, &until);
}

void vt_clock_wait(struct vt_until *u, struct vt_thread *t)
{
    (void)t;
    u->real = true;
}

void vt_unblock(struct vt_thread *t)
{
    atomic_store(&t->token, 1);
    vt_sys_futex_wake(&t->token, 1);
}

void vt_yield(void)
{
    vt_sys0(SYS_sched_yield);
}

struct waiter {
    struct waiter *next;
    struct vt_thread *thread;
    const void *addr;
    uint32_t bits;
    bool granted;
    _Atomic bool woken;
};

static struct waiter *first;
static _Atomic int lock_word;
static __thread int locked; /* what runs with the lock held must not come here again */

static void lock(void)
{
    if (locked++)
        abort();
    while (atomic_exchange_explicit(&lock_word, 1, memory_order_acquire))
        vt_sys0(SYS_sched_yield);
}

static void unlock(void)
{
    atomic_store_explicit(&lock_word, 0, memory_order_release);
    locked--;
}

static void append(struct waiter *w)
{
    struct waiter **p = &first;
    while (*p)
        p = &(*p)->next;
    w->next = NULL;
    *p = w;
}

static struct waiter *take(const void *addr, uint32_t bits)
{
    for (struct waiter **p = &first; *p; p = &(*p)->next) {
        struct waiter *w = *p;
        if (w->addr == addr && (w->bits & bits)) {
            *p = w->next;
            return w;
        }
    }
    return NULL;
}

static bool any(const void *addr)
{
    for (struct waiter *w = first; w; w = w->next)
        if (w->addr == addr)
            return true;
    return false;
}

static void wake(struct waiter *w)
{
    struct vt_thread *t = w->thread;
    atomic_store(&w->woken, true);
    vt_unblock(t);
}

int vt_park_on(const void *addr, bool (*check)(void *), void (*then)(void *), void *arg, uint64_t deadline, uint32_t bits,
               unsigned flags)
{
    struct waiter w = {NULL, vt_current(), addr, bits, false, false};
    lock();
    if (check && !check(arg)) {
        unlock();
        return EAGAIN;
    }
    append(&w);
    unlock();
    if (then)
        then(arg);
    int result = 0;
    struct vt_until until;
    vt_until_begin(&until, w.thread, deadline, flags);
    while (!atomic_load(&w.woken)) {
        if ((flags & VT_PARK_INTERRUPTIBLE) && atomic_load(&w.thread->interrupt))
            result = EINTR;
        else if (vt_until_passed(&until))
            result = ETIMEDOUT;
        if (result) {
            lock();
            if (atomic_load(&w.woken)) {
                result = 0;
            } else {
                struct waiter **p = &first;
                while (*p != &w)
                    p = &(*p)->next;
                *p = w.next;
            }
            unlock();
            return result == 0 && w.granted ? VT_GRANTED : result;
        }
        vt_until_block(&until);
    }
    return w.granted ? VT_GRANTED : 0;
}

struct expectation {
    const _Atomic uint32_t *addr;
    uint32_t expected;
};

static bool as_expected(void *arg)
{
    const struct expectation *e = arg;
    return atomic_load(e->addr) == e->expected;
}

int vt_park(const _Atomic uint32_t *addr, uint32_t expected, uint64_t deadline, uint32_t bits, unsigned flags)
{
    struct expectation e = {addr, expected};
    return vt_park_on((const void *)addr, as_expected, NULL, &e, deadline, bits, flags);
}

unsigned vt_unpark(const void *addr, unsigned max, uint32_t bits)
{
    unsigned n = 0;
    lock();
    for (struct waiter *w; n < max && (w = take(addr, bits)); n++)
        wake(w);
    unlock();
    return n;
}

void vt_unpark_one(const void *addr, bool (*under)(void *, uint32_t, bool), void *arg)
{
    lock();
    struct waiter *w = take(addr, VT_BITS_ALL);
    bool granted = under(arg, w ? w->bits : 0, any(addr));
    if (w) {
        w->granted = granted;
        wake(w);
    }
    unlock();
}

int vt_unpark_requeue(const void *from, const void *to, unsigned wakes, unsigned move, bool (*check)(void *), void *arg,
                      unsigned *woken)
{
    unsigned n = 0, moved = 0;
    struct waiter *w;
    lock();
    if (check && !check(arg)) {
        unlock();
        return -1;
    }
    for (; n < wakes && (w = take(from, VT_BITS_ALL)); n++)
        wake(w);
    for (; from != to && moved < move && (w = take(from, VT_BITS_ALL)); moved++) {
        w->addr = to;
        append(w);
    }
    unlock();
    if (woken)
        *woken = n;
    return (int)(n + moved);
}

bool vt_parked_on(const void *addr)
{
    (void)addr;
    return true;
}

/* There are no virtual threads here. */
struct vt_thread *vt_by_tid(uint32_t tid)
{
    (void)tid;
    return NULL;
}

int vt_signal_send(struct vt_thread *t, int sig)
{
    (void)t;
    (void)sig;
    return 0;
}

long vt_call_number(long number, const long a[6])
{
    return vt_sys6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
