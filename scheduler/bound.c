#include "bound.h"

#include "handoff.h"
#include "life.h"
#include "park.h"
#include "place.h"
#include "setid.h"
#include "stats.h"
#include "sys.h"

#include <errno.h>
#include <time.h>

/* A block out of sight, or a slice of computing that others waited through, counts as much as so many waits that park. */
#define VT_HIDDEN_STEP 16
/* With so much of it a thread is bound: three times in a row. */
#define VT_HIDDEN_BIND 48

/* So many at most are bound by habit: a program that has more of them is better off with carriers that come and go. */
#define VT_HABIT_MOST 512

static _Atomic int bound_by_habit;

/* A bound thread that computes for so many ns between two waits stays so. */
#define VT_BURST UINT64_C(2000000)

/* The processor time of the calling kernel thread, in ns. */
static uint64_t computed(void)
{
    struct timespec ts = {0, 0};
    vt_sys2(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* A thread that is to bind itself is looked for again after so many ns, and interrupted again after so many looks. */
#define VT_BIND_AGAIN UINT64_C(1000000)
#define VT_BIND_KICK  10

/* --- start routines ------------------------------------------------------------------------------------------------- */

/* How often threads of a start routine began by blocking out of sight, less how often they did not. */
#define VT_ROUTINES     64
#define VT_ROUTINE_STEP 2
#define VT_ROUTINE_BIND 4
#define VT_ROUTINE_MOST 16
/* One in so many is not bound, to see whether it is still so. */
#define VT_ROUTINE_PROBE 16

static struct {
    void *_Atomic start;
    _Atomic int score;
    _Atomic unsigned made;
} routines[VT_ROUTINES];

static unsigned routine_of(void *start)
{
    return (uint32_t)((uintptr_t)start >> 4) * UINT32_C(2654435769) >> 26;
}

/* Races lose a count now and then, which is nothing. */
static void note(void *start, int change)
{
    unsigned i = routine_of(start);
    int score = atomic_load_explicit(&routines[i].score, memory_order_relaxed);
    if (atomic_load_explicit(&routines[i].start, memory_order_relaxed) != start) {
        if (change < 0)
            return;
        atomic_store_explicit(&routines[i].start, start, memory_order_relaxed);
        score = 0;
    }
    score += change;
    if (score >= 0 && score <= VT_ROUTINE_MOST)
        atomic_store_explicit(&routines[i].score, score, memory_order_relaxed);
}

static bool known(void *start)
{
    unsigned i = routine_of(start);
    return __builtin_expect(atomic_load_explicit(&routines[i].score, memory_order_relaxed) >= VT_ROUTINE_BIND, 0) &&
           atomic_load_explicit(&routines[i].start, memory_order_relaxed) == start &&
           atomic_fetch_add_explicit(&routines[i].made, 1, memory_order_relaxed) % VT_ROUTINE_PROBE != 0;
}

/* --- binding --------------------------------------------------------------------------------------------------------- */

/* Gives t, the calling virtual thread, which is in a section, a kernel thread of its own. In its present one's name there
 * may be requests under way in a ring, whose completion would end the thread's waits in the kernel as a signal does. */
static bool move(struct vt_thread *t, const char *why)
{
    vt_count_handoff(why, t);
    vt_unmount(t, vt_give_carrier);
    return t->kind == VT_BOUND;
}

/* The same until further notice, if there are not too many already. */
static bool move_by_habit(struct vt_thread *t, const char *why)
{
    if (atomic_fetch_add_explicit(&bound_by_habit, 1, memory_order_relaxed) < VT_HABIT_MOST && move(t, why)) {
        t->computed = computed();
        return true;
    }
    atomic_fetch_sub_explicit(&bound_by_habit, 1, memory_order_relaxed);
    atomic_store_explicit(&t->hidden, 0, memory_order_relaxed);
    return false;
}

/* t, which waits for the first time or ends, has not blocked out of sight before if hidden is 0. */
static void begun_in_sight(struct vt_thread *t, uint8_t hidden)
{
    if (hidden == 0 &&
        __builtin_expect(atomic_load_explicit(&routines[routine_of((void *)t->start)].score, memory_order_relaxed) > 0, 0))
        note((void *)t->start, -1);
}

/* t, the calling thread, is bound; was: it was so before, by habit if not for good. Others take its carrier for its own from
 * here on (vt_bind_other). */
static void for_good(struct vt_thread *t, bool was)
{
    if (!atomic_exchange_explicit(&t->bound_for_good, true, memory_order_release) && was)
        atomic_fetch_sub_explicit(&bound_by_habit, 1, memory_order_relaxed);
}

bool vt_bind(void)
{
    if (!vt_is_ours())
        return true;
    int saved = errno;
    struct vt_thread *t = vt_enter();
    bool was = t->kind == VT_BOUND, bound = was || move(t, VT_HANDOFF_BOUND);
    if (bound)
        for_good(t, was);
    vt_leave(t);
    errno = saved;
    return bound;
}

long vt_bind_for(long (*f)(void *), void *arg)
{
    struct vt_thread *t = vt_enter();
    bool virtual = t->kind == VT_VIRTUAL;
    long ret = -EAGAIN;
    if (!virtual || move(t, VT_HANDOFF_BOUND)) {
        ret = f(arg);
        if (ret >= 0)
            for_good(t, !virtual);
        else if (virtual)
            t->kind = VT_VIRTUAL; /* as after a hand-off */
    }
    vt_leave(t);
    return ret;
}

void vt_bind_if_asked(struct vt_thread *t)
{
    if (__builtin_expect(atomic_load_explicit(&t->bind_asked, memory_order_relaxed) != VT_ASKED, 1) || !vt_is_ours())
        return;
    atomic_store_explicit(&t->bind_asked, vt_bind() ? VT_NOT_ASKED : VT_REFUSED, memory_order_seq_cst);
    vt_unpark(&t->bind_asked, UINT32_MAX, VT_BITS_ALL);
}

pid_t vt_bind_other(struct vt_thread *t, uint32_t tid)
{
    bool asked = false;
    for (unsigned looks = 0;; looks++) {
        if (!vt_hold(t))
            return 0;
        if (t->tid != tid) {
            vt_release();
            return 0;
        }
        if (atomic_load_explicit(&t->bound_for_good, memory_order_acquire))
            return t->carrier->tid;
        uint32_t refused = VT_REFUSED;
        if (asked && atomic_compare_exchange_strong_explicit(&t->bind_asked, &refused, VT_NOT_ASKED, memory_order_seq_cst,
                                                             memory_order_relaxed)) {
            vt_release();
            return -EAGAIN;
        }
        asked = true;
        /* It binds itself when it next leaves a section, for which it is woken, as for a signal (putoff.c); if it runs and
         * enters none it is interrupted, again if it has been missed. */
        atomic_store_explicit(&t->bind_asked, VT_ASKED, memory_order_seq_cst);
        vt_chaos();
        atomic_store_explicit(&t->deferred, 1, memory_order_seq_cst);
        vt_unblock(t);
        struct vt_carrier *c = t->carrier;
        if (looks % VT_BIND_KICK == 0 && c && atomic_load_explicit(&c->mounted, memory_order_acquire) == t)
            vt_setid_kick(c->tid);
        vt_release();
        vt_chaos();
        vt_park(&t->bind_asked, VT_ASKED, vt_now() + VT_BIND_AGAIN, VT_BITS_ALL, 0);
    }
}

void vt_bind_known(struct vt_thread *t)
{
    if (known((void *)t->start)) {
        atomic_store_explicit(&t->hidden, VT_HIDDEN_BIND, memory_order_relaxed);
        move_by_habit(t, VT_HANDOFF_KNOWN);
    }
}

void vt_bind_seen(struct vt_thread *t, enum vt_stuck how)
{
    if (how == VT_STUCK_IN_KERNEL)
        return;
    uint8_t hidden = atomic_load_explicit(&t->hidden, memory_order_relaxed);
    if (hidden <= UINT8_MAX - VT_HIDDEN_STEP)
        atomic_store_explicit(&t->hidden, hidden + VT_HIDDEN_STEP, memory_order_relaxed);
    if (how == VT_STUCK_WAITING && !t->parked)
        note((void *)t->start, VT_ROUTINE_STEP);
}

void vt_bind_waits(struct vt_thread *t)
{
    uint8_t hidden = atomic_load_explicit(&t->hidden, memory_order_relaxed);
    if (!t->parked) {
        t->parked = true;
        begun_in_sight(t, hidden);
    }
    if (__builtin_expect(hidden == 0, 1))
        return;
    if (t->kind == VT_VIRTUAL && hidden >= VT_HIDDEN_BIND) {
        move_by_habit(t, VT_HANDOFF_HABIT);
        return;
    }
    if (t->kind == VT_BOUND) {
        uint64_t now = computed(), burst = now - t->computed;
        t->computed = now;
        if (burst > VT_BURST)
            hidden = VT_HIDDEN_BIND;
    }
    atomic_store_explicit(&t->hidden, --hidden, memory_order_relaxed);
    if (hidden == 0 && t->kind == VT_BOUND && !t->bound_for_good) {
        atomic_fetch_sub_explicit(&bound_by_habit, 1, memory_order_relaxed);
        t->kind = VT_VIRTUAL;
    }
}

void vt_bind_ends(struct vt_thread *t)
{
    if (!t->parked)
        begun_in_sight(t, atomic_load_explicit(&t->hidden, memory_order_relaxed));
    if (t->kind == VT_BOUND && !t->bound_for_good)
        atomic_fetch_sub_explicit(&bound_by_habit, 1, memory_order_relaxed);
}

bool vt_bind_optional(const struct vt_thread *t)
{
    return atomic_load_explicit(&t->hidden, memory_order_relaxed) >= VT_HIDDEN_BIND;
}

void vt_bind_fork_child(void)
{
    atomic_store_explicit(&bound_by_habit, 0, memory_order_relaxed);
}
