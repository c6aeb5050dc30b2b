/* VTHREAD_TRACE_PINNED: says which threads keep a carrier for long, in a call that cannot park or by computing, and where.
 *
 * A hand-off that begins or ends only notes that and the time; a kernel thread of the library's, vt-pinned, looks at the notes
 * now and then, and prints. Nothing is noted, and there is no such kernel thread, without the variable. */
#ifndef VT_PINNED_H
#define VT_PINNED_H

#include "config.h"

#include <stdbool.h>

struct vt_carrier;
struct vt_thread;

/* t, on c, loses its place, or has lost it already: for the call `what`, a static text. In a section, by t. */
void vt_pinned_note(struct vt_carrier *c, struct vt_thread *t, const char *what);

/* The same for what the monitor has found, before its claim ends. */
void vt_pinned_note_found(struct vt_carrier *c, bool blocked);

/* t's call is over, or it parks. In a section, by t. */
void vt_pinned_note_end(struct vt_carrier *c, struct vt_thread *t);

static inline void vt_pinned_begin(struct vt_carrier *c, struct vt_thread *t, const char *what)
{
    if (__builtin_expect(vt_config.trace_pinned != 0, 0))
        vt_pinned_note(c, t, what);
}

static inline void vt_pinned_found(struct vt_carrier *c, bool blocked)
{
    if (__builtin_expect(vt_config.trace_pinned != 0, 0))
        vt_pinned_note_found(c, blocked);
}

static inline void vt_pinned_end(struct vt_carrier *c, struct vt_thread *t)
{
    if (__builtin_expect(vt_config.trace_pinned != 0, 0))
        vt_pinned_note_end(c, t);
}

/* Starts the kernel thread if there is something to do for it. With the engine. */
void vt_pinned_start(void);

/* Prints what has not been printed: at the end of the process. Any thread. */
void vt_pinned_flush(void);

/* In a forked child. */
void vt_pinned_fork_child(void);

#endif
