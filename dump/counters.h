/* vthread stats and vthread top: the engine's counters, read from a process that runs on meanwhile. */
#ifndef DUMP_COUNTERS_H
#define DUMP_COUNTERS_H

/* With argv[0] "stats" or "top". The exit status. */
int counters_main(int argc, char **argv);

#endif
