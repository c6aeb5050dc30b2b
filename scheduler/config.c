#include "config.h"

#include "sys.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VT_CARRIERS_LIMIT     1024
#define VT_MAX_CARRIERS_LIMIT 65536
#define VT_MAX_CARRIERS       16384
#define VT_PINNED_LIMIT       60000
#define VT_PINNED_MS          20
#define VT_STACK_MIN          ((size_t)16 << 10)
#define VT_STACK_MAX          ((size_t)1 << 30)

struct vt_config vt_config;

void vt_say(const char *format, ...)
{
    char text[512] = "libvthread: ";
    size_t n = strlen(text);
    va_list ap;
    va_start(ap, format);
    int more = vsnprintf(text + n, sizeof text - n - 1, format, ap);
    va_end(ap);
    n += more < 0 ? 0 : (size_t)more < sizeof text - n - 2 ? (size_t)more : sizeof text - n - 2;
    text[n++] = '\n';
    vt_sys3(SYS_write, 2, (long)text, (long)n);
}

/* --- how many processors -------------------------------------------------------------------------------- */

static long read_file(const char *path, char *buf, size_t size)
{
    long fd = vt_sys4(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    long n = vt_sys3(SYS_read, fd, (long)buf, (long)size - 1);
    vt_sys1(SYS_close, fd);
    buf[n > 0 ? n : 0] = '\0';
    return n;
}

/* Processors' worth of time that the control group allows, rounded up; 0: no limit. Version 2 groups: cpu.max
 * has "QUOTA PERIOD" or "max PERIOD", in each group up to the root. */
static unsigned cgroup_quota(void)
{
    char line[512], path[600];
    unsigned least = 0;
    if (read_file("/proc/self/cgroup", line, sizeof line) <= 0 || strncmp(line, "0::", 3) != 0)
        return 0;
    char *group = line + 3;
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        char text[64];
        unsigned long quota, period;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        if (read_file(path, text, sizeof text) > 0 && sscanf(text, "%lu %lu", &quota, &period) == 2 && period > 0) {
            unsigned n = (unsigned)((quota + period - 1) / period);
            if (n && (!least || n < least))
                least = n;
        }
        char *slash = strrchr(group, '/');
        if (!slash || !*group)
            return least;
        *slash = '\0';
    }
}

static unsigned processors(void)
{
    unsigned long mask[8192 / (8 * sizeof(long))] = {0}; /* the kernel refuses a mask that has not room for all it knows */
    long size = vt_sys3(SYS_sched_getaffinity, 0, sizeof mask, (long)mask);
    unsigned n = 0, quota = cgroup_quota();
    for (long i = 0; i < size / (long)sizeof *mask; i++)
        n += (unsigned)__builtin_popcountl(mask[i]);
    if (n == 0)
        n = 1;
    if (quota && quota < n)
        n = quota;
    return n < VT_CARRIERS_LIMIT ? n : VT_CARRIERS_LIMIT;
}

/* --- values --------------------------------------------------------------------------------------------- */

/* A number with an optional suffix K, M or G; false if text is anything else. */
static bool parse_size(const char *text, bool suffix, unsigned long *out)
{
    unsigned long n = 0;
    const char *s = text;
    for (; *s >= '0' && *s <= '9'; s++) {
        if (n > (ULONG_MAX - 9) / 10)
            return false;
        n = n * 10 + (unsigned long)(*s - '0');
    }
    if (s == text)
        return false;
    unsigned shift = 0;
    if (suffix && *s)
        shift = *s == 'K' || *s == 'k' ? 10 : *s == 'M' || *s == 'm' ? 20 : *s == 'G' || *s == 'g' ? 30 : 0;
    if (shift) {
        s++;
        if (n > ULONG_MAX >> shift)
            return false;
        n <<= shift;
    }
    *out = n;
    return *s == '\0';
}

static unsigned long number(const char *name, bool suffix, unsigned long low, unsigned long high, unsigned long otherwise,
                            const char *otherwise_text)
{
    const char *text = getenv(name);
    unsigned long n;
    if (!text || !*text)
        return otherwise;
    if (parse_size(text, suffix, &n) && n >= low && n <= high)
        return n;
    if (otherwise_text)
        vt_say("%s=%s: not a number from %lu to %lu; using %s", name, text, low, high, otherwise_text);
    else
        vt_say("%s=%s: not a number from %lu to %lu; using %lu", name, text, low, high, otherwise);
    return otherwise;
}

