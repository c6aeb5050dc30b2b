/* Which glibc the library is built for: decided by that which it is built on. */
#ifndef VT_GLIBC_H
#define VT_GLIBC_H

#include <features.h>

/* One whose threads are a library of their own, libpthread. The library needs that then, and serves no other glibc. */
#define VT_OLD_GLIBC (!__GLIBC_PREREQ(2, 34))

/* It runs with 2.VT_GLIBC_FIRST to 2.VT_GLIBC_LAST. */
#if VT_OLD_GLIBC
#define VT_GLIBC_FIRST 31u
#define VT_GLIBC_LAST  31u
#define VT_GLIBC_TEXT  "2.31"
#else
#define VT_GLIBC_FIRST 34u
#define VT_GLIBC_LAST  ~0u
#define VT_GLIBC_TEXT  "2.34 and later"
#endif

#endif
