#include "own.h"

#include "chaos.h"
#include "lock.h"
#include "sys.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>

/* How far ours keep away from the program's numbers, and how many numbers there are at least for them. */
#define VT_OWN_ROOM 256

_Atomic int vt_own_lowest = INT_MAX;
_Atomic int vt_own_near = INT_MAX;
_Atomic unsigned vt_own_forks;

/* A bit for each number of ours: zero pages until used. */
static _Atomic uint64_t numbers[VT_OWN_MAX / 64];
static _Atomic int highest; /* none of ours is above */

static struct vt_lock lock;
static struct vt_own *first; /* all, under the lock */

struct limit {
    uint64_t soft, hard;
};

/* --- which numbers are ours ---------------------------------------------------------------------------------------- */

bool vt_own_is(int fd)
{
    return (unsigned)fd < VT_OWN_MAX && (atomic_load_explicit(&numbers[fd / 64], memory_order_acquire) >> (fd % 64) & 1);
}

int vt_own_next(int from)
{
    int top = atomic_load_explicit(&highest, memory_order_acquire), lowest;
    if (from < (lowest = atomic_load_explicit(&vt_own_lowest, memory_order_acquire)))
        from = lowest;
    for (; from <= top; from = (from / 64 + 1) * 64) {
        uint64_t word = atomic_load_explicit(&numbers[from / 64], memory_order_acquire) >> (from % 64);
        if (word)
            return from + __builtin_ctzll(word);
    }
    return -1;
}

/* Under the lock. */
static void mark(int fd)
{
    if (fd >= VT_OWN_MAX) /* more than can be, see pick_above */
        return;
    if (fd > atomic_load_explicit(&highest, memory_order_relaxed))
        atomic_store_explicit(&highest, fd, memory_order_release);
    atomic_fetch_or_explicit(&numbers[fd / 64], UINT64_C(1) << (fd % 64), memory_order_release);
    if (fd < atomic_load_explicit(&vt_own_lowest, memory_order_relaxed))
        atomic_store_explicit(&vt_own_lowest, fd, memory_order_seq_cst);
}

static void unmark(int fd)
{
    if (fd < VT_OWN_MAX)
        atomic_fetch_and_explicit(&numbers[fd / 64], ~(UINT64_C(1) << (fd % 64)), memory_order_release);
}

void vt_own_lock(void)
{
    vt_lock(&lock);
}

void vt_own_unlock(void)
{
    vt_unlock(&lock);
}

static void link_in(struct vt_own *own)
{
    own->next = first;
    own->link = &first;
    if (first)
        first->link = &own->next;
    first = own;
}

static void unlink_out(struct vt_own *own)
{
    *own->link = own->next;
    if (own->next)
        own->next->link = own->link;
}

/* --- where ------------------------------------------------------------------------------------------------------------ */

static bool get_limit(struct limit *l)
{
    return vt_sys4(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, 0, (long)l) == 0;
}

static bool set_limit(const struct limit *l)
{
    return vt_sys4(SYS_prlimit64, 0, 7, (long)l, 0) == 0;
}

static long dup_from(int fd, uint64_t from)
{
    return from < VT_OWN_MAX ? vt_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, (long)from) : -EMFILE;
}

/* At number from or above, where that is beyond the limit: it is raised for the moment, for all threads. Who looks at it
 * or changes it through us waits for the lock; who opens something meanwhile gets a number beyond the old limit only if
 * there is no other. */
static long dup_beyond(int fd, const struct limit *l, uint64_t from)
{
    struct limit more = {from + 4 * VT_OWN_ROOM, l->hard};
    if (from + VT_OWN_ROOM > VT_OWN_MAX)
        return -EMFILE;
    if (more.hard < more.soft)
        more.hard = more.soft;
    if (!set_limit(&more)) { /* a hard limit may be raised by the privileged only */
        if (l->hard <= from)
            return -EMFILE;
        more.soft = more.hard = l->hard;
        if (!set_limit(&more))
            return -EMFILE;
    }
    long ret = dup_from(fd, from);
    set_limit(l);
    return ret;
}

