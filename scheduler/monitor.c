#include "monitor.h"

#include "chaos.h"
#include "config.h"
#include "deadlock.h"
#include "park.h"
#include "place.h"
#include "real.h"
#include "ring.h"
#include "stats.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <signal.h>

/* How often it looks while threads run, and while one of them seems stuck. */
#define VT_TICK_CALM  UINT64_C(2000000)
#define VT_TICK_ALERT UINT64_C(1000000)
/* And for so long after a thread has blocked out of sight while others waited: mostly more are to come. */
#define VT_TICK_HASTY UINT64_C(250000)
#define VT_HASTE      UINT64_C(20000000)
/* A thread that computes for so long while others wait is handed off. */
#define VT_SLICE UINT64_C(10000000)
/* It sleeps without a timeout after so many looks that found every place idle. */
#define VT_MONITOR_STACK ((size_t)64 << 10)
#define VT_DEADLOCK_TICK UINT64_C(1000000000)
#define VT_IDLE_LOOKS    5
/* That there are not enough carriers is said after so many looks that found some lacking. */
#define VT_LACKING_LOOKS 50

_Atomic bool vt_monitor_asleep;
static _Atomic uint32_t wake_word;
static _Atomic uint32_t table_word; /* 1: it has a descriptor table of its own */

/* What the monitor knows of a place. */
struct watch {
    uint64_t mounts;
    uint64_t since; /* when it was first seen not to have mounted since */
    unsigned looks; /* looks since then */
};

/* --- asymmetric fences -------------------------------------------------------------------------------------------- */

static bool have_membarrier;
static char *barrier_page;

