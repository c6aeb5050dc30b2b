/* Static probes for tracers (bpftrace, SystemTap, perf): provider "vthread". One is an instruction that does nothing and a note
 * in the file, .note.stapsdt, which says where it is and where its arguments lie. Compiled in where <sys/sdt.h> is there.
 *
 *     create   (id, start routine)          a virtual thread has been made
 *     mount    (id, number of the carrier)  a carrier is about to go on with it
 *     unmount  (id)                         it leaves its carrier: parks, yields, or has ended
 *     park     (id, what it waits for: enum vt_wait_kind, on which: see vt_thread.wait_on)
 *     unpark   (id, id of who wakes it)     the wait of a parked thread is over
 *     handoff  (id, cause: a text)          its carrier goes on with it without the place
 *     exit     (id)                         its destructors have run
 *
 * Arguments are plain loads: they are computed whether or not anybody listens. */
#ifndef VT_PROBE_H
#define VT_PROBE_H

#ifdef VT_HAVE_SDT
#include <sys/sdt.h>
#define VT_PROBE1(name, a)       DTRACE_PROBE1(vthread, name, a)
#define VT_PROBE2(name, a, b)    DTRACE_PROBE2(vthread, name, a, b)
#define VT_PROBE3(name, a, b, c) DTRACE_PROBE3(vthread, name, a, b, c)
#else
#define VT_PROBE1(name, a)       ((void)(a))
#define VT_PROBE2(name, a, b)    ((void)(a), (void)(b))
#define VT_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

#endif
