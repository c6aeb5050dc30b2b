/* The library's own descriptors, in the program's table of descriptors: where they lie, and that the program cannot harm
 * them.
 *
 * They lie at and above the soft RLIMIT_NOFILE where the hard limit, or the right to raise it, allows that: there the
 * kernel gives no number to the program, refuses dup2, and does not count them against the limit. Where the soft limit is
 * above VT_OWN_TOP they lie below that instead, for the kernel's table is as long as the highest number, and each fork
 * copies it; when the program's numbers come near, ours move up. Where neither can be, they have the highest free numbers.
 *
 * A number of ours can change at any time, for dup2 onto it. So who makes a call with it that must not meet another file
 * reads it between vt_own_use and vt_own_done. */
#ifndef VT_OWN_H
#define VT_OWN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define VT_OWN_TOP (1 << 12)
#define VT_OWN_MAX (1 << 20) /* ours are below this */

struct vt_own {
    _Atomic int fd;         /* the number */
    _Atomic unsigned users; /* calls with it under way */
    /* It has moved; both numbers are open. Under the lock; NULL: nothing to do. */
    void (*moved)(struct vt_own *own, int from, int to);
    bool passing; /* by vt_own_dup */
    struct vt_own *next, **link;
};

extern _Atomic int vt_own_lowest;     /* none of ours is below; INT_MAX: there are none */
extern _Atomic int vt_own_near;       /* when the program gets this number or a higher one, vt_own_approach is to be called */
extern _Atomic unsigned vt_own_forks; /* changes in a forked child: what was kept is closed there */

/* Whether fd is one of ours. A hint unless vt_own_lock is held. Any thread; async-signal-safe. */
bool vt_own_is(int fd);

static inline bool vt_own_has(int fd)
{
    return __builtin_expect(fd >= atomic_load_explicit(&vt_own_lowest, memory_order_relaxed), 0) && vt_own_is(fd);
}

/* The lowest of ours from a number on; -1: none. */
int vt_own_next(int from);

/* While it is held none of ours comes, goes or moves. In a section. A spin lock: the calls made meanwhile are those that
 * close or replace descriptors. */
void vt_own_lock(void);
void vt_own_unlock(void);

/* Moves fd to a number of ours, or where there is none keeps it as it is. The owner fills in moved before. */
void vt_own_keep(struct vt_own *own, int fd);

/* A duplicate of fd for a short time, within the limit, as if vt_own_use had been called. 0, EBADF or EMFILE. In a section. */
int vt_own_dup(struct vt_own *own, int fd);

/* Closes own; before, with the lock held, last(own, fd) where it is given. In a section. */
void vt_own_drop(struct vt_own *own, void (*last)(struct vt_own *own, int fd));

/* With the lock held, which may be free meanwhile: if fd is one of ours, moves that one to another number. False if there is
 * none. */
bool vt_own_make_way(int fd);

/* The program has got number fd. Any thread; async-signal-safe. */
void vt_own_approach(int fd);

/* With the lock held: the soft limit has changed. */
void vt_own_limit_changed(void);

static inline int vt_own_use(struct vt_own *own)
{
    atomic_fetch_add_explicit(&own->users, 1, memory_order_seq_cst); /* against the store of fd in move_one */
    return atomic_load_explicit(&own->fd, memory_order_seq_cst);
}

static inline void vt_own_done(struct vt_own *own)
{
    atomic_fetch_sub_explicit(&own->users, 1, memory_order_release);
}

/* In a forked child, and where the engine has not come up: closes all. */
void vt_own_fork_child(void);

#endif
