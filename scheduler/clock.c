#include "clock.h"

#include "chaos.h"
#include "config.h"
#include "life.h"
#include "place.h"
#include "ring.h"
#include "sys.h"

#include <limits.h>
#include <sys/timerfd.h>

#define VT_WATCH_STACK ((size_t)64 << 10)

static _Atomic uint32_t watch; /* 0: nobody has needed it, 1: wanted, 2: made */

void vt_clock_wait(struct vt_until *u, struct vt_thread *t)
{
    uint32_t none = 0;
    if (t->kind != VT_VIRTUAL) {
        u->real = true;
        return;
    }
    u->clocked = true;
    /* seq_cst and a fence: before the clock is read, against the watch that looks at this after it has been set. */
    atomic_store_explicit(&t->clocked, atomic_load_explicit(&t->clocked, memory_order_relaxed) + 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    vt_chaos();
    if (__builtin_expect(atomic_load_explicit(&watch, memory_order_relaxed) == 0, 0) &&
        atomic_compare_exchange_strong_explicit(&watch, &none, 1, memory_order_seq_cst, memory_order_relaxed))
        vt_keeper_call();
}

static void look_again(struct vt_thread *t, void *arg)
{
    (void)arg;
    /* One that has begun another wait since wakes for no reason, as any wait may. */
    if (atomic_load_explicit(&t->clocked, memory_order_seq_cst)) {
        vt_chaos();
        vt_unblock(t);
    }
}

void vt_clock_was_set(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    vt_each(look_again, NULL);
}

/* Sleeps until CLOCK_REALTIME is set, which also moves CLOCK_TAI, or the machine wakes from suspension, which moves both and
 * CLOCK_BOOTTIME: a timer that is to be cancelled then (timerfd_create(2)). */
static void *watch_main(void *arg)
{
    struct itimerspec far = {.it_value.tv_sec = LONG_MAX};
    uint64_t expirations;
    vt_staff_joins("vt-clock");
    /* In a descriptor table of its own the timer takes no number of the program's. */
    long fd = -vt_ring_own_table();
    if (fd == 0)
        fd = vt_sys2(SYS_timerfd_create, CLOCK_REALTIME, TFD_CLOEXEC);
    long ret = fd;
    if (fd >= 0)
        ret = vt_sys4(SYS_timerfd_settime, fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, (long)&far, 0);
    while (ret >= 0 || ret == -ECANCELED || ret == -EINTR) {
        /* Also before the first sleep, for the waits that began before it. */
        vt_clock_was_set();
        ret = vt_sys3(SYS_read, fd, (long)&expirations, sizeof expirations);
    }
    vt_say("cannot watch CLOCK_REALTIME (error %ld): if it is set forward, waits by it end late", -ret);
    return arg;
}

void vt_clock_keep(void)
{
    uint32_t wanted = 1;
    if (!atomic_compare_exchange_strong_explicit(&watch, &wanted, 2, memory_order_seq_cst, memory_order_relaxed))
        return;
    int err = vt_kernel_thread(watch_main, NULL, VT_WATCH_STACK);
    if (err)
        vt_say("cannot watch CLOCK_REALTIME (error %d): if it is set forward, waits by it end late", err);
}

void vt_clock_fork_child(void)
{
    atomic_store_explicit(&watch, 0, memory_order_relaxed);
}
