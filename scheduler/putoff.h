/* Signals and scheduler sections: no handler of the program runs while its kernel thread is in one. */
#ifndef VT_PUTOFF_H
#define VT_PUTOFF_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* To be asked first by every handler. True: the kernel thread is in a section; the signal has been sent again and waits,
 * blocked, until the section is left: the handler is to return at once. Async-signal-safe. */
bool vt_signal_put_off(int sig, siginfo_t *info, void *context);

struct vt_thread;
struct vt_carrier;

/* Gives the kernel thread of c the alternate stack of t. In a section. */
void vt_set_alt_stack(struct vt_carrier *c, struct vt_thread *t);

/* Sends sig to the virtual thread t: its handler runs on t, at once if t runs, or when it has been woken from its wait,
 * which it interrupts; not while t blocks the signal. 0 or an errno. Any thread; async-signal-safe. */
int vt_signal_send(struct vt_thread *t, int sig);

/* The same with a value, which the handler gets; and with all that info says. EAGAIN where too many real-time signals are
 * queued. */
int vt_signal_queue(struct vt_thread *t, int sig, uint64_t value);
int vt_signal_post(struct vt_thread *t, const siginfo_t *info);

/* The same for a signal to the process, to t, which is held (vt_hold) and not known to block it. EBUSY: it does now; another is
 * to have it. */
int vt_signal_offer(struct vt_thread *t, const siginfo_t *info);

/* To be asked by every handler next: false if the signal was meant for a thread that this kernel thread no longer runs. */
bool vt_signal_mine(int sig, siginfo_t *info);

/* Sends to the process again what has come to the wrong kernel thread. By whom it was sent is lost where the kernel lets only
 * the sender say so. Async-signal-safe. */
void vt_signal_send_again(int sig, const siginfo_t *info);

/* The calling carrier, with signals blocked, is not going to run a thread soon that lets in what mask has: what it has put off
 * of that is sent to the process again. */
void vt_signal_give_back(struct vt_carrier *c, uint64_t mask);

/* Lends t, the calling virtual thread, a mask for a wait, as ppoll and sigsuspend have one. What it lets in is taken when the
 * section is left next; the first handler that runs finds the thread's own mask to return to, as in the kernel. In a
 * section. */
void vt_mask_lend(struct vt_thread *t, uint64_t set);

/* Gives t its own mask back, if that has not happened. False if a signal was put off meanwhile: the section is to be left,
 * so that it is taken, and then this called again. In a section. */
bool vt_mask_return(struct vt_thread *t);

/* The mask that the kernel thread of the calling virtual thread had when a handler interrupted it, outside sections, less what
 * was put off; the handler found this one. */
uint64_t vt_signal_mask_before(uint64_t kernel);

/* A handler on the calling virtual thread is about to return to the kernel, which will set the mask kernel; the thread's own
 * is set. */
void vt_signal_returns(uint64_t set, uint64_t kernel);

/* The mask of the calling thread has become set (bit n-1 for signal n), also in the kernel. */
void vt_signal_mask_is(uint64_t set);

/* It is about to become so in the kernel; what is pending and let in by it comes when the thread next leaves a section. Of a
 * virtual thread, not in a section. */
void vt_signal_mask_will_be(uint64_t set);

#endif
