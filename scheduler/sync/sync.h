/* What the objects of this directory have in common.
 *
 * They keep glibc's layouts, so that static initialisers and libc's init functions serve; what each field
 * means is said with the object. All functions may be called by virtual and by kernel threads, return 0 or a
 * positive errno, and leave errno alone. A deadline is a clock with an absolute time of it; a NULL time is
 * never. Objects that other processes or the kernel take part in (process-shared, robust, priority protocols)
 * are libc's: such a call goes to libc's function, in a hand-off where it may block.
 *
 * Words are accessed through these rather than through the public types' plain fields. */
#ifndef VT_SYNC_H
#define VT_SYNC_H

#include "arch.h"
#include "park.h"
#include "thread.h"

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define vt_likely(x)   __builtin_expect((x) != 0, 1)
#define vt_unlikely(x) __builtin_expect((x) != 0, 0)

static inline _Atomic uint32_t *vt_word(const volatile void *field)
{
    return (_Atomic uint32_t *)(uintptr_t)field;
}

static inline uint32_t vt_load(const volatile void *field)
{
    return atomic_load_explicit(vt_word(field), memory_order_relaxed);
}

static inline void vt_store(volatile void *field, uint32_t value)
{
    atomic_store_explicit(vt_word(field), value, memory_order_relaxed);
}

/* How many times to look whether a lock has come free before parking. 0 where spinning cannot help: on one
 * processor, or when the holder is a virtual thread that cannot be running (holder: its tid, 0 if not known).
 */
unsigned vt_spin_limit(uint32_t holder);

/* A lock that is free for an instant only, between a holder's release and its next acquisition, never meets the waiters
 * that the release has woken. So those that have woken in vain for so long say so by the bits that they park with, and
 * are then given the lock by who holds it. Not at once: waiting for a sleeper to take it costs the others time. */
#define VT_HUNGRY       UINT32_C(1)
#define VT_HUNGRY_AFTER UINT64_C(1000000)

/* The bits to park with again after waking in vain; *since is 0 at first. */
static inline uint32_t vt_bits_after(uint64_t *since)
{
    uint64_t now = vt_now();
    if (*since == 0)
        *since = now;
    return now - *since >= VT_HUNGRY_AFTER ? VT_HUNGRY : VT_BITS_ALL;
}

/* Acts on a cancellation that has interrupted a wait, if there is one: may not return. */
void vt_act_on_cancel(void);

/* Whether a wait that ended with EINTR was interrupted by a signal (and not only by a cancellation that could
 * not be acted on). */
static inline bool vt_signalled(void)
{
    struct vt_thread *t = vt_current();
    return !(atomic_load_explicit(&t->interrupt, memory_order_relaxed) & VT_CANCELLED);
}

/* In a forked child, whose other threads are gone. */
void vt_sync_fork_child(void);

#endif
