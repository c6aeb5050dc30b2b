/* Stacks of the library's own kernel threads.
 *
 * Not libc's, since in a forked child libc writes to the descriptor of each thread whose stack is its own (reclaim_stacks,
 * nptl/nptl-stack.c): with a thousand carriers asleep that would be a thousand pages to copy in each child. Threads on
 * stacks that were brought along it leaves alone. And where guards are markers all these stacks are one mapping.
 *
 * A stack is used again when its kernel thread has gone. A forked child leaves those of its parent alone. */
#ifndef VT_KSTACK_H
#define VT_KSTACK_H

#include <stdbool.h>
#include <stddef.h>

struct vt_kstack;

/* A stack with room for `size` bytes, TLS and libc's descriptor beside it, or NULL. *lo and *bytes are what
 * pthread_attr_setstack is to be told. With signals blocked; vt_tcb_init has succeeded. */
struct vt_kstack *vt_kstack_get(size_t size, void **lo, size_t *bytes);

/* A start routine for the thread that is to be on it, with the stack as its argument: calls main(arg), and gives the stack
 * back as the thread ends. */
void *vt_kstack_main(void *s);
void vt_kstack_set_main(struct vt_kstack *s, void *(*main)(void *), void *arg);

/* The caller, with the TCB that it was made with, is on one. */
bool vt_kstack_here(void);

/* No thread has come to be on it. */
void vt_kstack_unget(struct vt_kstack *s);

/* In a forked child. */
void vt_kstack_fork_child(void);

#endif
