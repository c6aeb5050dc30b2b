#include "watch.h"

#include "chaos.h"
#include "place.h"
#include "ring.h"
#include "sys.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>

/* --- numbers --------------------------------------------------------------------------------------------------------- */

#define NUMBER_BITS 20
_Static_assert(VT_OWN_MAX == 1 << NUMBER_BITS, "those of ours can be told by their number");

/* Of each number of the program's, zero pages until used: whether its end will be told, how many ops watch by it, and which
 * sets know it (a hint; places share the bits). What is told and what watches change the same word, so that either the one
 * who closes it sees who watches, or who begins to watch sees that it is not known any more. */
#define KNOWN     UINT32_C(1)
#define WATCHER   UINT32_C(2)
#define WATCHERS  UINT32_C(0xfe)
#define SETS      24
#define IN_SET(w) (UINT32_C(0x100) << (w)->place % SETS)

static _Atomic uint32_t numbers[1 << NUMBER_BITS];
static _Atomic int highest; /* that was ever known */

void vt_watch_number_begins(int fd)
{
    if (fd < 0 || fd >> NUMBER_BITS)
        return;
    int old = atomic_load_explicit(&highest, memory_order_relaxed);
    while (old < fd && !atomic_compare_exchange_weak_explicit(&highest, &old, fd, memory_order_relaxed, memory_order_relaxed))
        ;
    atomic_fetch_or_explicit(&numbers[fd], KNOWN, memory_order_seq_cst);
}

/* Keeps the file open for each op that watches by the number. Where there is no number for a duplicate the file leaves the set
 * with the number, and nothing ends the wait but its time. */
static void keep(int fd)
{
    struct vt_thread *t = vt_enter();
    for (unsigned i = 0; i < vt_sched.nplaces; i++) {
        struct vt_watches *w = vt_ring_watches(&vt_sched.places[i]);
        vt_lock(&w->lock);
        for (struct vt_op *op = w->lists[(unsigned)fd % VT_WATCH_LISTS]; op; op = op->next) {
            if (op->borrowed != fd || op->kept || vt_own_dup(&op->own, fd) != 0)
                continue;
            vt_own_done(&op->own);
            op->kept = true;
        }
        vt_unlock(&w->lock);
    }
    vt_leave(t);
}

void vt_watch_number_ends(int fd)
{
    if (fd < 0 || fd >> NUMBER_BITS || atomic_load_explicit(&numbers[fd], memory_order_relaxed) == 0)
        return;
    if (atomic_fetch_and_explicit(&numbers[fd], WATCHERS, memory_order_seq_cst) & WATCHERS)
        keep(fd);
    vt_chaos();
}

void vt_watch_fork_child(void)
{
    int top = atomic_load_explicit(&highest, memory_order_relaxed);
    for (int fd = 0; fd <= top; fd++)
        if (atomic_load_explicit(&numbers[fd], memory_order_relaxed) & ~KNOWN)
            atomic_fetch_and_explicit(&numbers[fd], KNOWN, memory_order_relaxed);
}

/* --- the set --------------------------------------------------------------------------------------------------------- */

/* 0 or an errno. */
static int control(struct vt_watches *w, int how, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event ev = {.events = events, .data.u64 = data};
    int err = (int)-vt_sys4(SYS_epoll_ctl, vt_own_use(w->set), how, fd, (long)&ev);
    vt_own_done(w->set);
    return err;
}

/* As control, with the lock of own.h held. */
static void control_locked(struct vt_op *op, int how, int fd)
{
    struct epoll_event ev = {.events = op->events, .data.ptr = op};
    vt_sys4(SYS_epoll_ctl, atomic_load_explicit(&op->watches->set->fd, memory_order_relaxed), how, fd, (long)&ev);
}

/* --- by a duplicate -------------------------------------------------------------------------------------------------- */

static struct vt_op *op_of(struct vt_own *own)
{
    return (struct vt_op *)((char *)own - offsetof(struct vt_op, own));
}

/* Under the lock of own.h. */
static void op_last(struct vt_own *own, int fd)
{
    control_locked(op_of(own), EPOLL_CTL_DEL, fd);
}

/* The same. If its event has just been taken, the owner is on its way to op_last, before it looks for others. */
static void op_moved(struct vt_own *own, int from, int to)
{
    control_locked(op_of(own), EPOLL_CTL_DEL, from);
    control_locked(op_of(own), EPOLL_CTL_ADD, to);
}

