/* Signals and scheduler sections: no handler of the program runs while its kernel thread is in one. */
#ifndef VT_PUTOFF_H
#define VT_PUTOFF_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* To be asked first by every handler. True: the kernel thread is in a section; the signal has been sent again and waits,
 * blocked, until the section is left: the handler is to return at once. Async-signal-safe. */
bool vt_signal_put_off(int sig, const siginfo_t *info, void *context);

struct vt_thread;
struct vt_carrier;

/* Gives the kernel thread of c the alternate stack of t. In a section. */
void vt_set_alt_stack(struct vt_carrier *c, struct vt_thread *t);

/* Sends sig to the virtual thread t: its handler runs on t, at once if t runs, or when it has been woken from its wait,
 * which it interrupts; not while t blocks the signal. 0 or an errno. Any thread; async-signal-safe. */
int vt_signal_send(struct vt_thread *t, int sig);

/* The same with a value, which the handler gets; of several sent before the first is taken the last one's counts. */
int vt_signal_queue(struct vt_thread *t, int sig, uint64_t value);

/* Makes *info say how the signal sig, which was pending for t and has been taken, was sent. */
void vt_signal_describe(struct vt_thread *t, int sig, siginfo_t *info);

/* To be asked by every handler next: false if the signal was meant for a thread that this kernel thread no longer runs. */
bool vt_signal_mine(int sig, siginfo_t *info);

/* A handler on the calling virtual thread is about to return to the kernel, which will set this mask. */
void vt_signal_returns(uint64_t set);

/* The mask of the calling thread has become set (bit n-1 for signal n), also in the kernel. */
void vt_signal_mask_is(uint64_t set);

#endif