/* The highest free number within the limit, or nearly. One for a wait only is not to be among the lowest, which the program
 * gets next: then rather none. */
static long dup_within(int fd, const struct limit *l, bool wait)
{
    uint64_t top = l->soft < 65536 ? l->soft : 65536, at = top - (top < 256 ? top / 4 : 64);
    long ret = -EMFILE;
    uint64_t least = wait ? top / 2 : 3;
    for (; at > least && ret == -EMFILE; at = at * 3 / 4)
        ret = dup_from(fd, at);
    return ret;
}

/* A duplicate of fd with a number of at least from, out of the way of what the program gets; or -errno. */
static long dup_away(int fd, uint64_t from)
{
    struct limit l;
    if (!get_limit(&l))
        return -EMFILE;
    uint64_t start = l.soft <= VT_OWN_TOP ? l.soft : VT_OWN_TOP - VT_OWN_ROOM;
    if (start < from)
        start = from;
    long ret = start + VT_OWN_ROOM / 4 < l.soft ? dup_from(fd, start) : dup_beyond(fd, &l, start < l.soft ? l.soft : start);
    return ret == -EMFILE || ret == -EINVAL ? dup_within(fd, &l, false) : ret;
}

/* Under the lock. When the program gets a number from which on ours are in its way, if the limit lets it. */
static void set_near(void)
{
    struct limit l;
    int lowest = INT_MAX;
    for (const struct vt_own *own = first; own; own = own->next) {
        int fd = atomic_load_explicit(&own->fd, memory_order_relaxed);
        if (!own->passing && fd < lowest)
            lowest = fd;
    }
    bool safe = lowest == INT_MAX || (get_limit(&l) && l.soft <= (uint64_t)lowest);
    atomic_store_explicit(&vt_own_near, safe ? INT_MAX : lowest - lowest / 8, memory_order_relaxed);
}

/* --- keeping, duplicating, dropping ------------------------------------------------------------------------------------ */

void vt_own_keep(struct vt_own *own, int fd)
{
    struct vt_thread *t = vt_enter();
    vt_lock(&lock);
    long away = dup_away(fd, 0);
    int at = away < 0 ? fd : (int)away;
    mark(at);
    atomic_store_explicit(&own->fd, at, memory_order_seq_cst);
    own->passing = false;
    link_in(own);
    set_near();
    vt_unlock(&lock);
    if (at != fd)
        vt_sys1(SYS_close, fd);
    vt_leave(t);
}

int vt_own_dup(struct vt_own *own, int fd)
{
    /* As it was when last asked: each wait would ask again. Where it is lower by now the kernel says so. */
    static struct limit l;
    vt_lock(&lock);
    long at = l.soft ? dup_within(fd, &l, true) : -EINVAL;
    if (at == -EINVAL || at == -EMFILE)
        at = get_limit(&l) ? dup_within(fd, &l, true) : -EMFILE;
    if (at >= VT_OWN_MAX) {
        vt_sys1(SYS_close, at);
        at = -EMFILE;
    }
    if (at >= 0) {
        mark((int)at);
        atomic_store_explicit(&own->fd, (int)at, memory_order_relaxed);
        atomic_store_explicit(&own->users, 1, memory_order_relaxed);
        own->passing = true;
        link_in(own);
    }
    vt_unlock(&lock);
    return at == -EBADF ? EBADF : at < 0 ? EMFILE : 0;
}

void vt_own_drop(struct vt_own *own, void (*last)(struct vt_own *own, int fd))
{
    vt_lock(&lock);
    unlink_out(own);
    int fd = atomic_load_explicit(&own->fd, memory_order_relaxed);
    if (last)
        last(own, fd);
    /* In this order under the lock: else the program could get the number and not be able to close it, or close ours. */
    vt_sys1(SYS_close, fd);
    unmark(fd);
    vt_unlock(&lock);
}

/* --- moving ------------------------------------------------------------------------------------------------------------ */

