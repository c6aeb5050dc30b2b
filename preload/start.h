/* The engine below the interposed functions. */
#ifndef VT_START_H
#define VT_START_H

#include <stdbool.h>

/* Starts the engine at the first call; false if it cannot run here, said once on stderr. Threads are libc's
 * own then. Any thread, not in a section. */
bool vt_engine(void);

#endif
