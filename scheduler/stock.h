/* Descriptors of threads, and what a place, or a kernel thread that makes threads, keeps at hand of them and of slots.
 *
 * Descriptors are type-stable: their memory stays, and never becomes anything else (thread.h). Free ones lie in packs on a
 * list that all share, and in stocks. A stock is used by one kernel thread at a time: a place's by its owner, a kernel
 * thread's own by that thread, and one that the others share under its lock. So making and ending a thread touches what
 * other processors use once for a whole pack.
 *
 * A stock also counts the threads that were made and ended with it: only sums over all stocks mean anything. */
#ifndef VT_STOCK_H
#define VT_STOCK_H

#include "lock.h"
#include "slot.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vt_thread;

/* Descriptors come in chunks; the index finds one without a lock. */
#define VT_CHUNK      1024
#define VT_MAX_CHUNKS 16384

extern struct vt_pool {
    struct vt_lock lock;
    struct vt_thread *packs; /* free ones, some at a time; the first of a pack has the next pack in arg */
    struct vt_thread *odd;   /* a chain of any length */
    _Atomic unsigned used;   /* descriptors ever made */
    struct vt_thread *_Atomic chunk[VT_MAX_CHUNKS];
} vt_pool;

struct vt_stock {
    struct vt_slot_cache slots;
    struct vt_thread *first; /* free descriptors */
    unsigned n;
    struct vt_thread *spare;         /* a whole pack of them, or NULL */
    _Atomic uint64_t created, ended; /* virtual threads; written by who uses the stock */
};

/* The stock for the calling thread me, which is in a section and stays there until vt_stock_end. */
struct vt_stock *vt_stock_begin(struct vt_thread *me);
void vt_stock_end(struct vt_stock *s);

/* A free descriptor, whose index and generation alone mean something; NULL when there is no memory. */
struct vt_thread *vt_stock_get(struct vt_stock *s);

/* Takes it back; nobody else has it any more. Its handle is void from here on. */
void vt_stock_put(struct vt_stock *s, struct vt_thread *t);

/* The same for who has no stock at hand and is in no hurry. Any thread. */
struct vt_thread *vt_descriptor_get(void);
void vt_descriptor_put(struct vt_thread *t);

/* The descriptor of this index if there is one. Any thread. */
struct vt_thread *vt_descriptor(unsigned index);

/* Indices are below this. Any thread. */
unsigned vt_descriptors(void);

/* The calling kernel thread ends: what it has goes to the others. */
void vt_stock_leave(struct vt_thread *me);

/* Counts a thread that is about to run, or whose end has come. In a section. */
void vt_stock_created(struct vt_stock *s);
void vt_stock_ended(struct vt_stock *s);

/* Virtual threads made and not ended. 0 only if there was a moment, during the call, without any. Any thread. */
uint64_t vt_threads_living(void);

/* Virtual threads made so far. */
uint64_t vt_threads_created(void);

/* For who looks from outside (debug.h): the stocks besides those of the places. Eight bytes each. */
extern const struct vt_stock_view {
    const struct vt_stock *common, *own;
    size_t nown, size;
} vt_stock_view;

/* In a forked child, whose only thread is me (or NULL if it has no descriptor): no stock has anything, and no thread has been
 * made. */
void vt_stock_fork_child(struct vt_thread *me);

/* Later in that child: the descriptors of the parent's other threads are free. It touches them all. */
void vt_stock_collect(void);

#endif
