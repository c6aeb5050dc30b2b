#include "sync.h"

#include "config.h"
#include "once.h"
#include "proxy.h"
#include "real.h"
#include "sys.h"

#include <pthread.h>
#include <sched.h>

/* Virtual threads' ids are above every kernel thread's: PID_MAX_LIMIT, linux/threads.h. */
#define VT_FIRST_TID (1u << 22)

/* Beyond this a wait costs less than the spinning: a pause takes up to 140 cycles. */
#define VT_SPINS 60

unsigned vt_spin_limit(uint32_t holder)
{
    /* The processors that this process may use, counted once: a hint, so a stale answer does no harm. */
    static _Atomic int processors;
    int n = atomic_load_explicit(&processors, memory_order_relaxed);
    if (vt_unlikely(n == 0)) {
        cpu_set_t set;
        long size = vt_sys3(SYS_sched_getaffinity, 0, sizeof set, (long)&set);
        n = size > 0 ? CPU_COUNT_S((size_t)size, &set) : 2;
        atomic_store_explicit(&processors, n, memory_order_relaxed);
    }
    if (n == 1)
        return 0;
    if (holder >= VT_FIRST_TID && vt_config.carriers == 1 && vt_is_virtual())
        return 0; /* we have the only place: the holder waits for something, or for us to leave */
    return VT_SPINS;
}

void vt_act_on_cancel(void)
{
    struct vt_thread *t = vt_current();
    if (atomic_load_explicit(&t->interrupt, memory_order_acquire) & VT_CANCELLED)
        vt_real(pthread_testcancel)();
}

void vt_sync_fork_child(void)
{
    vt_once_forked();
    vt_proxy_forked();
}
