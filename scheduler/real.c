#include "real.h"

#include <dlfcn.h>

void *vt_real_find(const char *name, _Atomic(void *) *cache)
{
    void *fn = dlsym(RTLD_NEXT, name);
    atomic_store_explicit(cache, fn, memory_order_relaxed);
    return fn;
}
