#include "sync/once.h"

#include "preload.h"
#include "real.h"

VT_EXPORT int pthread_once(pthread_once_t *once, void (*init)(void))
{
    if (vt_likely(vt_once_done(once)))
        return 0;
    return vt_on() ? vt_once(once, init) : vt_real(pthread_once)(once, init);
}

/* Programs built for glibc before 2.34 may import it. */
VT_EXPORT int __pthread_once(pthread_once_t *once, void (*init)(void))
    __attribute__((alias("pthread_once"), copy(pthread_once)));
