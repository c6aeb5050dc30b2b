/* Spin locks: only waiting for one is interposed. The word is glibc's on x86-64 (sysdeps/x86_64/nptl): 1
 * free, 0 or negative held. Process-shared ones are the same, as nobody waits in a queue. */
#include "park.h"
#include "preload.h"
#include "real.h"
#include "sync/sync.h"

#include <pthread.h>

#define VT_SPIN_FIRST_SLEEP 20000 /* ns */
#define VT_SPIN_LAST_SLEEP  1000000

static bool take(pthread_spinlock_t *lock)
{
    uint32_t free = 1;
    /* Acquire, for what the last holder wrote. */
    return vt_load(lock) == free &&
           atomic_compare_exchange_strong_explicit(vt_word(lock), &free, 0, memory_order_acquire, memory_order_relaxed);
}

/* Spins while the holder is likely to be running, then lets others go first, then sleeps, so that a holder
 * that shares our carrier, our processor or our priority comes to release it. */
static __attribute__((noinline)) int wait_for(pthread_spinlock_t *lock)
{
    for (unsigned n = 4 * vt_spin_limit(0); n; n--) {
        vt_cpu_relax();
        if (take(lock))
            return 0;
    }
    for (unsigned n = 0; n < 64; n++) {
        vt_yield();
        if (take(lock))
            return 0;
    }
    for (uint64_t sleep = VT_SPIN_FIRST_SLEEP;; sleep = sleep * 2 < VT_SPIN_LAST_SLEEP ? sleep * 2 : VT_SPIN_LAST_SLEEP) {
        vt_block(vt_now() + sleep);
        if (take(lock))
            return 0;
    }
}

VT_EXPORT int pthread_spin_lock(pthread_spinlock_t *lock)
{
    if (!vt_on())
        return vt_real(pthread_spin_lock)(lock);
    return vt_likely(take(lock)) ? 0 : wait_for(lock);
}
