/* The engine below the interposed functions. */
#ifndef VT_START_H
#define VT_START_H

#include <signal.h>
#include <stdbool.h>

/* Starts the engine at the first call; false if it cannot run here, said once on stderr. Threads are libc's
 * own then. Any thread, not in a section. */
bool vt_engine(void);

/* Called where a thread is made and the library is not at work: says why, once, if nobody has asked for that. */
void vt_decided_off(void);

/* In a forked child: as if it had never started. Whether it had, or another thread was at it. */
bool vt_engine_forget(void);

/* The calling kernel thread is what the library takes for the main thread: its end by pthread_exit is
 * noticed. */
void vt_main_is_me(void);

/* The part of it that has to do with signals (signal.c): what main blocks is watched from here on. */
void vt_signal_main_is_me(void);

/* A kernel thread, which may be main, is about to wait with this mask, or NULL. */
void vt_signal_waits_with(const sigset_t *mask);

/* Once: has fork do what fork.c is for. */
void vt_fork_start(void);

#endif
