#include "stats.h"

#include "config.h"
#include "pinned.h"
#include "place.h"
#include "probe.h"
#include "ring.h"
#include "slot.h"
#include "sys.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#define VT_CAUSES 128

/* Causes are static texts: the pointer is the key. Filled from the front; a text that does not fit counts as
 * the last. */
static struct cause {
    const char *_Atomic what;
    _Atomic uint64_t count;
} causes[VT_CAUSES];

static _Atomic uint64_t peak;

const struct vt_stats_view vt_stats_view = {causes, VT_CAUSES, &peak};

void vt_count_handoff(const char *what, const struct vt_thread *t)
{
    unsigned i = 0;
    VT_PROBE2(handoff, t->tid, what);
    for (; i < VT_CAUSES - 1; i++) {
        const char *there = atomic_load_explicit(&causes[i].what, memory_order_relaxed);
        if (!there &&
            atomic_compare_exchange_strong_explicit(&causes[i].what, &there, what, memory_order_relaxed, memory_order_relaxed))
            break;
        if (there == what)
            break;
    }
    atomic_fetch_add_explicit(&causes[i].count, 1, memory_order_relaxed);
}

void vt_count_peak(void)
{
    uint64_t now = vt_threads_living(), old = atomic_load_explicit(&peak, memory_order_relaxed);
    while (now > old && !atomic_compare_exchange_weak_explicit(&peak, &old, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

void vt_stats_reset(void)
{
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

static void add(struct vt_place_stats *sum, const struct vt_place_stats *s)
{
    sum->direct += s->direct;
    sum->lodged += s->lodged;
    for (unsigned i = 0; i < sizeof s->parks / sizeof *s->parks; i++)
        sum->parks[i] += s->parks[i];
    sum->yields += s->yields;
    sum->steals += s->steals;
    sum->timers += s->timers;
    sum->sleeps += s->sleeps;
    sum->submissions += s->submissions;
    sum->requests += s->requests;
    sum->batches += s->batches;
    if (s->batch_most > sum->batch_most)
        sum->batch_most = s->batch_most;
    for (unsigned i = 0; i < VT_DELAYS; i++)
        sum->delay[i] += s->delay[i];
    if (s->delay_most > sum->delay_most)
        sum->delay_most = s->delay_most;
}

uint64_t vt_delay_share(const uint64_t *delay, unsigned per_mille)
{
    uint64_t all = 0, n = 0;
    for (unsigned i = 0; i < VT_DELAYS; i++)
        all += delay[i];
    for (unsigned i = 0; i < VT_DELAYS; i++)
        if ((n += delay[i]) * 1000 >= all * per_mille && n)
            return UINT64_C(1) << i;
    return 0;
}

static void print_parks(int fd, const struct vt_place_stats *sum)
{
    static const char *const kinds[VT_WAIT_KINDS] = {
        [VT_WAIT_OTHER] = "other",     [VT_WAIT_FUTEX] = "futex",   [VT_WAIT_SLEEP] = "sleep",   [VT_WAIT_MUTEX] = "mutex",
        [VT_WAIT_COND] = "cond",       [VT_WAIT_RDLOCK] = "rdlock", [VT_WAIT_WRLOCK] = "wrlock", [VT_WAIT_SEM] = "sem",
        [VT_WAIT_BARRIER] = "barrier", [VT_WAIT_ONCE] = "once",     [VT_WAIT_JOIN] = "join",     [VT_WAIT_RING] = "operation",
        [VT_WAIT_READY] = "ready",     [VT_WAIT_POLL] = "poll",     [VT_WAIT_PROXY] = "proxy",
    };
    uint64_t all = 0;
    for (unsigned i = 0; i < VT_WAIT_KINDS; i++)
        all += sum->parks[i];
    line(fd, "parks", all);
    for (unsigned i = 0; i < VT_WAIT_KINDS; i++) {
        char key[32];
        snprintf(key, sizeof key, "parks, %s", kinds[i]);
        if (sum->parks[i])
            line(fd, key, sum->parks[i]);
    }
}

static void print_delays(int fd, const struct vt_place_stats *sum)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < VT_DELAYS; i++)
        all += sum->delay[i];
    line(fd, "delays measured", all);
    if (!all)
        return;
    line(fd, "delay of 50 %, ns below", vt_delay_share(sum->delay, 500));
    line(fd, "delay of 99 %, ns below", vt_delay_share(sum->delay, 990));
    line(fd, "longest delay, ns", sum->delay_most);
}

void vt_stats_end(void)
{
    vt_pinned_flush();
    if (vt_config.stats)
        vt_stats_print();
}

void vt_stats_print(void)
{
    int fd = 2;
    if (vt_config.stats_file) {
        fd = (int)vt_sys4(SYS_openat, AT_FDCWD, (long)vt_config.stats_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (fd < 0) {
            vt_say("VTHREAD_STATS=%s: cannot be opened (error %d); using stderr", vt_config.stats_file, -fd);
            fd = 2;
        }
    }
    struct vt_place_stats sum = {0};
    uint64_t mounts = 0;
    for (unsigned i = 0; i < vt_sched.nplaces; i++) {
        const struct vt_place *p = &vt_sched.places[i];
        mounts += atomic_load_explicit(&p->mounts, memory_order_relaxed);
        add(&sum, &p->stats);
    }
    line(fd, "pid", (uint64_t)vt_sys0(SYS_getpid));
    line(fd, vt_ring_backend() == VT_IO_URING ? "io back end (1: io_uring)" : "io back end (0: epoll)",
         vt_ring_backend() == VT_IO_URING);
    line(fd, "places", vt_sched.nplaces);
    line(fd, "carriers", vt_sched.ncarriers);
    line(fd, "threads created", vt_threads_created());
    line(fd, "threads living", vt_threads_living());
    line(fd, "threads living at the peak", atomic_load_explicit(&peak, memory_order_relaxed));
    line(fd, "mounts", mounts);
    line(fd, "mounts from thread to thread", sum.direct);
    line(fd, "mounts of a lodger", sum.lodged);
    print_parks(fd, &sum);
    line(fd, "yields", sum.yields);
    line(fd, "steals", sum.steals);
    line(fd, "timers expired", sum.timers);
    line(fd, "carrier sleeps", sum.sleeps);
    line(fd, "io requests", sum.requests);
    line(fd, "ring system calls", sum.submissions);
    line(fd, "batches of requests", sum.batches);
    line(fd, "requests in the largest", sum.batch_most);
    line(fd, "system calls saved", sum.requests > sum.batches && sum.batches ? sum.requests - sum.batches : 0);
    struct vt_slot_stats slots;
    vt_slot_stats(&slots);
    line(fd, "stacks in use, kept ones too", slots.in_use);
    line(fd, "stacks in use at the peak", slots.peak);
    print_delays(fd, &sum);
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
