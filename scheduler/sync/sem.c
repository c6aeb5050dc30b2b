#include "sem.h"

#include "clock.h"
#include "handoff.h"
#include "real.h"

#include <errno.h>
#include <limits.h>

static int wait_shared(sem_t *sem, clockid_t clock, const struct timespec *until)
{
    int saved = errno, err = 0, ret;
    if (vt_sem_take(sem, 0))
        return 0;
    vt_handoff_begin("sem_wait");
    if (!until)
        ret = vt_real(sem_wait)(sem);
    else if (clock == CLOCK_REALTIME)
        ret = vt_real(sem_timedwait)(sem, until);
    else
        ret = vt_real(sem_clockwait)(sem, clock, until);
    vt_handoff_end();
    if (ret) {
        err = errno;
        errno = saved;
    }
    return err;
}

int vt_sem_wait(sem_t *sem, clockid_t clock, const struct timespec *until)
{
    struct vt_sem *s = (struct vt_sem *)sem;
    if (vt_unlikely(s->shared))
        return wait_shared(sem, clock, until);
    if (vt_sem_take(sem, 0))
        return 0;
    /* Counted before the value is compared (in vt_park), so that a post sees us or we see it. */
    atomic_fetch_add_explicit(&s->data, VT_SEM_WAITER, memory_order_seq_cst);
    /* As the kernel's futex: only a wait without a time is restarted after a handler with SA_RESTART. */
    unsigned flags = (until ? VT_PARK_INTERRUPTIBLE : VT_PARK_RESTARTABLE) | VT_PARK_FOR(VT_WAIT_SEM) | vt_park_clock(clock);
    uint32_t bits = VT_BITS_ALL;
    uint64_t since = 0;
    for (;;) {
        int err = vt_park(vt_word(s), 0, vt_deadline_at(until), bits, flags);
        if (err == VT_GRANTED || vt_sem_take(sem, VT_SEM_WAITER))
            return 0;
        if (err == 0)
            bits = vt_bits_after(&since);
        if (err == ETIMEDOUT || err == EINTR) {
            if (err == EINTR && (flags & VT_PARK_CANCELLABLE) && !vt_signalled()) {
                /* If it does not end the thread, neither does it end the wait. */
                atomic_fetch_sub_explicit(&s->data, VT_SEM_WAITER, memory_order_relaxed);
                vt_act_on_cancel();
                atomic_fetch_add_explicit(&s->data, VT_SEM_WAITER, memory_order_seq_cst);
                flags &= ~(unsigned)VT_PARK_CANCELLABLE;
                continue;
            }
            atomic_fetch_sub_explicit(&s->data, VT_SEM_WAITER, memory_order_relaxed);
            return err;
        }
    }
}

/* 0 or EOVERFLOW. Release, for who takes it. */
static int add(struct vt_sem *s, uint64_t d)
{
    do {
        if ((uint32_t)d == SEM_VALUE_MAX)
            return EOVERFLOW;
    } while (!atomic_compare_exchange_weak_explicit(&s->data, &d, d + 1, memory_order_release, memory_order_relaxed));
    return 0;
}

struct post {
    struct vt_sem *sem;
    int err;
};

/* With the bucket locked. A semaphore with waiters and no value can be given to one of them. */
static bool post_to(void *arg, uint32_t bits, bool more)
{
    struct post *p = arg;
    uint64_t d = atomic_load_explicit(&p->sem->data, memory_order_relaxed);
    (void)more;
    while (bits == VT_HUNGRY && (uint32_t)d == 0)
        if (atomic_compare_exchange_weak_explicit(&p->sem->data, &d, d - VT_SEM_WAITER, memory_order_release,
                                                  memory_order_relaxed))
            return true;
    p->err = add(p->sem, d);
    return false;
}

int vt_sem_post(sem_t *sem)
{
    struct vt_sem *s = (struct vt_sem *)sem;
    if (vt_unlikely(s->shared)) {
        int saved = errno, err = 0;
        if (vt_real(sem_post)(sem)) {
            err = errno;
            errno = saved;
        }
        return err;
    }
    if (vt_sem_add(sem))
        return 0;
    struct post p = {s, 0};
    vt_unpark_one(s, post_to, &p);
    return p.err;
}
