/* Cancellation: libc does it, and these see to it that a thread notices. libc marks the thread's TCB and
 * sends its signal, 32, to the TCB's id, which for a virtual thread is no kernel thread's. */
#ifndef VT_CANCEL_H
#define VT_CANCEL_H

#include "thread.h"

/* Puts us before libc's handler, which is there once libc's pthread_cancel has been called. Any thread. */
void vt_cancel_start(void);

/* Makes t, a thread of ours that is held (vt_hold), take notice of the cancellation that libc's word in its
 * TCB says. */
void vt_cancel(struct vt_thread *t);

/* The same for a kernel thread by its pthread_t, which is the calling thread's own, or one that is not joined
 * yet. */
void vt_cancel_kernel(void *tp);

/* The calling thread has left a section: acts upon a cancellation if it may be at any time. What is
 * between cancellation points looks at its own. */
void vt_cancel_at_any_time(struct vt_thread *t);

#endif
