/* Waiting: the one primitive below every wait of virtual and kernel threads.
 *
 * Two layers. vt_block/vt_unblock are a one-permit semaphore for each thread, as LockSupport.park in Java: an unblock
 * that comes first is not lost, several collapse into one, and a block may return without one ("spurious"); whoever
 * calls it loops on a condition of its own. vt_park/vt_unpark are a futex in user space: queues of waiters by address,
 * first in first out, hashed into buckets; a waiter's node lives on its own stack. Kernel threads with real-time priorities
 * come before others, by priority, as in the kernel.
 *
 * A virtual thread that blocks leaves its carrier to others; a kernel thread sleeps in the kernel. Both kinds wait in
 * the same queues. All functions may be called by any thread, and those that only wake also in a signal handler (a
 * handler never interrupts a scheduler section, see thread.h). */
#ifndef VT_PARK_H
#define VT_PARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct vt_thread;

#define VT_NEVER UINT64_MAX

/* libc's, by its name; who interposes that sets it to the real one. */
extern int (*vt_clock_gettime)(clockid_t, struct timespec *);

/* CLOCK_MONOTONIC in ns. */
uint64_t vt_now(void);

/* Sleeps until a permit is there (and takes it), until the deadline, or for no reason. Returns with the calling thread
 * possibly on another carrier. */
void vt_block(uint64_t deadline);

/* The same in a kernel thread, the deadline being one of CLOCK_REALTIME, which it follows where it is set. */
void vt_block_real(uint64_t deadline);

/* Gives t its permit and makes it runnable if it is blocked. */
void vt_unblock(struct vt_thread *t);

/* Lets others run first. A virtual thread goes behind the runnable ones of its place. */
void vt_yield(void);

/* Brings near the processor what t, which is about to be unblocked or to run, will touch when it goes on. */
void vt_prefetch_thread(const struct vt_thread *t);

enum vt_park_flags {                            /* what ends the wait with EINTR */
                     VT_PARK_CANCELLABLE = 1,   /* a cancellation */
                     VT_PARK_RESTARTABLE = 3,   /* and a handler without SA_RESTART */
                     VT_PARK_INTERRUPTIBLE = 7, /* and any other handler */
                     VT_PARK_CLOCK = 8,         /* the deadline is by a clock that may be set: vt_park_clock */
};

/* Added to the flags of a wait, it makes the deadline one by this clock, which the wait then follows where it is set. For
 * CLOCK_REALTIME and, in virtual threads, CLOCK_BOOTTIME and CLOCK_TAI. */
static inline unsigned vt_park_clock(clockid_t clock)
{
    return clock == CLOCK_MONOTONIC ? 0 : VT_PARK_CLOCK | (unsigned)clock << 4;
}

/* What the wait is for, or-ed into the flags: an enum vt_wait_kind. */
#define VT_PARK_FOR_SHIFT 8
#define VT_PARK_FOR(kind) ((unsigned)(kind) << VT_PARK_FOR_SHIFT)

#define VT_BITS_ALL UINT32_MAX

/* What a wait gives when the waker has given the waiter what it waits for; no errno. */
#define VT_GRANTED (-2)

/* Begins a wait of t, the calling thread: handlers that have run before do not matter to it. */
void vt_wait_begins(struct vt_thread *t);

/* Whether a wait of t, the calling thread, with these flags is to end early. Handlers have run by then; a cancellation is
 * for the caller to act upon. */
bool vt_interrupted(struct vt_thread *t, unsigned flags);

/* Waits while *addr is expected, as FUTEX_WAIT_BITSET: 0 when woken, EAGAIN when *addr differs at the start,
 * ETIMEDOUT, EINTR (only if interruptible). The deadline is CLOCK_MONOTONIC unless the flags say otherwise; a time-out is
 * given only when the clock has come so far. A wake-up that comes together with a time-out or an interruption wins. */
int vt_park(const _Atomic uint32_t *addr, uint32_t expected, uint64_t deadline, uint32_t bits, unsigned flags);

/* Sleeps until the deadline, which nobody but the flags ends: ETIMEDOUT, EINTR. */
int vt_sleep(uint64_t deadline, unsigned flags);

/* The general form: with the bucket locked, check(arg) decides whether to wait at all (false: EAGAIN; NULL: yes);
 * queued and with the lock released, but before sleeping, then(arg) runs (to release a mutex; may be NULL). check must
 * not block nor call anything of this header. */
int vt_park_on(const void *addr, bool (*check)(void *), void (*then)(void *), void *arg, uint64_t deadline, uint32_t bits,
               unsigned flags);

/* Wakes up to max waiters of addr whose bits meet these, in the order of the queue; returns how many. */
unsigned vt_unpark(const void *addr, unsigned max, uint32_t bits);

/* Wakes the first waiter of addr. under(arg, bits, more) is called with the bucket locked, after the waiter has been
 * unlinked and before it can run: bits are the waiter's, 0 if there was none, more says whether others stay. Here a lock
 * word or a count of waiters is brought into line with the queue: no waiter of addr can come or go meanwhile. If under
 * says true the waiter's vt_park gives VT_GRANTED. */
void vt_unpark_one(const void *addr, bool (*under)(void *arg, uint32_t bits, bool more), void *arg);

/* Wakes up to wake waiters of from and moves up to move further ones to the queue of to, in order. check as above,
 * with both buckets locked. Returns the number woken plus moved, or -1 when check said no; *woken gets the number
 * woken (may be NULL). A moved waiter that times out or is interrupted leaves the queue of to. */
int vt_unpark_requeue(const void *from, const void *to, unsigned wake, unsigned move, bool (*check)(void *), void *arg,
                      unsigned *woken);

/* In a forked child: nobody waits. Who was waiting when its handler forked goes on waiting, alone, when that returns. */
void vt_park_fork_child(void);

/* A thread is about to have a real-time policy. From here on kernel threads look at their own before they wait. */
void vt_park_realtime(void);

/* The engine starts: virtual threads have the priority of the calling kernel thread, which makes their carriers. */
void vt_park_start(void);

/* Whether anyone waits on addr; a hint without the lock held. */
bool vt_parked_on(const void *addr);

#endif
