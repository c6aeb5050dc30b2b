/* The unwinder of the program, for frames of the library: see unwind.S. */
#include "real.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unwind.h>

typedef _Unwind_Reason_Code personality(int, _Unwind_Action, _Unwind_Exception_Class, struct _Unwind_Exception *,
                                        struct _Unwind_Context *);

static void *in_libgcc(const char *name)
{
    void *libgcc = vt_real(dlopen)("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
    void *fn = libgcc ? vt_dlsym(libgcc, name) : NULL;
    if (!fn)
        abort(); /* as libc does: something unwinds without an unwinder */
    return fn;
}

void *vt_unwind_resume(void);

void *vt_unwind_resume(void)
{
    static _Atomic(void *) fn;
    void *resume = atomic_load_explicit(&fn, memory_order_relaxed);
    if (!resume)
        atomic_store_explicit(&fn, resume = in_libgcc("_Unwind_Resume"), memory_order_relaxed);
    return resume;
}

__attribute__((visibility("hidden"))) personality __gcc_personality_v0;

_Unwind_Reason_Code __gcc_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
                                         struct _Unwind_Exception *exception, struct _Unwind_Context *context)
{
    static _Atomic(void *) fn;
    void *real = atomic_load_explicit(&fn, memory_order_relaxed);
    if (!real)
        atomic_store_explicit(&fn, real = in_libgcc("__gcc_personality_v0"), memory_order_relaxed);
    return ((personality *)real)(version, actions, class, exception, context);
}