/* Under the lock. */
static bool move_one(struct vt_own *own, uint64_t from, bool up)
{
    int old = atomic_load_explicit(&own->fd, memory_order_relaxed);
    long to = dup_away(old, from);
    if (to < 0 || to >= VT_OWN_MAX)
        return false;
    if (up && (uint64_t)to < from && to < old + VT_OWN_ROOM) { /* no better a place */
        vt_sys1(SYS_close, to);
        return false;
    }
    mark((int)to);
    vt_chaos();
    atomic_store_explicit(&own->fd, (int)to, memory_order_seq_cst); /* before the look at users, see vt_own_use */
    if (own->moved)
        own->moved(own, old, (int)to);
    vt_chaos();
    /* Calls that have read the old number. They do not wait for anything. */
    while (atomic_load_explicit(&own->users, memory_order_seq_cst))
        vt_sys0(SYS_sched_yield);
    vt_sys1(SYS_close, old);
    unmark(old);
    return true;
}

static struct vt_own *find(int fd)
{
    struct vt_own *own = first;
    while (own && atomic_load_explicit(&own->fd, memory_order_relaxed) != fd)
        own = own->next;
    return own;
}

bool vt_own_make_way(int fd)
{
    struct vt_own *own;
    struct limit l;
    if (get_limit(&l) && (uint64_t)fd >= l.soft)
        return true; /* the kernel refuses it */
    while (vt_own_is(fd) && (own = find(fd))) {
        if (own->passing && atomic_load_explicit(&own->users, memory_order_acquire)) {
            /* Its owner is putting it into a set, and may want the lock next. */
            vt_unlock(&lock);
            vt_sys0(SYS_sched_yield);
            vt_lock(&lock);
            continue;
        }
        bool moved = move_one(own, 0, false);
        set_near();
        return moved;
    }
    return !vt_own_is(fd);
}

void vt_own_approach(int fd)
{
    struct vt_thread *t = vt_enter();
    vt_lock(&lock);
    int near = atomic_load_explicit(&vt_own_near, memory_order_relaxed), top = 0;
    for (const struct vt_own *own = first; own; own = own->next) {
        int at = atomic_load_explicit(&own->fd, memory_order_relaxed);
        if (!own->passing && at > top)
            top = at;
    }
    /* Far above ours it is a number that the program has chosen. */
    if (fd >= near && fd <= top + VT_OWN_ROOM) {
        bool moved = true;
        struct limit l;
        uint64_t from = 2 * (uint64_t)top;
        if (get_limit(&l) && from > l.soft && l.soft > (uint64_t)top)
            from = l.soft;
        for (struct vt_own *own = first; own && moved; own = own->next)
            moved = own->passing || move_one(own, from, true);
        set_near();
        if (!moved) /* there is no better place for them */
            atomic_store_explicit(&vt_own_near, INT_MAX, memory_order_relaxed);
    }
    vt_unlock(&lock);
    vt_leave(t);
}

void vt_own_limit_changed(void)
{
    set_near();
}

void vt_own_fork_child(void)
{
    /* By the bits: another thread may have been at the list. */
    for (int fd = 0; (fd = vt_own_next(fd)) >= 0; fd++)
        vt_sys1(SYS_close, fd);
    for (int i = 0, top = atomic_load_explicit(&highest, memory_order_relaxed) / 64; i <= top; i++)
        if (atomic_load_explicit(&numbers[i], memory_order_relaxed))
            atomic_store_explicit(&numbers[i], 0, memory_order_relaxed);
    lock = (struct vt_lock)VT_LOCK_INIT;
    first = NULL;
    atomic_store_explicit(&highest, 0, memory_order_relaxed);
    atomic_store_explicit(&vt_own_lowest, INT_MAX, memory_order_relaxed);
    atomic_store_explicit(&vt_own_near, INT_MAX, memory_order_relaxed);
    atomic_fetch_add_explicit(&vt_own_forks, 1, memory_order_relaxed);
}
