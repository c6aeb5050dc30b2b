/*
 * A spin lock of four bytes for sections of a few dozen instructions. Not fair, not recursive. Zero is
 * unlocked.
 *
 * Any kernel thread, also one that runs a virtual thread, provided that nothing makes it leave the kernel
 * thread while it holds the lock. In a signal handler only if the handler cannot have interrupted a holder.
 */
#ifndef VT_LOCK_H
#define VT_LOCK_H

#include "arch.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>

struct vt_lock {
    _Atomic uint32_t held;
};

#define VT_LOCK_INIT                                                                                                           \
    {                                                                                                                          \
        0                                                                                                                      \
    }

/* About 5 us of pauses before the processor is given away: longer than any section takes that is not
 * preempted. */
#define VT_LOCK_SPINS 128

/* So many times it is given away to those with the same priority; from then on to all others. */
#define VT_LOCK_YIELDS 32

/* Takes the lock if it is free. Acquire, so that the section sees what earlier ones wrote. */
static inline bool vt_trylock(struct vt_lock *l)
{
    return !atomic_load_explicit(&l->held, memory_order_relaxed) &&
           !atomic_exchange_explicit(&l->held, 1, memory_order_acquire);
}

/* For who knows that it cannot change: in a forked child. */
static inline bool vt_lock_held(const struct vt_lock *l)
{
    return atomic_load_explicit(&l->held, memory_order_relaxed) != 0;
}

static __attribute__((noinline, cold, unused)) void vt_lock_contended(struct vt_lock *l)
{
    for (unsigned yields = 0;; yields++) {
        /* Wait by reading only: the line stays shared until the holder writes it. */
        for (int i = 0; i < VT_LOCK_SPINS; i++) {
            if (vt_trylock(l))
                return;
            vt_cpu_relax();
        }
        /* The holder has been preempted. Not by way of the C library, whose entry points are interposed. */
        struct {
            int64_t s, ns;
        } moment = {0, 50000};
        bool sleep = yields >= VT_LOCK_YIELDS; /* it may have less priority, and wait for our processor */
        long ret;
        __asm__ volatile("syscall"
                         : "=a"(ret)
                         : "a"((long)(sleep ? SYS_nanosleep : SYS_sched_yield)), "D"(&moment), "S"(0L)
                         : "rcx", "r11", "memory");
    }
}

static inline void vt_lock(struct vt_lock *l)
{
    if (__builtin_expect(atomic_exchange_explicit(&l->held, 1, memory_order_acquire) != 0, 0))
        vt_lock_contended(l);
}

/* Release pairs with the acquire of the next holder. */
static inline void vt_unlock(struct vt_lock *l)
{
    atomic_store_explicit(&l->held, 0, memory_order_release);
}

#endif
