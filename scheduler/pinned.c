#include "pinned.h"

#include "life.h"
#include "park.h"
#include "place.h"
#include "selfdump.h"
#include "stats.h"
#include "sys.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define VT_PINNED_STACK ((size_t)64 << 10)
/* How often the notes are looked at, and how often lines of one kind are printed. */
#define VT_LOOK_EVERY  UINT64_C(50000000)
#define VT_PRINT_EVERY UINT64_C(1000000000)
#define VT_GROUPS      32

/* Hand-offs that have ended and took longer than the threshold, since they were last printed: by cause and start routine, as
 * threads that begin alike mostly do alike. What does not fit counts with the last. */
static struct group {
    const char *what;
    void *start;
    uint64_t n, longest, total;
    uint32_t tid; /* of the longest */
    char name[16];
} groups[VT_GROUPS];
static unsigned ngroups;
static struct vt_lock groups_lock = VT_LOCK_INIT;

/* --- notes ---------------------------------------------------------------------------------------------------------- */

static void set(struct vt_carrier *c, const char *what)
{
    c->pin.since = vt_now();
    c->pin.serial++;
    /* Release: who sees the text sees whose it is. */
    atomic_store_explicit(&c->pin.what, what, memory_order_release);
}

void vt_pinned_note(struct vt_carrier *c, struct vt_thread *t, const char *what)
{
    vt_pinned_note_end(c, t);
    set(c, what);
}

void vt_pinned_note_found(struct vt_carrier *c, bool blocked)
{
    set(c, blocked ? VT_HANDOFF_BLOCKED : VT_HANDOFF_COMPUTING);
}

void vt_pinned_note_end(struct vt_carrier *c, struct vt_thread *t)
{
    const char *what = atomic_load_explicit(&c->pin.what, memory_order_relaxed);
    if (!what)
        return;
    uint64_t took = vt_now() - c->pin.since;
    atomic_store_explicit(&c->pin.what, NULL, memory_order_relaxed);
    if (took < vt_config.trace_pinned)
        return;
    vt_lock(&groups_lock);
    unsigned i = 0;
    while (i < ngroups && !(groups[i].what == what && groups[i].start == (void *)t->start))
        i++;
    if (i == VT_GROUPS)
        i--;
    struct group *g = &groups[i];
    if (i == ngroups) {
        *g = (struct group){.what = what, .start = (void *)t->start};
        ngroups++;
    }
    g->n++;
    g->total += took;
    if (took > g->longest) {
        g->longest = took;
        g->tid = t->tid;
        memcpy(g->name, t->name, sizeof g->name);
    }
    vt_unlock(&groups_lock);
}

/* --- printing ------------------------------------------------------------------------------------------------------- */

#define MS(ns) ((unsigned long)((ns) / 1000000))

static void print(const struct group *g)
{
    if (g->n == 1)
        vt_say("pinned: thread %u \"%.16s\" kept a carrier for %lu ms: %s", g->tid, g->name, MS(g->longest), g->what);
    else
        vt_say("pinned: %lu times a thread like %u \"%.16s\" kept a carrier, for up to %lu ms, %lu ms in all: %s",
               (unsigned long)g->n, g->tid, g->name, MS(g->longest), MS(g->total), g->what);
}

static bool take(struct group *g)
{
    vt_lock(&groups_lock);
    bool any = ngroups != 0;
    if (any)
        *g = groups[--ngroups];
    vt_unlock(&groups_lock);
    return any;
}

void vt_pinned_flush(void)
{
    struct group g;
    for (bool any = vt_config.trace_pinned != 0; any;) {
        struct vt_thread *me = vt_enter();
        any = take(&g);
        vt_leave(me);
        if (any)
            print(&g);
    }
}

static char *dump_memory;

/* Not by us: that would take the loader's lock, and its holder may be the thread in question. */
static void show_stack(uint32_t tid)
{
    char options[32];
    if (!dump_memory || !vt_selfdump_possible())
        return;
    snprintf(options, sizeof options, "--from-inside --thread %u", tid);
    vt_selfdump_run(dump_memory, options);
}

/* Of the hand-offs that last, the one that is not known yet and has lasted longest: a line, and its stack. */
static void look(uint64_t now)
{
    struct vt_carrier *oldest = NULL;
    for (struct vt_carrier *c = __atomic_load_n(&vt_sched.carriers, __ATOMIC_ACQUIRE); c; c = c->all_next) {
        if (atomic_load_explicit(&c->pin.what, memory_order_acquire) && c->pin.serial != c->pin.said &&
            c->pin.since + vt_config.trace_pinned <= now && (!oldest || c->pin.since < oldest->pin.since))
            oldest = c;
    }
    if (!oldest)
        return;
    const char *what = atomic_load_explicit(&oldest->pin.what, memory_order_acquire);
    struct vt_thread *t = atomic_load_explicit(&oldest->mounted, memory_order_acquire);
    uint64_t since = oldest->pin.since;
    oldest->pin.said = oldest->pin.serial;
    if (!what || !t || since > now)
        return; /* it has just ended */
    uint32_t tid = t->tid;
    vt_say("pinned: thread %u \"%.16s\" keeps a carrier, for %lu ms so far: %s", tid, t->name, MS(now - since), what);
    show_stack(tid);
}

static void *pinned_main(void *arg)
{
    uint64_t printed = 0;
    vt_staff_joins("vt-pinned");
    for (;;) {
        struct timespec every = {0, (long)VT_LOOK_EVERY};
        vt_sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&every, 0);
        uint64_t now = vt_now();
        if (now - printed < VT_PRINT_EVERY)
            continue;
        printed = now;
        for (struct group g; take(&g);) /* no handler runs here, so no section */
            print(&g);
        look(now);
    }
    return arg;
}

void vt_pinned_start(void)
{
    if (!vt_config.trace_pinned)
        return;
    dump_memory = vt_selfdump_prepare();
    int err = vt_kernel_thread(pinned_main, NULL, VT_PINNED_STACK);
    if (err)
        vt_say("VTHREAD_TRACE_PINNED: no kernel thread for it (error %d); lines come at the end only", err);
}

void vt_pinned_fork_child(void)
{
    groups_lock = (struct vt_lock)VT_LOCK_INIT;
    ngroups = 0;
    dump_memory = NULL;
}
