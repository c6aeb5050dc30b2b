/*
 * The local queue is a ring of the shape that Go's run time uses: the owner adds at the tail, and it as well
 * as thieves take at the head, by moving it with a compare-and-swap after they have read the slots.
 *
 * Memory orders. tail: stored with release by the owner, loaded with acquire by thieves: they see the slots
 * and the tasks. head: each move is a read-modify-write with release, so that all of them make one release
 * sequence; the owner loads it with acquire before it writes a slot again: the reads of whoever moved head
 * past the slot's last use came before. A thief that reads a slot while the owner writes it again is one
 * whose head has moved, and its compare-and-swap fails (the indices do not wrap); the slots are atomic so
 * that this race is defined.
 */
#include "runq.h"

#include <string.h>

static struct vt_task *get(struct vt_runq *q, uint64_t i)
{
    return atomic_load_explicit(&q->ring[i % VT_RUNQ_SIZE], memory_order_relaxed);
}

static void put(struct vt_runq *q, uint64_t i, struct vt_task *t)
{
    atomic_store_explicit(&q->ring[i % VT_RUNQ_SIZE], t, memory_order_relaxed);
}

/* Takes n tasks from head on; on failure *head is the new one. */
static bool take(struct vt_runq *q, uint64_t *head, uint64_t n)
{
    return atomic_compare_exchange_weak_explicit(&q->head, head, *head + n, memory_order_release, memory_order_relaxed);
}

/* The owner's tail: nobody else writes it. */
static uint64_t own_tail(const struct vt_runq *q)
{
    return atomic_load_explicit(&q->tail, memory_order_relaxed);
}

void vt_runq_init(struct vt_runq *q)
{
    atomic_init(&q->head, 0);
    atomic_init(&q->tail, 0);
    for (unsigned i = 0; i < VT_RUNQ_SIZE; i++)
        atomic_init(&q->ring[i], NULL);
}

bool vt_runq_push(struct vt_runq *q, struct vt_task *t)
{
    uint64_t tail = own_tail(q);

    if (tail - atomic_load_explicit(&q->head, memory_order_acquire) >= VT_RUNQ_SIZE)
        return false;
    put(q, tail, t);
    atomic_store_explicit(&q->tail, tail + 1, memory_order_release);
    return true;
}

struct vt_task *vt_runq_pop(struct vt_runq *q)
{
    uint64_t tail = own_tail(q);
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);

    while (head != tail) {
        /* Only the owner writes slots, so this is right for the head that was read, and the swap checks that.
         */
        struct vt_task *t = get(q, head);

        if (take(q, &head, 1))
            return t;
    }
    return NULL;
}

unsigned vt_runq_steal(struct vt_runq *victim, struct vt_runq *thief_q, struct vt_task **first)
{
    uint64_t to = own_tail(thief_q);
    /* Acquire as in push: the slots that are about to be written have been read. */
    uint64_t room = VT_RUNQ_SIZE - (to - atomic_load_explicit(&thief_q->head, memory_order_acquire));

    *first = NULL;
    for (;;) {
        /* In this order, so that tail is not older than head: head's mover had seen a tail at least as large.
         */
        uint64_t head = atomic_load_explicit(&victim->head, memory_order_acquire);
        uint64_t len = atomic_load_explicit(&victim->tail, memory_order_acquire) - head;

        if (!len)
            return 0;
        if (len > VT_RUNQ_SIZE)
            continue; /* head has moved meanwhile */

        uint64_t n = len - len / 2;
        if (n > room + 1)
            n = room + 1;
        struct vt_task *t = get(victim, head);
        /* Nobody looks at these slots before thief_q's tail moves, so a failed attempt leaves no trace. */
        for (uint64_t i = 1; i < n; i++)
            put(thief_q, to + i - 1, get(victim, head + i));
        if (!take(victim, &head, n))
            continue;
        if (n > 1)
            atomic_store_explicit(&thief_q->tail, to + n - 1, memory_order_release);
        *first = t;
        return (unsigned)n;
    }
}

unsigned vt_runq_take_half(struct vt_runq *q, struct vt_task_list *list)
{
    uint64_t tail = own_tail(q);
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    uint64_t n;

    do {
        n = tail - head;
        n -= n / 2;
        if (!n)
            return 0;
    } while (!take(q, &head, n));
    /* The slots stay as they are until this thread, the owner, pushes. */
    for (uint64_t i = 0; i < n; i++)
        vt_task_list_push(list, get(q, head + i));
    return (unsigned)n;
}

unsigned vt_runq_len(const struct vt_runq *q)
{
    /* Head first: it is then not ahead of tail, for the reason given in vt_runq_steal. */
    uint64_t head = atomic_load_explicit(&q->head, memory_order_acquire);
    uint64_t len = atomic_load_explicit(&q->tail, memory_order_acquire) - head;

    return len < VT_RUNQ_SIZE ? (unsigned)len : VT_RUNQ_SIZE;
}

void vt_globq_init(struct vt_globq *g)
{
    memset(&g->list, 0, sizeof(g->list));
    atomic_init(&g->lock.held, 0);
    atomic_init(&g->len, 0);
}

/* With the lock held. */
static void publish_len(struct vt_globq *g)
{
    atomic_store_explicit(&g->len, g->list.count, memory_order_seq_cst);
}

void vt_globq_push(struct vt_globq *g, struct vt_task *t)
{
    vt_lock(&g->lock);
    vt_task_list_push(&g->list, t);
    publish_len(g);
    vt_unlock(&g->lock);
}

void vt_globq_push_list(struct vt_globq *g, struct vt_task_list *list)
{
    if (!list->first)
        return;
    vt_lock(&g->lock);
    vt_task_list_append(&g->list, list);
    publish_len(g);
    vt_unlock(&g->lock);
}

size_t vt_globq_pop(struct vt_globq *g, size_t max, struct vt_task_list *list)
{
    size_t n = 0;

    if (!max || !vt_globq_len(g))
        return 0;
    vt_lock(&g->lock);
    for (; n < max && g->list.first; n++)
        vt_task_list_push(list, vt_task_list_pop(&g->list));
    if (n)
        publish_len(g);
    vt_unlock(&g->lock);
    return n;
}
