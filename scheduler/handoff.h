/* Blocking calls that cannot park: the carrier's place is handed to a spare carrier meanwhile.
 *
 *     vt_handoff_begin("flock");
 *     result = flock(fd, op);
 *     vt_handoff_end();
 *
 * Between the two the calling virtual thread is an ordinary kernel thread and may block for as long as it
 * likes. Nothing happens in a kernel thread. errno is preserved. The pairs do not nest; leaving by longjmp,
 * an exception or a cancellation in between is allowed (the thread just goes on without a place until it next
 * parks). Each hand-off is counted under its name, a static text. Begin costs a wake-up of another kernel
 * thread: try without blocking first where the call has such a form. */
#ifndef VT_HANDOFF_H
#define VT_HANDOFF_H

#include <stdbool.h>

void vt_handoff_begin(const char *what);
void vt_handoff_end(void);

/* Whether the calling virtual thread has lost its place since it last parked: it has computed, or blocked, for long. A hint. */
bool vt_handed_off(void);

#endif
