/* Signals and scheduler sections: no handler of the program runs while its kernel thread is in one. */
#ifndef VT_PUTOFF_H
#define VT_PUTOFF_H

#include <signal.h>
#include <stdbool.h>

/* To be asked first by every handler. True: the kernel thread is in a section; the signal has been sent again and waits,
 * blocked, until the section is left: the handler is to return at once. Async-signal-safe. */
bool vt_signal_put_off(int sig, const siginfo_t *info, void *context);

#endif
