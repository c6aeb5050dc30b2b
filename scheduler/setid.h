/* setuid and its family. Credentials are a kernel thread's own: libc sends its signal SIGSETXID to each kernel thread that
 * it has made, whose handler makes the system call there, notes in that thread's TCB that it has, and lets the caller go
 * on when all have. On a carrier that runs a virtual thread the handler must find the carrier's TCB, and no kernel thread
 * of ours may block the signal for long: VT_ALL_SIGNALS is without it. */
#ifndef VT_SETID_H
#define VT_SETID_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

/* Puts us before libc's handler, which is there once a kernel thread has been made. Any thread. */
void vt_setid_start(void);

/* Interrupts the thread that the carrier with this kernel thread runs: outside sections it binds itself if it has been
 * asked to (bound.h). A call that it is in is restarted, or ends with EINTR where the kernel cannot do that. In a section. */
void vt_setid_kick(pid_t tid);

/* Where a thread without a descriptor gets a signal. false: it is in libc's handler, and has not aborted: the signal is for
 * others. Does not return where libc has found on a helper of ours (monitor, keeper ...) that the threads got different
 * answers: the program's handler is none of its business, which has a small stack and maybe descriptors of its own. It got the
 * same answer as every carrier did that the program has changed nothing of: one of these, or who got the other answer, aborts
 * too. */
bool vt_setid_aborts(const siginfo_t *info);

#endif
