/* How the engine is read from outside, by vthread-dump and by gdb, of a running process and of a core file.
 *
 * A note of the library (owner "vthread", type 1, in the segment PT_NOTE, which stripping leaves) holds the
 * distance from itself to vt_debug, a table of names and numbers: addresses of the engine's variables,
 * offsets in its structures, and what values mean. So who reads it needs neither debug information nor the
 * same version of the headers, and an entry that it does not find is something that this library does not
 * have. Entries may be added and may move; one whose meaning changes gets another name. VT_DEBUG_VERSION
 * changes only if the table itself looks otherwise.
 *
 * Who reads a process that runs sees what relaxed loads would. What holds with all its kernel threads stopped
 * is said in debug.c. */
#ifndef VT_DEBUG_H
#define VT_DEBUG_H

#include <stdint.h>

#define VT_DEBUG_NOTE    "vthread" /* owner of the note; its eight bytes are the distance */
#define VT_DEBUG_MAGIC   "VTDEBUG"
#define VT_DEBUG_VERSION 1

struct vt_debug_entry {
    char name[24]; /* "thread.tid": an offset in struct vt_thread; "places": an address; "" ends the table */
    uint64_t value;
};

struct vt_debug {
    char magic[8];
    uint32_t version;
    uint32_t entry_size;
    struct vt_debug_entry entry[];
};

#endif
