/* The settings that a user makes by environment variables, read once. */
#ifndef VT_CONFIG_H
#define VT_CONFIG_H

#include "ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vt_config {
    unsigned carriers;        /* VTHREAD_CARRIERS: places; 1..1024 */
    unsigned max_carriers;    /* VTHREAD_MAX_CARRIERS: kernel threads that run virtual ones; carriers..65536 */
    size_t stack_size;        /* VTHREAD_STACK_SIZE: for threads that ask for none; 0: as libc */
    bool disable;             /* VTHREAD_DISABLE */
    bool stats;               /* VTHREAD_STATS */
    const char *stats_file;   /* a path, or NULL: stderr */
    const char *only;         /* VTHREAD_ONLY: executables to take over, or NULL: all */
    enum vt_io_backend io;    /* VTHREAD_IO */
    bool deadlock;            /* VTHREAD_DEADLOCK=report */
    int dump_signal;          /* VTHREAD_DUMP_SIGNAL; 0: none */
    const char *dump_file;    /* VTHREAD_DUMP_FILE, or NULL: stderr */
    const char *dump_tool;    /* VTHREAD_DUMP_TOOL, or NULL: beside the library */
    const char *dump_options; /* VTHREAD_DUMP_OPTIONS, or NULL */
    uint64_t trace_pinned;    /* VTHREAD_TRACE_PINNED: ns that a hand-off may last untold; 0: all */
};

extern struct vt_config vt_config;

/* Reads the environment; a value that is out of range gets one line on stderr and the default.
 * Async-signal-safe calls only: runs before the program's constructors. */
void vt_config_read(void);

/* One line on stderr: "libvthread: " and the text, printf-like with %s %u %d %lu. No allocation. */
void vt_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
