#include "layout.h"

#include "cond.h"
#include "mutex.h"
#include "real.h"
#include "sem.h"
#include "sys.h"

#include <string.h>

/* The words of an object, before libc makes it. */
#define FILL 0xa5

static bool cond_known(void)
{
    pthread_condattr_t attr;
    union {
        pthread_cond_t cond;
        uint32_t word[sizeof(pthread_cond_t) / 4];
    } c;
    memset(&c, 0, sizeof c);
    if (pthread_condattr_init(&attr) || vt_real(pthread_condattr_setclock)(&attr, CLOCK_MONOTONIC) ||
        vt_real(pthread_condattr_setpshared)(&attr, PTHREAD_PROCESS_SHARED) || vt_real(pthread_cond_init)(&c.cond, &attr))
        return false;
    /* __wrefs alone is not 0: it has both flags. It is behind the 64-bit words that are libc's in front. */
    unsigned at = 0, others = 0;
    for (unsigned i = 0; i < sizeof c.word / sizeof *c.word; i++) {
        if (c.word[i] == (VT_COND_SHARED | VT_COND_MONOTONIC))
            at = i;
        else
            others |= c.word[i];
    }
    if (at < 4 || others)
        return false;
    atomic_store_explicit(&vt_cond_flags, at * 4, memory_order_relaxed);
    return true;
}

static bool mutex_known(void)
{
    pthread_mutexattr_t attr;
    pthread_mutex_t m;
    memset(&m, FILL, sizeof m);
    if (vt_real(pthread_mutexattr_init)(&attr) || vt_real(pthread_mutexattr_settype)(&attr, PTHREAD_MUTEX_RECURSIVE) ||
        vt_real(pthread_mutex_init)(&m, &attr))
        return false;
    const struct __pthread_mutex_s *d = &m.__data;
    bool ok = d->__kind == PTHREAD_MUTEX_RECURSIVE && !d->__lock && !d->__owner && !d->__nusers && !d->__count;
    /* In a child of vfork libc's notion of the own id may be the parent's: only that there is one is looked at. */
    if (!ok || vt_real(pthread_mutex_lock)(&m) || vt_real(pthread_mutex_lock)(&m))
        return false;
    ok = d->__lock == 1 && d->__owner != 0 && d->__nusers == 1 && d->__count == 2;
    return !vt_real(pthread_mutex_unlock)(&m) && !vt_real(pthread_mutex_unlock)(&m) && ok && !d->__lock && !d->__owner;
}

static bool rwlock_known(void)
{
    pthread_rwlockattr_t attr;
    pthread_rwlock_t l, shared;
    memset(&l, FILL, sizeof l);
    memset(&shared, FILL, sizeof shared);
    if (vt_real(pthread_rwlockattr_init)(&attr) ||
        vt_real(pthread_rwlockattr_setkind_np)(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) ||
        vt_real(pthread_rwlock_init)(&l, &attr) || vt_real(pthread_rwlockattr_setpshared)(&attr, PTHREAD_PROCESS_SHARED) ||
        vt_real(pthread_rwlock_init)(&shared, &attr))
        return false;
    return !l.__data.__readers && !l.__data.__cur_writer && !l.__data.__shared && shared.__data.__shared &&
           l.__data.__flags == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
}

static bool sem_known(void)
{
    union {
        sem_t sem;
        struct vt_sem data;
    } s, shared;
    if (vt_real(sem_init)(&s.sem, 0, 5) || vt_real(sem_init)(&shared.sem, 1, 7))
        return false;
    return s.data.data == 5 && !s.data.shared && shared.data.data == 7 && shared.data.shared;
}

static bool barrier_known(void)
{
    pthread_barrierattr_t attr;
    union {
        pthread_barrier_t barrier;
        uint32_t word[5]; /* in, round, count, shared, out: barrier.h */
    } b, shared;
    if (vt_real(pthread_barrierattr_init)(&attr) || vt_real(pthread_barrier_init)(&b.barrier, &attr, 7) ||
        vt_real(pthread_barrierattr_setpshared)(&attr, PTHREAD_PROCESS_SHARED) ||
        vt_real(pthread_barrier_init)(&shared.barrier, &attr, 9))
        return false;
    return !b.word[0] && !b.word[1] && b.word[2] == 7 && !b.word[3] && !b.word[4] && shared.word[2] == 9 && shared.word[3];
}

bool vt_layout_check(void)
{
    return cond_known() && mutex_known() && rwlock_known() && sem_known() && barrier_known();
}
