/* A process or a core file: its memory, its mappings, its kernel threads. Everything here is of one target,
 * which the tool opens once. Functions that fail for good end the tool with a line (die). */
#ifndef DUMP_TARGET_H
#define DUMP_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* DWARF's numbers of the registers of x86-64 (psABI, figure 3.36). */
enum { REG_NR_RBX = 3, REG_NR_RBP = 6, REG_NR_RSP = 7, REG_NR_R12 = 12, REG_NR_RIP = 16, REGISTERS = 17 };

struct registers {
    uint64_t r[REGISTERS];
};

struct mapping {
    uint64_t start, end, offset;
    const char *path; /* "" for none */
    bool executable;
};

/* An ELF image in memory. */
struct module {
    uint64_t lo, hi;    /* its mappings are within */
    uint64_t bias;      /* added to addresses in the file */
    uint64_t fde_table; /* the search table of .eh_frame_hdr, 0: none */
    uint64_t fde_count;
    uint64_t eh_frame_hdr;
    const char *path;
};

struct task {
    pid_t tid;
    char comm[17];
    char state;   /* as /proc has it */
    bool stopped; /* and with registers */
    int signal;   /* that it was about to get */
    struct registers regs;
};

struct span { /* of the target's memory, and where to put it */
    uint64_t addr;
    size_t size;
    void *to;
    bool ok;
};

extern struct target {
    bool live;
    pid_t pid;
    pid_t reader; /* a living kernel thread of it: when main has ended, the process's own number has no memory
                     and no files */
    const char *core;
    char exe[4096];
    struct mapping *mappings; /* ascending */
    size_t nmappings;
    struct module *modules; /* ascending */
    size_t nmodules;
    struct task *tasks;
    size_t ntasks;
    double stopped_ms; /* how long its kernel threads were stopped */
    uint64_t now;      /* its CLOCK_MONOTONIC at the stop; 0: not known */
    size_t unstopped;  /* kernel threads that did not stop in time */
} target;

/* tolerant: another process is yet to give us the right to trace it; wait for that a little. */
void target_open(pid_t pid, bool tolerant);
void target_open_core(const char *core, const char *exe);

/* Between the two all kernel threads stand still, and `tasks` has their registers. */
void target_stop(void);
void target_resume(void);

/* Memory as it is now. False if any of it cannot be read. */
bool target_read(uint64_t addr, void *to, size_t size);

/* Many pieces at once; `ok` says of each whether all of it was read. */
void target_read_spans(struct span *spans, size_t n);

/* Memory that does not change (code and what belongs to it), through a cache. */
bool target_read_code(uint64_t addr, void *to, size_t size);

/* A text of up to size - 1 bytes; "" if there is none. */
void target_read_text(uint64_t addr, char *to, size_t size);

/* The memory of a core file, where it lies; NULL if it is not in one piece there. */
const void *target_core_at(uint64_t addr, size_t size);

/* The image that addr is in, or NULL. Looks at the mappings anew, now and then, if it is in none. */
const struct module *target_module(uint64_t addr);
const struct mapping *target_mapping(uint64_t addr);

/* The distance note of the library leads to this address in the target; 0: no image has it. */
uint64_t target_find_table(void);

_Noreturn void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *xalloc(size_t size); /* zeroed */
void *xgrow(void *p, size_t *capacity, size_t need, size_t size);
uint64_t monotonic(void);

#endif
