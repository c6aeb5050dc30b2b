/* Bound threads: virtual threads with a kernel thread of their own, a carrier that has never attended a place. They have
 * their TCB, id and handle as before, and wait and make calls as kernel threads do.
 *
 * A thread is bound for good when it asks for what only a kernel thread has (processors, a policy, namespaces ...). It is
 * bound until further notice when it has often blocked out of sight, in calls by its own instructions, or computed for long
 * while others waited: each time its place is stuck until the monitor looks, and natively it would be nobody's burden. Threads
 * whose start routine has been found to block so from the start (libgomp's) begin bound. */
#ifndef VT_BOUND_H
#define VT_BOUND_H

#include "thread.h"

#include <sys/types.h>

/* Binds the calling virtual thread for good: it goes on on another kernel thread, which ends with it. False if there is
 * none to be had. Nothing happens in a kernel thread. */
bool vt_bind(void);

/* Binds it for the call f(arg), and for good if that succeeds, which means that its result is not negative: the result, or
 * -EAGAIN if there is no kernel thread to be had. */
long vt_bind_for(long (*f)(void *), void *arg);

/* Sees to it that the virtual thread t, whose id is tid, has a kernel thread for good: that one's id, and t is held as by
 * vt_hold until vt_release. 0, and nothing to release, if it has ended; a negative errno as in vt_bind_for. It waits until t
 * has done so. Any other thread, not in a section. */
pid_t vt_bind_other(struct vt_thread *t, uint32_t tid);

/* The calling thread, which is in no section, binds itself if another has asked for it. */
void vt_bind_if_asked(struct vt_thread *t);

/* A thread's first steps, in a section on its first carrier: binds it if its kind is known for it. */
void vt_bind_known(struct vt_thread *t);

/* The monitor, which has claimed the carrier of t, has found it blocked out of sight, or computing while others waited. */
void vt_bind_seen(struct vt_thread *t, enum vt_stuck how);

/* t, the calling thread, which is not a kernel thread, is about to wait, in a section: it may become bound, or virtual. */
void vt_bind_waits(struct vt_thread *t);

/* The calling thread's start routine is over. */
void vt_bind_ends(struct vt_thread *t);

/* Whether t, which is to be bound, is so by habit: it does as well without. */
bool vt_bind_optional(const struct vt_thread *t);

/* In a forked child: nobody is bound. */
void vt_bind_fork_child(void);

#endif
