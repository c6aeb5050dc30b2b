/* What the epoll back end watches: a wait for a descriptor to become ready, in the epoll set of a place.
 *
 * By the program's own number where that is possible. The set then keeps what it knows of the number when the wait is over, and
 * the next wait takes one call. It keeps the file open for nobody, as the program sees it: what is closed leaves the set by
 * itself. A wait must go on when the program closes the number meanwhile, as one in the kernel does; so whoever closes says so
 * before (vt_watch_number_ends), and a duplicate then keeps the file open for as long as the wait takes. That holds for numbers
 * of which the engine has been told when they were made (vt_watch_number_begins). For others, and where the set knows the
 * number for another wait already, a wait has a duplicate from the beginning: four calls. */
#ifndef VT_WATCH_H
#define VT_WATCH_H

#include "lock.h"
#include "own.h"

#include <stdbool.h>
#include <stdint.h>

struct vt_op;

#define VT_WATCH_LISTS (1 << 14)

/* Of a place; zero but for set and place at first. By the place's owner, in a section, unless it says otherwise. */
struct vt_watches {
    struct vt_own *set;                  /* the epoll set */
    unsigned place;                      /* its index */
    uint64_t serial;                     /* of the last op that watches by the program's number */
    struct vt_lock lock;                 /* for changes of the lists, and for others' looks */
    struct vt_op *lists[VT_WATCH_LISTS]; /* the ops that watch by a number, the newest first, by that number */
};

/* Begins to watch for epoll events. 0 or an errno. many: one of so many that none is to take a number of the descriptor
 * table where that can be avoided. */
int vt_watch_begin(struct vt_watches *w, struct vt_op *op, int fd, uint32_t events, bool many);

/* The end; fired: its event has been taken. */
void vt_watch_end(struct vt_watches *w, struct vt_op *op, bool fired);

/* The op that an event's data stands for; NULL if it is over. */
struct vt_op *vt_watch_op(struct vt_watches *w, uint64_t data);

/* The program has just got the number, and who closes it or makes it stand for something else will call the second before.
 * Any thread; async-signal-safe. */
void vt_watch_number_begins(int fd);
void vt_watch_number_ends(int fd);

/* In a forked child, which watches nothing yet. */
void vt_watch_fork_child(void);

#endif
