/* VTHREAD_DEADLOCK=report: a line when every thread of the process waits for ever. */
#ifndef VT_DEADLOCK_H
#define VT_DEADLOCK_H

/* The monitor: every place has been idle for a while, so have the keeper look. */
void vt_deadlock_ask(void);

/* The keeper, which has the program's standard error (the monitor has a table of descriptors of its own): if
 * it has been asked, says the line if no thread can go on, that is, each one, virtual or not, waits in the
 * library, without a time limit, for another. Once until some thread has moved. */
void vt_deadlock_look(void);

#endif
