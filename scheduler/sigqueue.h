/* Signals that are pending for a virtual thread, with who sent them: as the kernel keeps them. Of an ordinary signal one is
 * kept, the first; real-time signals all, in order. */
#ifndef VT_SIGQUEUE_H
#define VT_SIGQUEUE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct vt_thread;

/* Adds what info says to what is pending for t; shared: it was sent to the process. 0, or EAGAIN: a real-time signal, and as
 * many are queued as RLIMIT_SIGPENDING allows. Any thread, also in a handler. */
int vt_sigqueue_add(struct vt_thread *t, const siginfo_t *info, bool shared);

/* Takes the first of sig that was sent to the process and is pending for t; false if there is none. Any thread, also in a
 * handler. */
bool vt_sigqueue_withdraw(struct vt_thread *t, int sig, siginfo_t *info);

/* Takes the first that is pending of sig; false if there is none. In a section, or a handler of the thread's that has
 * interrupted none. */
bool vt_sigqueue_take(struct vt_thread *t, int sig, siginfo_t *info);

/* Forgets all: t is new, or begins anew. Nobody sends to it. */
void vt_sigqueue_clear(struct vt_thread *t);

/* In a forked child, whose only thread is t, or not known. What had been sent to t and not taken stays with the parent, as in
 * the kernel. */
void vt_sigqueue_fork_child(struct vt_thread *t);

/* As vt_sigqueue_take, of what had been sent to the child's thread in the parent: for a handler that had begun there. */
bool vt_sigqueue_take_forked(int sig, siginfo_t *info);

#endif
