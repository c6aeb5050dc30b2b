/* libc's own functions, whoever else defines their names: those that come next after this library in the order of look-up. */
#ifndef VT_REAL_H
#define VT_REAL_H

#include <stdatomic.h>
#include <stddef.h>

struct vt_real_entry {
    const char *name;
    _Atomic(void *) function; /* NULL: not looked for yet, or there is none */
} __attribute__((aligned(16)));

/* The next definition of the name, kept in the entry. Any thread. NULL if there is none. Uses dlsym,
 * which may allocate the first time: a program's malloc may call interposed functions meanwhile, which must
 * not need their own real function for what they do then. */
void *vt_real_find(struct vt_real_entry *entry);

/* Looks for all of them, so that none takes the loader's lock later: when there are several threads a handler, or a child
 * without libc's fork, may find it taken for ever. */
void vt_real_find_all(void);

/* libc's dlsym, wherever it is. Before vt_real_ready, which is called once it is decided whether the library is at work, only
 * RTLD_NEXT and RTLD_DEFAULT are sure to be. */
void vt_real_ready(void);
void *vt_dlsym(void *handle, const char *name);

/* vt_real(read)(fd, buf, n): calls libc's read. */
#define vt_real(fn)                                                                                                            \
    __extension__({                                                                                                            \
        static struct vt_real_entry entry_ __attribute__((section("vt_real"), used)) = {#fn, NULL};                            \
        void *fn_ = atomic_load_explicit(&entry_.function, memory_order_relaxed);                                              \
        (__typeof__(&fn))(fn_ ? fn_ : vt_real_find(&entry_));                                                                  \
    })

#endif
