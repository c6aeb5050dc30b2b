/* What a call has left with others while it waits - its place in a list, a turn, a lock - and must have back
 * even when it does not return: a handler may jump out of it, and a thread may be cancelled at any time or
 * end by pthread_exit in a handler. Each is taken back by undo at the latest before the stack that it lies on
 * is left. That may come early, when a jump stays inside the handler: the call must bear it. */
#ifndef VT_UNDO_H
#define VT_UNDO_H

#include "thread.h"

struct vt_undo {
    struct vt_undo *outer;
    void (*undo)(struct vt_undo *);
};

/* Of the calling thread. In the same section as what it undoes, or before that. */
static inline void vt_undo_push(struct vt_undo *u, void (*undo)(struct vt_undo *))
{
    struct vt_thread *t = vt_current();
    u->outer = t->undo;
    u->undo = undo;
    atomic_signal_fence(memory_order_seq_cst);
    t->undo = u;
}

/* No longer to be undone; of no effect if it has been. */
static inline void vt_undo_pop(struct vt_undo *u)
{
    struct vt_thread *t = vt_current();
    if (t->undo == u)
        t->undo = u->outer;
    atomic_signal_fence(memory_order_seq_cst);
}

/* Before the calling thread leaves its stack, or a part of it, other than by returns. Not in a section. */
static inline void vt_undo_all(void)
{
    struct vt_thread *t = vt_self;
    struct vt_undo *u;
    while (t && (u = t->undo)) {
        t->undo = u->outer;
        u->undo(u);
    }
}

#endif
