#include "deadlock.h"

#include "config.h"
#include "life.h"
#include "park.h"
#include "place.h"
#include "ring.h"
#include "sys.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

/* What one look over all threads has seen. Two looks with the same result, between which nobody moved, are
 * one instant. */
struct view {
    uint64_t moves; /* of mounts, and of times at which kernel threads began to wait */
    unsigned virtuals, kernels;
};

static bool waits_for_thread(const struct vt_thread *t)
{
    switch (t->wait_kind) {
    case VT_WAIT_FUTEX:
    case VT_WAIT_MUTEX:
    case VT_WAIT_COND:
    case VT_WAIT_RDLOCK:
    case VT_WAIT_WRLOCK:
    case VT_WAIT_SEM:
    case VT_WAIT_BARRIER:
    case VT_WAIT_ONCE:
    case VT_WAIT_JOIN:
        return atomic_load_explicit(&t->token, memory_order_acquire) == VT_BLOCKED;
    default:
        return false;
    }
}

static struct vt_thread *descriptor(unsigned index)
{
    struct vt_thread *chunk = atomic_load_explicit(&vt_pool.chunk[index / VT_CHUNK], memory_order_acquire);
    return chunk ? &chunk[index % VT_CHUNK] : NULL;
}

static bool is_staff(uint32_t tid)
{
    for (unsigned i = 0; i < VT_STAFF; i++)
        if (tid && (uint32_t)atomic_load_explicit(&vt_sched.staff[i], memory_order_relaxed) == tid)
            return true;
    return false;
}

static bool look(struct view *v)
{
    *v = (struct view){0};
    for (unsigned i = 0; i < vt_sched.nplaces; i++) {
        const struct vt_place *p = &vt_sched.places[i];
        if (atomic_load_explicit(&p->due, memory_order_acquire) != VT_NEVER || vt_ring_inflight(p))
            return false;
    }
    for (unsigned i = 0; i < __atomic_load_n(&vt_pool.used, __ATOMIC_ACQUIRE); i++) {
        const struct vt_thread *t = descriptor(i);
        if (!t)
            break;
        bool alive = atomic_load_explicit(&t->alive, memory_order_acquire);
        if (!alive && (!atomic_load_explicit(&t->adopted, memory_order_acquire) || is_staff(t->tid)))
            continue;
        if (!waits_for_thread(t) || (!alive && t->timer.deadline != VT_NEVER) ||
            atomic_load_explicit(&t->timer_place, memory_order_relaxed))
            return false;
        v->moves += alive ? t->turns : t->since;
        if (alive)
            v->virtuals++;
        else
            v->kernels++;
    }
    return v->virtuals != 0;
}

/* How many kernel threads the process has. */
static unsigned kernel_threads(void)
{
    struct {
        uint64_t ino, off;
        unsigned short length;
        unsigned char type;
        char name[];
    } * entry;
    _Alignas(8) char buf[4096];
    unsigned n = 0;
    long fd = vt_sys4(SYS_openat, AT_FDCWD, (long)"/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), size;
    if (fd < 0)
        return 0;
    while ((size = vt_sys3(SYS_getdents64, fd, (long)buf, sizeof buf)) > 0) {
        for (long at = 0; at < size; at += entry->length) {
            entry = (void *)(buf + at);
            n += entry->name[0] != '.';
        }
    }
    vt_sys1(SYS_close, fd);
    return n;
}

static struct vt_thread *by_tid(uint32_t tid)
{
    struct vt_thread *t = vt_by_tid(tid);
    for (unsigned i = 0; !t && i < vt_pool.used; i++) {
        struct vt_thread *other = descriptor(i);
        if (other && atomic_load_explicit(&other->adopted, memory_order_relaxed) && other->tid == tid)
            t = other;
    }
    return t;
}

/* Whom t waits for, if that is one thread. Its mutex is there: t waits for it, and does not move. */
static struct vt_thread *whom(const struct vt_thread *t)
{
    const pthread_mutex_t *m = t->wait_on;
    if (t->wait_kind == VT_WAIT_JOIN)
        return (struct vt_thread *)t->wait_on;
    if (t->wait_kind == VT_WAIT_MUTEX && m)
        return by_tid((uint32_t)__atomic_load_n(&m->__data.__owner, __ATOMIC_RELAXED));
    return NULL;
}

/* A circle of threads that wait for one another, as text; "" if there is none. */
static void circle(char *to, size_t size)
{
    *to = '\0';
    for (unsigned i = 0; i < vt_pool.used; i++) {
        /* Two walkers, one twice as fast, meet in a circle (Floyd). Most threads lead to none, in a step or
         * two. */
        struct vt_thread *slow = descriptor(i), *fast = slow;
        if (!slow || (!atomic_load_explicit(&slow->alive, memory_order_relaxed) &&
                      !atomic_load_explicit(&slow->adopted, memory_order_relaxed)))
            continue;
        do {
            slow = whom(slow);
            fast = whom(fast);
            fast = fast ? whom(fast) : NULL;
        } while (fast && fast != slow);
        if (!fast)
            continue;
        size_t n = (size_t)snprintf(to, size, "; in a circle: %u", slow->tid);
        for (struct vt_thread *t = whom(slow); n < size && t != slow; t = whom(t))
            n += (size_t)snprintf(to + n, size - n, " waits for %u", t->tid);
        if (n < size)
            snprintf(to + n, size - n, " waits for %u", slow->tid);
        return;
    }
}

static _Atomic bool asked;

void vt_deadlock_ask(void)
{
    if (!vt_config.deadlock)
        return;
    atomic_store_explicit(&asked, true, memory_order_relaxed);
    vt_keeper_call();
}

void vt_deadlock_look(void)
{
    static uint64_t said;
    struct view first, second;
    char text[256];
    if (!atomic_exchange_explicit(&asked, false, memory_order_relaxed) || !look(&first) || first.moves == said)
        return;
    /* Each place has its carrier or none, and no thread is on one. */
    for (const struct vt_carrier *c = __atomic_load_n(&vt_sched.carriers, __ATOMIC_ACQUIRE); c; c = c->all_next)
        if (atomic_load_explicit(&c->mounted, memory_order_acquire))
            return;
    /* All others would be threads that we do not know: made inside libc, or in a system call of their own. */
    unsigned known = vt_sched.ncarriers + atomic_load_explicit(&vt_sched.nstaff, memory_order_acquire) + first.kernels;
    if (kernel_threads() != known || !look(&second) || second.moves != first.moves || second.virtuals != first.virtuals ||
        second.kernels != first.kernels)
        return;
    said = first.moves;
    circle(text, sizeof text);
    vt_say("deadlock: each of %u virtual and %u kernel threads waits for another, for ever%s; "
           "vthread dump %d shows more",
           first.virtuals, first.kernels, text, (int)vt_sys0(SYS_getpid));
}