static bool flag(const char *name)
{
    return number(name, false, 0, 1, 0, NULL) != 0;
}

static const char *text_of(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* A signal by its number or its name, with or without SIG, or RTMIN+n; 0 if it is none that can be caught. */
static int signal_of(const char *text)
{
    static const char names[32][8] = {"",       "HUP",  "INT",    "QUIT", "ILL",   "TRAP", "ABRT", "BUS",
                                      "FPE",    "KILL", "USR1",   "SEGV", "USR2",  "PIPE", "ALRM", "TERM",
                                      "STKFLT", "CHLD", "CONT",   "STOP", "TSTP",  "TTIN", "TTOU", "URG",
                                      "XCPU",   "XFSZ", "VTALRM", "PROF", "WINCH", "POLL", "PWR",  "SYS"};
    unsigned long n = 0;
    int sig = 0;
    if (strncmp(text, "SIG", 3) == 0)
        text += 3;
    if (strncmp(text, "RTMIN+", 6) == 0 && parse_size(text + 6, false, &n) && n <= 64)
        sig = SIGRTMIN + (int)n;
    else if (parse_size(text, false, &n) && n <= 64)
        sig = (int)n;
    for (int i = 1; i < 32 && !sig; i++) {
        if (strcmp(names[i], text) == 0)
            sig = i;
    }
    return sig > 64 || sig == SIGKILL || sig == SIGSTOP || sig == 32 || sig == 33 ? 0 : sig;
}

void vt_config_read(void)
{
    struct vt_config *c = &vt_config;
    const char *text;
    c->disable = flag("VTHREAD_DISABLE");
    c->only = getenv("VTHREAD_ONLY");
    if (c->only && !*c->only)
        c->only = NULL;
    if (c->disable)
        return;
    c->carriers = (unsigned)number("VTHREAD_CARRIERS", false, 1, VT_CARRIERS_LIMIT, processors(), NULL);
    c->max_carriers = (unsigned)number("VTHREAD_MAX_CARRIERS", false, 1, VT_MAX_CARRIERS_LIMIT, VT_MAX_CARRIERS, NULL);
    if (c->max_carriers < c->carriers) {
        vt_say("VTHREAD_MAX_CARRIERS=%u: fewer than the %u carriers; using %u", c->max_carriers, c->carriers, c->carriers);
        c->max_carriers = c->carriers;
    }
    c->stack_size = number("VTHREAD_STACK_SIZE", true, VT_STACK_MIN, VT_STACK_MAX, 0, "libc's default");
    c->trace_pinned = number("VTHREAD_TRACE_PINNED", false, 0, VT_PINNED_LIMIT, 0, NULL);
    c->trace_pinned = (c->trace_pinned == 1 ? VT_PINNED_MS : c->trace_pinned) * 1000000;
    text = getenv("VTHREAD_STATS");
    if (text && *text && strcmp(text, "0") != 0) {
        c->stats = true;
        if (strcmp(text, "1") != 0)
            c->stats_file = text;
    }
    c->dump_file = text_of("VTHREAD_DUMP_FILE");
    c->dump_tool = text_of("VTHREAD_DUMP_TOOL");
    c->dump_options = text_of("VTHREAD_DUMP_OPTIONS");
    text = text_of("VTHREAD_DUMP_SIGNAL");
    if (text && !(c->dump_signal = signal_of(text)))
        vt_say("VTHREAD_DUMP_SIGNAL=%s: not a signal that can be caught; no thread dumps", text);
    text = text_of("VTHREAD_DEADLOCK");
    if (text && strcmp(text, "report") == 0)
        c->deadlock = true;
    else if (text && strcmp(text, "0") != 0)
        vt_say("VTHREAD_DEADLOCK=%s: not report or 0; nothing is reported", text);
    text = getenv("VTHREAD_IO");
    c->io = VT_IO_AUTO;
    if (text && *text) {
        if (strcmp(text, "io_uring") == 0)
            c->io = VT_IO_URING;
        else if (strcmp(text, "epoll") == 0)
            c->io = VT_IO_EPOLL;
        else if (strcmp(text, "auto") != 0)
            vt_say("VTHREAD_IO=%s: not auto, io_uring or epoll; using auto", text);
    }
}