void vt_barrier_init(void)
{
    have_membarrier = vt_sys3(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    if (!have_membarrier && (barrier_page = vt_sys_map(4096)))
        vt_sys3(SYS_mlock, (long)barrier_page, 4096, 0);
}

void vt_barrier_all(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (have_membarrier) {
        vt_sys3(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    } else if (barrier_page) {
        /* Taking a right away from a page in use makes the kernel interrupt every processor that runs this process. */
        vt_sys3(SYS_mprotect, (long)barrier_page, 4096, PROT_READ | PROT_WRITE);
        *(volatile char *)barrier_page = 1;
        vt_sys3(SYS_mprotect, (long)barrier_page, 4096, PROT_READ);
    }
    atomic_thread_fence(memory_order_seq_cst);
}

/* --- looking ------------------------------------------------------------------------------------------------------- */

/* Reads /proc/self/task/TID/NAME, less than size bytes of it; how many, or less than 0. */
static long read_task(pid_t tid, const char *name, char *text, size_t size)
{
    char path[48] = "/proc/self/task/";
    char digits[12];
    unsigned n = 0, at = 16;
    for (unsigned x = (unsigned)tid; x; x /= 10)
        digits[n++] = (char)('0' + x % 10);
    while (n)
        path[at++] = digits[--n];
    while (*name)
        path[at++] = *name++;
    long fd = vt_sys4(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    long len = vt_sys3(SYS_read, fd, (long)text, (long)size - 1);
    vt_sys1(SYS_close, fd);
    text[len > 0 ? len : 0] = 0;
    return len;
}

/* Where libc's own locks (malloc's, most of all) wait: exported for libc's other parts in some releases. Looked for before the
 * monitor starts: it must not wait for the loader's lock, whose holder may need it. */
void __lll_lock_wait_private(int *futex);
static uintptr_t lock_wait;
#define VT_LOCK_WAIT_SIZE 128

/* Whether it waits for a lock inside libc: its last number in "NR ARGUMENTS SP PC" says where it is. */
static bool waits_for_libc(pid_t tid)
{
    char text[256];
    uintptr_t pc = 0;
    long len = lock_wait ? read_task(tid, "/syscall", text, sizeof text) : 0;
    while (len > 0 && text[len - 1] != 'x')
        len--;
    for (const char *c = text + len; len > 0; c++) {
        if (*c >= '0' && *c <= '9')
            pc = pc << 4 | (uintptr_t)(*c - '0');
        else if (*c >= 'a' && *c <= 'f')
            pc = pc << 4 | (uintptr_t)(*c - 'a' + 10);
        else
            break;
    }
    return lock_wait && pc - lock_wait < VT_LOCK_WAIT_SIZE;
}

/* What the kernel thread does: the state in /proc/self/task/TID/stat. A lock inside libc is held for a moment, unless its
 * holder does not get a processor: that says as little about the thread as a page fault does. */
static enum vt_stuck stuck_in(pid_t tid)
{
    char stat[256];
    long len = read_task(tid, "/stat", stat, sizeof stat);
    /* "TID (name) S ...": the name may hold anything, so the last parenthesis counts. */
    while (len > 0 && stat[len - 1] != ')')
        len--;
    char state = len > 0 ? stat[len + 1] : 'R';
    if (state == 'S')
        return waits_for_libc(tid) ? VT_STUCK_IN_KERNEL : VT_STUCK_WAITING;
    return state == 'D' ? VT_STUCK_IN_KERNEL : VT_STUCK_COMPUTING;
}

static bool has_work(const struct vt_place *p, uint64_t now)
{
    return vt_runq_len(&p->runq) || atomic_load_explicit(&p->next, memory_order_relaxed) ||
           atomic_load_explicit(&p->due, memory_order_relaxed) <= now || vt_ring_stirs(p) || vt_globq_len(&vt_sched.globq);
}

static uint64_t hasty_until; /* the monitor's own */

/* Looks at one place. True if it may be stuck. */
static bool look(struct vt_place *p, struct watch *w, uint64_t now)
{
    struct vt_carrier *c = atomic_load_explicit(&p->carrier, memory_order_acquire);
    p->clock = now; /* races with the owner, for nothing but a clock */
    vt_chaos();
    uint64_t mounts = atomic_load_explicit(&p->mounts, memory_order_relaxed);
    vt_chaos();
    struct vt_thread *t = c ? atomic_load_explicit(&c->mounted, memory_order_acquire) : NULL;
    if (!t || w->mounts != mounts) {
        w->mounts = mounts;
        w->since = now;
        w->looks = 0;
        return false;
    }
    bool work = has_work(p, now);
    if (work && atomic_load_explicit(&vt_sched.nidle, memory_order_relaxed))
        vt_wake_idle();
    w->looks++;
    bool computed = work && now - w->since >= VT_SLICE;
    /* Without work one look is not enough: a short wait in the kernel is no reason for a hand-off. */
    enum vt_stuck how = !computed && (work || w->looks % 4 == 2) ? stuck_in(c->tid) : VT_STUCK_COMPUTING;
    bool blocked = how != VT_STUCK_COMPUTING;
    if ((computed || blocked) && vt_handoff_by_monitor(p, c, t, mounts, how)) {
        vt_count_handoff(computed ? VT_HANDOFF_COMPUTING : VT_HANDOFF_BLOCKED, t);
        if (blocked && work)
            hasty_until = now + VT_HASTE;
        w->looks = 0;
        w->since = now;
    }
    return true;
}

static bool all_idle(void)
{
    return atomic_load_explicit(&vt_sched.nidle, memory_order_seq_cst) == vt_sched.nplaces;
}

/* Kernel threads do not tell us when they begin to wait: who wants to know of deadlocks has us look each second. */
static void sleep_or_look(void)
{
    uint64_t at = vt_now() + VT_DEADLOCK_TICK;
    struct timespec until = {(time_t)(at / 1000000000), (long)(at % 1000000000)};
    if (vt_sys_futex_wait(&wake_word, 0, vt_config.deadlock ? &until : NULL) == -ETIMEDOUT)
        vt_deadlock_ask();
}

static void sleep_until_busy(void)
{
    atomic_store_explicit(&wake_word, 0, memory_order_relaxed);
    atomic_store_explicit(&vt_monitor_asleep, true, memory_order_seq_cst);
    vt_chaos();
    /* A place that stops being idle after this look, or lacks a carrier, sees that we sleep. */
    while (all_idle() && !vt_adopt_orphans() && !atomic_load_explicit(&wake_word, memory_order_acquire))
        sleep_or_look();
    atomic_store_explicit(&vt_monitor_asleep, false, memory_order_seq_cst);
}

void vt_monitor_wake_slow(void)
{
    if (!atomic_exchange_explicit(&vt_monitor_asleep, false, memory_order_seq_cst))
        return;
    vt_chaos();
    atomic_store_explicit(&wake_word, 1, memory_order_release);
    vt_sys_futex_wake(&wake_word, 1);
}

static void *monitor_main(void *arg)
{
    struct watch *watches = arg;
    unsigned idle_looks = 0, lacking = 0;
    /* What it opens is not seen by the program, and the program's descriptors are not kept open by it. */
    vt_ring_own_table();
    atomic_store_explicit(&table_word, 1, memory_order_release);
    vt_sys_futex_wake(&table_word, 1);
    vt_staff_joins("vt-monitor");
    for (;;) {
        uint64_t now = vt_now();
        bool stuck = false;
        for (unsigned i = 0; i < vt_sched.nplaces; i++)
            stuck |= look(&vt_sched.places[i], &watches[i], now);
        bool orphans = vt_adopt_orphans(); /* for which there may be a carrier later, and nobody to say so */
        lacking = orphans ? lacking + 1 : 0;
        if (lacking == VT_LACKING_LOOKS)
            vt_say_limit();
        if (orphans || !all_idle())
            idle_looks = 0;
        else if (++idle_looks >= VT_IDLE_LOOKS) {
            vt_deadlock_ask();
            sleep_until_busy();
            idle_looks = 0;
        }
        struct timespec tick = {0, (long)(now < hasty_until ? VT_TICK_HASTY : stuck ? VT_TICK_ALERT : VT_TICK_CALM)};
        vt_sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&tick, 0);
    }
    return NULL;
}

int vt_monitor_start(void)
{
    struct watch *watches = vt_sys_map(sizeof *watches * vt_sched.nplaces);
    if (!watches)
        return ENOMEM;
    atomic_store_explicit(&table_word, 0, memory_order_relaxed);
    lock_wait = (uintptr_t)vt_real(__lll_lock_wait_private);
    int err = vt_kernel_thread(monitor_main, watches, VT_MONITOR_STACK);
    /* Between its copy of the table and the closing of the copies it holds the program's descriptors: a reader of a pipe
     * that the program closes then would still be there. So nothing of the program runs until that is over. */
    while (err == 0 && !atomic_load_explicit(&table_word, memory_order_acquire))
        vt_sys_futex_wait(&table_word, 0, NULL);
    return err;
}

void vt_monitor_fork_child(void)
{
    atomic_store_explicit(&vt_monitor_asleep, false, memory_order_relaxed);
}
