/*
 * Names that are for debuggers alone: where libc's threads are a library of their own (glibc before 2.34), what describes them
 * (the _thread_db_ descriptors, the keys, the lists of stacks) is in its table of local symbols, which distributions leave in
 * for gdb, and not among what dlsym finds.
 */
#ifndef VT_SYMTAB_H
#define VT_SYMTAB_H

#include "glibc.h"

struct vt_symtab {
    const char *file; /* mapped, or NULL */
    long size;
    const char *base; /* of the object in memory */
    const void *symbols;
    unsigned long n;
    const char *names;
    unsigned long names_size;
};

#if VT_OLD_GLIBC
/* Opens libpthread's table. If there is none, or the file is not that which is in memory, nothing is found. */
void vt_symtab_open(struct vt_symtab *t);

/* The address of a variable or function of that name; NULL if there is none. */
void *vt_symtab_find(const struct vt_symtab *t, const char *name);

void vt_symtab_close(struct vt_symtab *t);
#else
static inline void vt_symtab_open(struct vt_symtab *t)
{
    (void)t;
}

static inline void *vt_symtab_find(const struct vt_symtab *t, const char *name)
{
    (void)t;
    (void)name;
    return (void *)0;
}

static inline void vt_symtab_close(struct vt_symtab *t)
{
    (void)t;
}
#endif

#endif
