/* Where this libc has the fields that the objects of this directory use: public in its static initialisers and headers, but not
 * the same in all versions, and the library is built with those of one. */
#ifndef VT_LAYOUT_H
#define VT_LAYOUT_H

#include <stdbool.h>

/* Has libc make one object of each kind, and looks whether its fields are where they are thought to be. Sets what cond.h needs.
 * False: this libc's objects are not to be touched. Before the first use of any object; allocates nothing. */
bool vt_layout_check(void);

#endif
