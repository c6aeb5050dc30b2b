/* Signals to the process. The kernel gives one to main if that lets it in, else to any kernel thread that
 * does. A virtual thread that is parked has none: what main blocks and only parked threads let in would come
 * to nobody. So the catcher, a kernel thread, waits for these signals and sends them on to such a thread. It
 * is made when it is first needed.
 *
 * Natively a signal has come to a thread, or is pending for it, when kill returns; what the catcher, or a carrier that has none
 * to give it to, has taken from the kernel and not sent on is on its way meanwhile, and the one that let it in may end. So what
 * this process sends to itself goes to that thread without the kernel. */
#ifndef VT_CATCHER_H
#define VT_CATCHER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* main blocks these signals from now on; all of them when it has gone. main itself; takes no lock,
 * async-signal-safe. */
void vt_catch_main_blocks(uint64_t set);

/* A virtual thread has this mask from now on: set before, with a fence in between. Any thread, also in a
 * section and in a handler. */
void vt_catch_let_in(uint64_t mask);

/* The program waits for these by sigwait or a signalfd: the catcher leaves them alone from now on. Any
 * thread, not in a section. */
void vt_catch_called_for(uint64_t set);

/* The program has a handler for sig from now on. Any thread. */
void vt_catch_handled(int sig);

/* Sends to the process what info says, at once, where some virtual thread lets it in, main blocks it, and it has a handler:
 * whoever has seen this call return finds that the signal has come. False: the kernel is to send it. Any thread, not in a
 * section; async-signal-safe. */
bool vt_catch_send(const siginfo_t *info);

/* main waits with this mask (sigsuspend, ppoll and their kin): what it lets in is the kernel's to send from now on. main
 * itself. */
void vt_catch_main_waits(uint64_t mask);

struct vt_thread;

/* t does not let in what set has, or has ended: what was sent to the process, and is pending for t, goes to another. In t, or
 * by who runs when t has left its stack. */
void vt_catch_pass_on(struct vt_thread *t, uint64_t set);

/* Makes the catcher if it is wanted. The keeper. */
void vt_catch_keep(void);

/* In a forked child, on its only thread. */
void vt_catch_fork_child(void);

#endif
