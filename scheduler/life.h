/* The life of a virtual thread: made, running, ended, joined. Errors are pthread error numbers. */
#ifndef VT_LIFE_H
#define VT_LIFE_H

#include "thread.h"

#include <stddef.h>

struct vt_spec {
    void *(*start)(void *);
    void *arg;
    size_t stack_size; /* usable bytes */
    size_t guard_size;
    void *stack_addr;  /* lowest byte of the caller's stack of stack_size bytes, or NULL */
    bool detached;
    uint64_t sigmask;
};

/* Once, before the first virtual thread. 0, or ENOSYS when libc is not one that we know (vt_tcb_why). */
int vt_life_start(void);

/* Makes a virtual thread and lets it run. 0, EAGAIN, EINVAL (the caller's stack is too small). Any thread, not in a
 * section: memory for TLS comes from the program's malloc. */
int vt_create(const struct vt_spec *spec, struct vt_thread **out);

/* Waits until t has ended, takes its result and frees it. EDEADLK for oneself, EINVAL if detached, joined or being joined,
 * ETIMEDOUT, EBUSY at a deadline of 0 (try). EINTR if interruptible. Any thread. */
int vt_join(struct vt_thread *t, void **result, uint64_t deadline, unsigned flags);

/* 0 or EINVAL. Any thread. */
int vt_detach(struct vt_thread *t);

/* The living virtual thread of this id, or NULL; it may end at any time. Any thread. */
struct vt_thread *vt_by_tid(uint32_t tid);

/* Calls f for every descriptor of a living virtual thread; threads may come and go meanwhile. Any thread. */
void vt_each(void (*f)(struct vt_thread *, void *), void *arg);

/* Called on the last virtual thread's own stack when main has gone by pthread_exit and no other thread lives: does not
 * return. Set by who knows how a process ends; may be NULL. */
extern void (*vt_last_thread)(void);

/* main has called pthread_exit and its destructors are done; its kernel thread is about to end. */
void vt_main_gone(void);

#endif
