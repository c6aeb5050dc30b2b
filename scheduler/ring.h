/* A place's way to the kernel: an io_uring, or where that is forbidden an epoll set. Everything here is the owner's, in a
 * section, unless it says otherwise. */
#ifndef VT_RING_H
#define VT_RING_H

#include "own.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vt_place;
struct vt_ring;
struct vt_thread;
struct vt_io_req;
struct vt_watches;

enum vt_io_backend {
    VT_IO_AUTO = 0,
    VT_IO_URING = 1,
    VT_IO_EPOLL = 2,
};

/* A request under way; on the stack of the thread that waits for it. */
struct vt_op {
    struct vt_thread *thread;
    struct vt_place *place;     /* whose ring has it */
    struct vt_op *mail_next;    /* in the mailbox of that place */
    _Atomic uint32_t done;      /* res is valid; the last access of the ring to the op */
    _Atomic uint32_t mail_done; /* the owner has dealt with the mail: its last access to the op */
    int32_t res;
    bool mailed; /* set by the thread that waits, under the mailbox's lock */
    /* The rest is watch.c's. */
    bool kept; /* borrowed: own keeps the file open, for the program has closed the number */
    uint32_t events;
    int32_t borrowed; /* what is watched is the program's own number; or -1: own */
    uint64_t serial;  /* borrowed: tells its events from those of waits that are over */
    struct vt_watches *watches;
    struct vt_op *next; /* borrowed: in the list */
    struct vt_own own;
};

/* Chooses the back end: tries io_uring unless told otherwise. 0 or an errno. Once, any thread. */
int vt_ring_choose(enum vt_io_backend wanted);
enum vt_io_backend vt_ring_backend(void);

/* Whether there are rings, and the kernel knows the operation (IORING_OP_*). */
bool vt_ring_can(uint8_t opcode);

/* Makes p's ring. 0 or an errno. By whoever is to attend p. */
int vt_ring_open(struct vt_place *p);

/* Queues a request; it leaves with the next vt_ring_submit. */
void vt_ring_queue(struct vt_place *p, struct vt_op *op, const struct vt_io_req *req);

/* Queues a wait for poll events. 0, or an errno at once (epoll only). many: one of so many that none is to take a number of
 * the descriptor table where that can be avoided (epoll only). */
int vt_ring_watch(struct vt_place *p, struct vt_op *op, int fd, uint32_t events, bool many);

/* Asks for an early end of those of n ops that are under way (place is not NULL) and not done, which all are in one ring.
 * Any thread that is in a section; they complete some time later, also those that were done. */
void vt_ring_cancel(struct vt_place *mine, struct vt_op *ops, size_t n);

/* A signalfd for these signals, to be watched and never read: it reports that one of them is pending for the process. NULL if
 * there is none for this set. Any thread, in a section. */
struct vt_own *vt_ring_signal_fd(uint64_t set);

/* In a forked child: forgets what vt_ring_signal_fd has opened. */
void vt_ring_fork_child(void);

/* What p's epoll set watches. Any thread. */
struct vt_watches *vt_ring_watches(struct vt_place *p);

/* Hands over what is queued. */
void vt_ring_submit(struct vt_place *p);

/* Whether there may be something to submit or to reap; a few loads. Any thread, then a hint. */
bool vt_ring_stirs(const struct vt_place *p);

/* Whether something is known to be there to reap. With epoll only the kernel knows. */
bool vt_ring_ready(const struct vt_place *p);

/* How many requests have been queued and have not completed. */
unsigned vt_ring_inflight(const struct vt_place *p);

/* Takes completions, making their threads runnable, without waiting. */
void vt_ring_reap(struct vt_place *p);

/* Submits, sleeps until a completion, a vt_ring_wake or the deadline, and reaps. */
void vt_ring_wait(struct vt_place *p, uint64_t deadline);

/* Ends a vt_ring_wait, the present one or the next. Any thread; async-signal-safe. */
void vt_ring_wake(struct vt_place *p);

/* Gives the calling kernel thread a descriptor table of its own, in which there are only those that vt_ring_wake writes to.
 * 0 or an errno. */
int vt_ring_own_table(void);

#endif
