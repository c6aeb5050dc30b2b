/*
 * Queues of runnable tasks: one for each place, with stealing, and one for the process.
 *
 * A task is in at most one queue at a time, at most once. Whoever gets a task from a queue sees everything
 * that was written before it was put there.
 */
#ifndef VT_RUNQ_H
#define VT_RUNQ_H

#include "lock.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What can be queued; the first member of struct vt_thread. `next` belongs to whoever holds the task. */
struct vt_task {
    struct vt_task *next;
};

/* A first-in first-out list without a lock of its own. `last` is meaningful only when `first` is not NULL. */
struct vt_task_list {
    struct vt_task *first;
    struct vt_task *last;
    size_t count;
};

#define VT_TASK_LIST_INIT                                                                                                      \
    {                                                                                                                          \
        NULL, NULL, 0                                                                                                          \
    }

static inline void vt_task_list_push(struct vt_task_list *l, struct vt_task *t)
{
    t->next = NULL;
    if (l->first)
        l->last->next = t;
    else
        l->first = t;
    l->last = t;
    l->count++;
}

/* The first task, or NULL. */
static inline struct vt_task *vt_task_list_pop(struct vt_task_list *l)
{
    struct vt_task *t = l->first;

    if (t) {
        l->first = t->next;
        l->count--;
        t->next = NULL;
    }
    return t;
}

/* Moves all of `from` behind the last of `l`. */
static inline void vt_task_list_append(struct vt_task_list *l, struct vt_task_list *from)
{
    if (!from->first)
        return;
    if (l->first)
        l->last->next = from->first;
    else
        l->first = from->first;
    l->last = from->last;
    l->count += from->count;
    *from = (struct vt_task_list)VT_TASK_LIST_INIT;
}

/*
 * A place's queue: first in, first out, of bounded length. One kernel thread at a time is its owner and may
 * push, pop and take half; any others may steal and ask for the length. Ownership may change hands if the old
 * owner's last call happens before the new one's first (a lock, or release and acquire on something else).
 * All zero is an empty queue.
 */
#define VT_RUNQ_SIZE 256

struct vt_runq {
    /* Index of the oldest task. Moved, always by compare-and-swap, by whoever takes: the owner and thieves.
     */
    alignas(64) _Atomic uint64_t head;
    /* Index after the newest. Moved by the owner only. 64 bits, as is head, so that neither ever comes again.
     */
    alignas(64) _Atomic uint64_t tail;
    alignas(64) struct vt_task *_Atomic ring[VT_RUNQ_SIZE];
};

void vt_runq_init(struct vt_runq *q);

/* Owner: makes t the newest. False, and nothing done, when the queue is full. */
bool vt_runq_push(struct vt_runq *q, struct vt_task *t);

/* Owner: removes and returns the oldest, or NULL. Lock-free: it retries only when a thief took something. */
struct vt_task *vt_runq_pop(struct vt_runq *q);

/*
 * Takes the older half, rounded up, of the victim's tasks: the oldest goes to *first, the others to thief_q,
 * in order, as far as they fit. Returns how many it took; 0 when there was none, with *first NULL. The caller
 * owns thief_q, which is not the victim.
 */
unsigned vt_runq_steal(struct vt_runq *victim, struct vt_runq *thief_q, struct vt_task **first);

/* Owner: moves the older half, rounded up, behind the last of `list`; returns how many. For an overflow. */
unsigned vt_runq_take_half(struct vt_runq *q, struct vt_task_list *list);

/* How many there are. Exact for an owner whom nobody steals from, a hint for all others. */
unsigned vt_runq_len(const struct vt_runq *q);

/* The process's queue: first in, first out, unbounded. Any kernel thread. All zero is an empty queue. */
struct vt_globq {
    alignas(64) struct vt_lock lock;
    struct vt_task_list list;
    /* The list's count, for readers without the lock; on a line of its own as idle carriers poll it. */
    alignas(64) _Atomic size_t len;
};

void vt_globq_init(struct vt_globq *g);

void vt_globq_push(struct vt_globq *g, struct vt_task *t);

/* Moves all of `list` to the end of the queue. */
void vt_globq_push_list(struct vt_globq *g, struct vt_task_list *list);

/* Moves up to `max` of the oldest behind the last of `list`; returns how many. Takes no lock when the queue
 * is empty. */
size_t vt_globq_pop(struct vt_globq *g, size_t max, struct vt_task_list *list);

/*
 * How many there are; a hint. Sequentially consistent, as the pushes' updates of it are: a carrier that says
 * it goes to sleep (seq_cst) and then sees 0 can rely on the pusher seeing that it sleeps.
 */
static inline size_t vt_globq_len(const struct vt_globq *g)
{
    return atomic_load_explicit(&g->len, memory_order_seq_cst);
}

#ifdef __cplusplus
}
#endif

#endif
