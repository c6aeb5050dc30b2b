/* A running process, for target.c: /proc, process_vm_readv and ptrace. */
#ifndef DUMP_PROCESS_H
#define DUMP_PROCESS_H

#include "target.h"

void process_open(pid_t pid, bool tolerant);
void process_mappings(void);
void process_read(struct span *spans, size_t n);

/* Stops all kernel threads and takes their registers, which target.tasks has then. Those that do not stop
 * within some milliseconds (asleep uninterruptibly: vfork, a page fault on a slow device) are left, marked as
 * not stopped. */
void process_stop(void);
void process_resume(void); /* nothing if it is not stopped */

#endif
