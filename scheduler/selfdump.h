/* A thread dump on a signal, VTHREAD_DUMP_SIGNAL: a kernel thread of the library's runs vthread-dump on this
 * process. It unwinds nothing by itself: that would take the loader's lock, and stop at whoever is in it. */
#ifndef VT_SELFDUMP_H
#define VT_SELFDUMP_H

#include <stdbool.h>

/* Installs the handler, if one is asked for. Once, before the program's main. */
void vt_selfdump_install(void);

/* For another kernel thread of the library's that wants one: finds the tool, and gets the memory that a run needs; NULL: there
 * is none. With the engine's start. */
char *vt_selfdump_prepare(void);

/* In a forked child, where none runs. */
void vt_selfdump_fork_child(void);

/* Whether the tool is there. */
bool vt_selfdump_possible(void);

/* Runs it with these options, split at blanks, and waits for its end. Threads of the program stand still for some
 * milliseconds meanwhile. */
void vt_selfdump_run(char *memory, const char *options);

/* Makes the kernel thread, if one is asked for. With the engine. */
void vt_selfdump_start(void);

#endif
