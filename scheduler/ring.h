/* A place's way to the kernel: an io_uring, or where that is forbidden an epoll set. Everything here is the owner's, in a
 * section, unless it says otherwise. */
#ifndef VT_RING_H
#define VT_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vt_place;
struct vt_ring;
struct vt_thread;
struct vt_io_req;

enum vt_io_backend {
    VT_IO_AUTO = 0,
    VT_IO_URING = 1,
    VT_IO_EPOLL = 2,
};

/* A request under way; on the stack of the thread that waits for it. */
struct vt_op {
    struct vt_thread *thread;
    struct vt_place *place;    /* whose ring has it */
    struct vt_op *mail_next;   /* in the mailbox of that place */
    _Atomic uint32_t done;     /* res is valid; the last access of the ring to the op */
    _Atomic uint32_t mail_done; /* the owner has dealt with the mail: its last access to the op */
    int32_t res;
    int32_t fd;                /* epoll only: what is watched */
    bool borrowed;             /* epoll only: fd is the program's own number */
    bool mailed;               /* set by the thread that waits, under the mailbox's lock */
};

/* Chooses the back end: tries io_uring unless told otherwise. 0 or an errno. Once, any thread. */
int vt_ring_choose(enum vt_io_backend wanted);
enum vt_io_backend vt_ring_backend(void);

/* Makes p's ring. 0 or an errno. By whoever is to attend p. */
int vt_ring_open(struct vt_place *p);

/* In a forked child: closes the parent's descriptors. The rings themselves are not mapped there. */
void vt_ring_abandon(struct vt_place *p);

/* Queues a request; it leaves with the next vt_ring_submit. */
void vt_ring_queue(struct vt_place *p, struct vt_op *op, const struct vt_io_req *req);

/* Queues a wait for poll events. 0, or an errno at once (epoll only; EBADF also where there is no number for a duplicate). */
int vt_ring_watch(struct vt_place *p, struct vt_op *op, int fd, uint32_t events);

/* Asks for an early end of op. Any thread that is in a section; op completes some time later, also if it was done. */
void vt_ring_cancel(struct vt_place *mine, struct vt_op *op);

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

/* Whether fd is one of ours, and the lowest of ours from a number on (-1: none): what closes many must leave them. Any
 * thread; async-signal-safe. */
bool vt_ring_owns(int fd);
int vt_ring_next_fd(int from);

/* The descriptor that vt_ring_wake writes to, for who has a descriptor table of their own. */
int vt_ring_wake_fd(const struct vt_place *p);

#endif
