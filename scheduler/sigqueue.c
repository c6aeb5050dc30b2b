#include "sigqueue.h"

#include "lock.h"
#include "sys.h"
#include "thread.h"

#include <string.h>
#include <sys/resource.h>

#define VT_CHUNK     ((size_t)16 << 10)
#define VT_REAL_TIME 32 /* the first real-time signal, less one of libc's (SIGRTMIN of the kernel) */

struct vt_sigitem {
    struct vt_sigitem *next;
    bool shared; /* was sent to the process */
    siginfo_t info;
};

/* Signals are rare: one lock for all. It is taken in sections only, so no handler interrupts who holds it. */
static struct vt_lock lock;
static struct vt_sigitem *unused;
static unsigned queued; /* items in use */

/* In a child, which has only the thread that forked: what had been sent to that one in the parent. */
static uint64_t forked;
static struct vt_sigitem *forked_items;

/* Not vt_enter: in a handler the signals that come meanwhile must stay put off until the thread's mask is
 * what the handler's shall be, which is at the next vt_leave. */
static struct vt_thread *begin(void)
{
    struct vt_thread *me = vt_current();
    atomic_store_explicit(&me->crit, atomic_load_explicit(&me->crit, memory_order_relaxed) + 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    vt_lock(&lock);
    return me;
}

static void end(struct vt_thread *me)
{
    vt_unlock(&lock);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&me->crit, atomic_load_explicit(&me->crit, memory_order_relaxed) - 1, memory_order_release);
}

static struct vt_sigitem *get(void)
{
    if (!unused) {
        struct vt_sigitem *chunk = vt_sys_map(VT_CHUNK);
        for (size_t i = 0; chunk && i < VT_CHUNK / sizeof *chunk; i++) {
            chunk[i].next = unused;
            unused = &chunk[i];
        }
    }
    struct vt_sigitem *item = unused;
    if (item) {
        unused = item->next;
        queued++;
    }
    return item;
}

static void put(struct vt_sigitem *item)
{
    item->next = unused;
    unused = item;
    queued--;
}

static bool may_queue(void)
{
    uint64_t limit[2];
    return vt_sys4(SYS_prlimit64, 0, RLIMIT_SIGPENDING, 0, (long)limit) != 0 || queued < limit[0];
}

/* One to the process and one to the thread are two. */
static bool is_there(const struct vt_thread *t, int sig, bool shared)
{
    const struct vt_sigitem *item = t->signals;
    while (item && (item->info.si_signo != sig || item->shared != shared))
        item = item->next;
    return item;
}

int vt_sigqueue_add(struct vt_thread *t, const siginfo_t *info, bool shared)
{
    int err = 0;
    uint64_t bit = UINT64_C(1) << (info->si_signo - 1);
    struct vt_thread *me = begin();
    struct vt_sigitem *item = NULL, **link = &t->signals;
    if (info->si_signo >= VT_REAL_TIME) {
        if (!may_queue() || !(item = get()))
            err = EAGAIN;
    } else if (!(atomic_load_explicit(&t->pending, memory_order_relaxed) & bit) || !is_there(t, info->si_signo, shared)) {
        item = get(); /* without, it comes without knowing from whom */
    }
    if (item) {
        item->info = *info;
        item->shared = shared;
        item->next = NULL;
        atomic_signal_fence(memory_order_seq_cst); /* t may be forking */
        while (*link)
            link = &(*link)->next;
        *link = item;
    }
    /* seq_cst: before the look at what the thread blocks and waits for (putoff.c). */
    if (!err)
        atomic_fetch_or_explicit(&t->pending, bit, memory_order_seq_cst);
    end(me);
    return err;
}

/* As the kernel says it where it had no memory to keep it. */
static void nothing_known(int sig, siginfo_t *info)
{
    memset(info, 0, sizeof *info);
    info->si_signo = sig;
    info->si_code = SI_USER;
    info->si_pid = (pid_t)vt_sys0(SYS_getpid);
    info->si_uid = (uid_t)vt_sys0(SYS_getuid);
}

/* Unlinks the first of sig, or the first that was sent to the process, NULL if there is none; says whether there are more of
 * sig. */
static struct vt_sigitem *unlink_first(struct vt_sigitem **link, int sig, bool shared, bool *more)
{
    struct vt_sigitem *first = NULL, *item;
    *more = false;
    while ((item = *link) && (!*more || !first)) {
        if (item->info.si_signo != sig) {
            link = &item->next;
        } else if (first || (shared && !item->shared)) {
            *more = true;
            link = &item->next;
        } else {
            first = item;
            *link = item->next;
        }
    }
    return first;
}

bool vt_sigqueue_take(struct vt_thread *t, int sig, siginfo_t *info)
{
    uint64_t bit = UINT64_C(1) << (sig - 1);
    bool found = false, more;
    if (!(atomic_load_explicit(&t->pending, memory_order_relaxed) & bit))
        return false;
    struct vt_thread *me = begin();
    if (atomic_load_explicit(&t->pending, memory_order_relaxed) & bit) {
        struct vt_sigitem *item = unlink_first(&t->signals, sig, false, &more);
        if (!more)
            atomic_fetch_and_explicit(&t->pending, ~bit, memory_order_relaxed);
        if (item) {
            *info = item->info;
            put(item);
        } else {
            nothing_known(sig, info); /* SIGPIPE, too */
        }
        found = true;
    }
    end(me);
    return found;
}

bool vt_sigqueue_withdraw(struct vt_thread *t, int sig, siginfo_t *info)
{
    uint64_t bit = UINT64_C(1) << (sig - 1);
    bool more;
    if (!(atomic_load_explicit(&t->pending, memory_order_relaxed) & bit))
        return false;
    struct vt_thread *me = begin();
    struct vt_sigitem *item = unlink_first(&t->signals, sig, true, &more);
    if (item) {
        if (!more)
            atomic_fetch_and_explicit(&t->pending, ~bit, memory_order_relaxed);
        *info = item->info;
        put(item);
    }
    end(me);
    return item;
}

bool vt_sigqueue_take_forked(int sig, siginfo_t *info)
{
    uint64_t bit = UINT64_C(1) << (sig - 1);
    bool more;
    if (!(forked & bit))
        return false;
    struct vt_thread *me = begin();
    struct vt_sigitem *item = unlink_first(&forked_items, sig, false, &more);
    if (!more)
        forked &= ~bit;
    if (item)
        *info = item->info;
    else
        nothing_known(sig, info);
    end(me);
    return true;
}

void vt_sigqueue_clear(struct vt_thread *t)
{
    atomic_store_explicit(&t->pending, 0, memory_order_relaxed);
    if (__builtin_expect(t->signals != NULL, 0)) {
        struct vt_thread *me = begin();
        while (t->signals) {
            struct vt_sigitem *item = t->signals;
            t->signals = item->next;
            put(item);
        }
        end(me);
    }
}

void vt_sigqueue_fork_child(struct vt_thread *t)
{
    /* It may have been in the midst of a change. What there was stays where it is. */
    lock = (struct vt_lock)VT_LOCK_INIT;
    unused = NULL;
    queued = 0;
    if (!t)
        return;
    struct vt_sigitem **link = &forked_items;
    while (*link)
        link = &(*link)->next;
    *link = t->signals;
    t->signals = NULL;
    forked |= atomic_exchange_explicit(&t->pending, 0, memory_order_relaxed);
}
