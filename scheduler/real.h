/* libc's own functions, whoever else defines their names: those that come next after this library in the order of look-up. */
#ifndef VT_REAL_H
#define VT_REAL_H

#include <stdatomic.h>
#include <stddef.h>

/* The next definition of name, kept in *cache. Any thread. NULL if there is none. Uses dlsym,
 * which may allocate the first time: a program's malloc may call interposed functions meanwhile, which must
 * not need their own real function for what they do then. */
void *vt_real_find(const char *name, _Atomic(void *) *cache);

/* vt_real(read)(fd, buf, n): calls libc's read. */
#define vt_real(fn)                                                                                          \
    __extension__({                                                                                          \
        static _Atomic(void *) cache_;                                                                       \
        void *fn_ = atomic_load_explicit(&cache_, memory_order_relaxed);                                     \
        (__typeof__(&fn))(fn_ ? fn_ : vt_real_find(#fn, &cache_));                                           \
    })

#endif
