/* The life of a virtual thread: made, running, ended, joined. Errors are pthread error numbers. */
#ifndef VT_LIFE_H
#define VT_LIFE_H

#include "thread.h"

#include <errno.h>
#include <stddef.h>

struct vt_spec {
    void *(*start)(void *);
    void *arg;
    size_t stack_size; /* usable bytes */
    size_t guard_size;
    void *stack_addr; /* lowest byte of the caller's stack of stack_size bytes, or NULL */
    bool detached;
    uint64_t sigmask;
    char name[16]; /* as prctl(PR_GET_NAME) */
};

/* Handles: the address of the descriptor and the low bits of its generation, so that one which is out of date is known.
 * The lowest bit is set: libc's own pthread_t are aligned addresses. */
#define VT_HANDLE_SHIFT 48
#define VT_HANDLE_ADDR  ((UINT64_C(1) << VT_HANDLE_SHIFT) - 2)

static inline bool vt_is_handle(uint64_t handle)
{
    return handle & 1;
}

/* In a forked child that has not started the engine: the one descriptor of a virtual thread that is not a dead one's (or
 * nobody's). Else NULL. */
extern struct vt_thread *vt_sole;

/* The thread, or NULL if its descriptor has been freed since (it was joined, or detached and ended). */
static inline struct vt_thread *vt_of_handle(uint64_t handle)
{
    struct vt_thread *t = (struct vt_thread *)(uintptr_t)(handle & VT_HANDLE_ADDR);
    return t->handle == handle && (__builtin_expect(!vt_sole, 1) || t == vt_sole) ? t : NULL;
}

/* The error of joining or detaching a thread that is no more: libc's, whose descriptors keep saying "detached" for a while. */
static inline int vt_handle_error(uint64_t handle)
{
    const struct vt_thread *t = (const struct vt_thread *)(uintptr_t)(handle & VT_HANDLE_ADDR);
    return t->gone_detached == handle ? EINVAL : ESRCH;
}

/* Once, before the first virtual thread. 0, or ENOSYS when libc is not one that we know (vt_tcb_why). */
int vt_life_start(void);

/* Makes a virtual thread and lets it run; *handle is set before it does. 0, EAGAIN, EINVAL (the caller's stack is too small).
 * Any thread, not in a section: memory for TLS comes from the program's malloc. */
int vt_create(const struct vt_spec *spec, uint64_t *handle);

/* Waits until t has ended, takes its result and frees it. EDEADLK for oneself, EINVAL if detached, joined or being joined,
 * ETIMEDOUT, EBUSY at a deadline of 0 (try). EINTR if interruptible. Any thread. */
int vt_join(struct vt_thread *t, void **result, uint64_t deadline, unsigned flags);

/* Keeps t's TLS and stack from going, for a few instructions; false if it has ended. What follows is a section. */
bool vt_hold(struct vt_thread *t);
void vt_release(void);

/* In a forked child, on its only thread, with signals blocked: nothing of the parent's engine is left, if it had one. A
 * virtual thread goes on as a kernel thread, on its own stack and TLS, until vt_life_rejoin. Takes no lock, allocates
 * nothing; async-signal-safe. */
void vt_life_fork_child(bool had_engine);

/* Makes the calling thread, which came by fork, virtual again: its kernel thread becomes a carrier, which for now has no
 * place. After vt_sched_start, not in a section. False without memory, and it stays what it is. */
bool vt_life_rejoin(void);

/* Around a dlopen or dlclose by any thread: the TLS of a module that comes is right in every virtual thread. */
bool vt_modules_begin(void);
void vt_modules_end(bool begun);

/* 0 or EINVAL. Any thread. */
int vt_detach(struct vt_thread *t);

/* The living virtual thread of this id, or NULL; it may end at any time. Any thread. */
struct vt_thread *vt_by_tid(uint32_t tid);

/* Calls f for every descriptor of a living virtual thread; threads may come and go meanwhile. Any thread. */
void vt_each(void (*f)(struct vt_thread *, void *), void *arg);

/* The same until f returns true; whether it has. */
bool vt_find_thread(bool (*f)(struct vt_thread *, void *), void *arg);

/* Called on the last virtual thread's own stack when main has gone by pthread_exit and no other thread lives: does not
 * return. Set by who knows how a process ends; may be NULL. */
extern void (*vt_last_thread)(void);

/* main, or in a forked child the kernel thread that came along, has called pthread_exit and its destructors are done; its
 * kernel thread is about to end. */
void vt_main_gone(void);

#endif
