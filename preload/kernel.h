/* What only a kernel thread has: processors, policy, niceness, credentials of its own, namespaces. */
#ifndef VT_KERNEL_H
#define VT_KERNEL_H

#include <stdbool.h>
#include <sys/types.h>

struct vt_thread;

/* A thread that a system call names. */
struct vt_named {
    pid_t id;               /* for the kernel */
    struct vt_thread *held; /* until vt_named_done */
};

/* Finds the thread that has this id, to change it: a virtual one is bound. 0, -ESRCH if there is no such thread, -EAGAIN if
 * there is no kernel thread for it. Of the calling thread, which 0 means too, the id is 0, and it is for the caller to bind
 * it. May wait. Not in a section. */
int vt_named_to_change(pid_t id, struct vt_named *named);

/* The same to ask about it: for a virtual thread that has no kernel thread of its own a kernel thread of the library
 * answers, which has what all carriers have. */
int vt_named_to_ask(pid_t id, struct vt_named *named);

void vt_named_done(struct vt_named *named);

/* A system call by number that is about such a thing; false if it is not, or no virtual thread has to do with it. By any
 * thread. The result is the kernel's. */
bool vt_kernel_call(long number, const long a[6], long *ret);

/* Whether threads that the calling thread makes have to be kernel threads, since they inherit what no carrier has. */
bool vt_kernel_inherits(void);

#endif