static int begin_duplicate(struct vt_watches *w, struct vt_op *op, int fd, uint32_t events)
{
    int err;
    op->borrowed = -1;
    op->events = events;
    op->own.moved = op_moved;
    do {
        if ((err = vt_own_dup(&op->own, fd)) != 0)
            return err;
        err =
            control(w, EPOLL_CTL_ADD, atomic_load_explicit(&op->own.fd, memory_order_relaxed), events, (uint64_t)(uintptr_t)op);
        vt_own_done(&op->own);
        if (err)
            vt_own_drop(&op->own, NULL);
    } while (err == EBADF); /* somebody has closed it unseen */
    return err;
}

/* --- by the program's number ----------------------------------------------------------------------------------------- */

/* Whether what the set knows by the number is some op's. With the lock, or by the owner. */
static bool is_taken(const struct vt_watches *w, int fd)
{
    const struct vt_op *op = w->lists[(unsigned)fd % VT_WATCH_LISTS];
    while (op && (op->borrowed != fd || op->kept))
        op = op->next;
    return op != NULL;
}

/* The end of op's watch by its number. True if a duplicate keeps the file open for it. */
static bool leave_number(struct vt_watches *w, struct vt_op *op)
{
    vt_lock(&w->lock);
    struct vt_op **link = &w->lists[(unsigned)op->borrowed % VT_WATCH_LISTS];
    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
    vt_unlock(&w->lock);
    atomic_fetch_sub_explicit(&numbers[op->borrowed], WATCHER, memory_order_relaxed);
    if (op->kept) /* nobody else looks at it any more */
        vt_own_drop(&op->own, NULL);
    return op->kept;
}

/* EEXIST: it must be by a duplicate. by_any: also by a number whose end nobody tells. */
static int begin_number(struct vt_watches *w, struct vt_op *op, int fd, uint32_t events, bool by_any)
{
    if (fd < 0 || fd >> NUMBER_BITS)
        return EEXIST;
    vt_lock(&w->lock);
    uint32_t known = atomic_fetch_add_explicit(&numbers[fd], WATCHER, memory_order_seq_cst);
    bool may = (by_any || (known & KNOWN)) && (known & WATCHERS) < WATCHERS - WATCHER && !is_taken(w, fd);
    if (may) {
        struct vt_op **list = &w->lists[(unsigned)fd % VT_WATCH_LISTS];
        op->borrowed = fd;
        op->kept = false;
        op->own.moved = NULL;
        op->serial = ++w->serial;
        op->next = *list;
        *list = op;
    } else {
        atomic_fetch_sub_explicit(&numbers[fd], WATCHER, memory_order_relaxed);
    }
    vt_unlock(&w->lock);
    if (!may)
        return EEXIST;
    vt_chaos();
    /* Bit 0 tells it from an address; the serial is never 0. */
    uint64_t data = op->serial << (1 + NUMBER_BITS) | (uint64_t)fd << 1 | 1;
    bool there = known & IN_SET(w);
    int err = control(w, there ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, events, data);
    if (err == (there ? ENOENT : EEXIST))
        err = control(w, there ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, events, data);
    if (err)
        leave_number(w, op);
    else if (!there && (known & KNOWN))
        atomic_fetch_or_explicit(&numbers[fd], IN_SET(w), memory_order_relaxed);
    return err;
}

/* One that fired the set still knows, but reports no more (EPOLLONESHOT). One that did not is taken out; of a file that is no
 * longer what the number stands for, it may report once if that is open elsewhere, and with a serial that nobody has. */
static void end_number(struct vt_watches *w, struct vt_op *op, bool fired)
{
    int fd = op->borrowed;
    if (!leave_number(w, op) && !fired) {
        control(w, EPOLL_CTL_DEL, fd, 0, 0);
        atomic_fetch_and_explicit(&numbers[fd], ~IN_SET(w), memory_order_relaxed);
    }
}

/* --- either ---------------------------------------------------------------------------------------------------------- */

int vt_watch_begin(struct vt_watches *w, struct vt_op *op, int fd, uint32_t events, bool many)
{
    events |= EPOLLONESHOT;
    op->watches = w;
    int err = begin_number(w, op, fd, events, many);
    if (err == EEXIST)
        err = begin_duplicate(w, op, fd, events);
    if (err == EMFILE)
        err = begin_number(w, op, fd, events, true);
    return err;
}

void vt_watch_end(struct vt_watches *w, struct vt_op *op, bool fired)
{
    if (op->borrowed < 0)
        vt_own_drop(&op->own, op_last);
    else
        end_number(w, op, fired);
}

struct vt_op *vt_watch_op(struct vt_watches *w, uint64_t data)
{
    if (!(data & 1))
        return (struct vt_op *)(uintptr_t)data;
    unsigned fd = (unsigned)(data >> 1 & ((1 << NUMBER_BITS) - 1));
    struct vt_op *op = w->lists[fd % VT_WATCH_LISTS];
    while (op && op->serial != data >> (1 + NUMBER_BITS))
        op = op->next;
    return op;
}
