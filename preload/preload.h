/* What every interposed function starts from. */
#ifndef VT_PRELOAD_H
#define VT_PRELOAD_H

#include <stdatomic.h>
#include <stdbool.h>

/* Exported: the only names that the program sees. */
#define VT_EXPORT __attribute__((visibility("default")))

enum vt_mode {
    VT_UNDECIDED = 0,
    VT_ON = 1,
    VT_OFF = 2, /* disabled, not to be taken over, or an unknown libc: every function is libc's own */
};

extern _Atomic int vt_mode;

/* Decides the mode, once. Any thread, also before the library's constructor. Allocates nothing. */
int vt_decide(void);

/* Whether the library is at work in this process. When it is not, an interposed function calls vt_real() and
 * nothing else. The answer changes at most once, to no, when the first thread is made and the engine
 * cannot be. */
static inline bool vt_on(void)
{
    int mode = atomic_load_explicit(&vt_mode, memory_order_acquire);
    if (__builtin_expect(mode == VT_UNDECIDED, 0))
        mode = vt_decide();
    return mode == VT_ON;
}

#endif
