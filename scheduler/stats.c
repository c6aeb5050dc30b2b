#include "stats.h"

#include "config.h"
#include "place.h"
#include "ring.h"
#include "slot.h"
#include "sys.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#define VT_CAUSES 128

/* Causes are static texts: the pointer is the key. Filled from the front; a text that does not fit counts as
 * the last. */
static struct {
    const char *_Atomic what;
    _Atomic uint64_t count;
} causes[VT_CAUSES];

static _Atomic uint64_t created, ended, peak;

void vt_count_handoff(const char *what)
{
    unsigned i = 0;
    for (; i < VT_CAUSES - 1; i++) {
        const char *there = atomic_load_explicit(&causes[i].what, memory_order_relaxed);
        if (!there && atomic_compare_exchange_strong_explicit(&causes[i].what, &there, what,
                                                              memory_order_relaxed, memory_order_relaxed))
            break;
        if (there == what)
            break;
    }
    atomic_fetch_add_explicit(&causes[i].count, 1, memory_order_relaxed);
}

uint64_t vt_threads_living(void)
{
    return atomic_load_explicit(&created, memory_order_relaxed) -
           atomic_load_explicit(&ended, memory_order_relaxed);
}

void vt_count_thread(int change)
{
    if (change < 0) {
        atomic_fetch_add_explicit(&ended, 1, memory_order_relaxed);
        return;
    }
    atomic_fetch_add_explicit(&created, 1, memory_order_relaxed);
    uint64_t now = vt_threads_living(), old = atomic_load_explicit(&peak, memory_order_relaxed);
    while (now > old && !atomic_compare_exchange_weak_explicit(&peak, &old, now, memory_order_relaxed,
                                                               memory_order_relaxed))
        ;
}

void vt_stats_reset(void)
{
    atomic_store(&created, 0);
    atomic_store(&ended, 0);
    atomic_store(&peak, 0);
    for (unsigned i = 0; i < VT_CAUSES; i++)
        atomic_store(&causes[i].count, 0);
}

static void line(int fd, const char *key, uint64_t value)
{
    char text[160];
    int n = snprintf(text, sizeof text, "libvthread: %-28s %" PRIu64 "\n", key, value);
    if (n > 0)
        vt_sys3(SYS_write, fd, (long)text, n);
}

void vt_stats_print(void)
{
    if (!vt_config.stats)
        return;
    int fd = 2;
    if (vt_config.stats_file) {
        fd = (int)vt_sys4(SYS_openat, AT_FDCWD, (long)vt_config.stats_file,
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (fd < 0) {
            vt_say("VTHREAD_STATS=%s: cannot be opened (error %d); using stderr", vt_config.stats_file, -fd);
            fd = 2;
        }
    }
    struct vt_place_stats sum = {0};
    uint64_t mounts = 0;
    for (unsigned i = 0; i < vt_sched.nplaces; i++) {
        const struct vt_place *p = &vt_sched.places[i];
        const struct vt_place_stats *s = &p->stats;
        mounts += atomic_load_explicit(&p->mounts, memory_order_relaxed);
        sum.direct += s->direct;
        sum.parks += s->parks;
        sum.yields += s->yields;
        sum.steals += s->steals;
        sum.timers += s->timers;
        sum.sleeps += s->sleeps;
        sum.submissions += s->submissions;
        sum.requests += s->requests;
    }
    line(fd, "pid", (uint64_t)vt_sys0(SYS_getpid));
    line(fd, vt_ring_backend() == VT_IO_URING ? "io back end (1: io_uring)" : "io back end (0: epoll)",
         vt_ring_backend() == VT_IO_URING);
    line(fd, "places", vt_sched.nplaces);
    line(fd, "carriers", vt_sched.ncarriers);
    line(fd, "threads created", atomic_load_explicit(&created, memory_order_relaxed));
    line(fd, "threads living", vt_threads_living());
    line(fd, "threads living at the peak", atomic_load_explicit(&peak, memory_order_relaxed));
    line(fd, "mounts", mounts);
    line(fd, "mounts from thread to thread", sum.direct);
    line(fd, "parks", sum.parks);
    line(fd, "yields", sum.yields);
    line(fd, "steals", sum.steals);
    line(fd, "timers expired", sum.timers);
    line(fd, "carrier sleeps", sum.sleeps);
    line(fd, "io requests", sum.requests);
    line(fd, "ring system calls", sum.submissions);
    for (unsigned i = 0; i < VT_CAUSES; i++) {
        if (!causes[i].count)
            continue;
        char key[64];
        snprintf(key, sizeof key, "hand-offs %s", causes[i].what ? causes[i].what : "(other)");
        line(fd, key, causes[i].count);
    }
    if (fd != 2)
        vt_sys1(SYS_close, fd);
}
