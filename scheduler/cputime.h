/* Processor time of virtual threads.
 *
 * The kernel counts it for kernel threads. To tell the threads apart that a carrier runs, its clock has to be read at each
 * switch, which costs as much as the switch itself. So accounts are kept only from the moment when somebody first asks for
 * the time of a thread. What threads have used before is not known and not counted, but for the one that asks first: its
 * time since it was last mounted is what has passed meanwhile, at most what its kernel thread has used. */
#ifndef VT_CPUTIME_H
#define VT_CPUTIME_H

#include <stdbool.h>
#include <stdint.h>

struct vt_carrier;
struct vt_thread;

/* Whether accounts are kept. */
extern bool vt_cpu_kept;

/* c, the calling carrier, is about to run a thread that it comes to from its own context; t, its thread, is being left. In a
 * section. */
void vt_cpu_begin(struct vt_carrier *c);
void vt_cpu_leave(struct vt_carrier *c, struct vt_thread *t);

/* ns of processor time that t has used: the calling thread, or one that is held. Any thread. */
uint64_t vt_cpu_time(struct vt_thread *t);

#endif
