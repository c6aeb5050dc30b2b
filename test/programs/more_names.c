/*
 * Old, internal and checked names of functions, that compilers, old programs and other languages call, and
 * functions that hardly anything calls: each once in a thread, with its result right. What a libc does not
 * have (any more) is left out.
 */
#include "check.h"
#include <arpa/nameser.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <shadow.h>
#include <signal.h>
#include <sys/fanotify.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <wchar.h>

/* By the very name, whatever the headers make of it; OPTIONAL: null where the libc has none. */
#define NAMED(type, name, ...)    type n_##name(__VA_ARGS__) __asm__(#name)
#define OPTIONAL(type, name, ...) type n_##name(__VA_ARGS__) __asm__(#name) __attribute__((weak))

static char directory[] = "/tmp/more_names-XXXXXX", path[64];

/* The error of a call that is allowed on some machines and not on others. */
static void print_error(const char *what, long long result)
{
    int error = errno;

    printf("%s: %s\n", what, result == -1 ? error_name(error) : "done");
}

/* --- locks ------------------------------------------------------------------------------------------ */

OPTIONAL(int, __pthread_mutex_lock, pthread_mutex_t *);
OPTIONAL(int, __pthread_mutex_trylock, pthread_mutex_t *);
OPTIONAL(int, __pthread_mutex_unlock, pthread_mutex_t *);
OPTIONAL(int, pthread_mutex_consistent_np, pthread_mutex_t *);
OPTIONAL(int, __pthread_rwlock_rdlock, pthread_rwlock_t *);
OPTIONAL(int, __pthread_rwlock_wrlock, pthread_rwlock_t *);
OPTIONAL(int, __pthread_rwlock_tryrdlock, pthread_rwlock_t *);
OPTIONAL(int, __pthread_rwlock_trywrlock, pthread_rwlock_t *);
OPTIONAL(int, __pthread_rwlock_unlock, pthread_rwlock_t *);
OPTIONAL(int, __pthread_once, pthread_once_t *, void (*)(void));
OPTIONAL(int, pthread_yield, void);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, robust;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int ran;

static void run_once(void)
{
    ran++;
}

static void *find_taken(void *arg)
{
    if (n___pthread_mutex_trylock)
        EXPECT_ERROR(n___pthread_mutex_trylock(&mutex), EBUSY);
    if (n___pthread_rwlock_tryrdlock)
        EXPECT_ERROR(n___pthread_rwlock_tryrdlock(&rwlock), EBUSY);
    if (n___pthread_rwlock_trywrlock)
        EXPECT_ERROR(n___pthread_rwlock_trywrlock(&rwlock), EBUSY);
    return arg;
}

static void *leave_locked(void *arg)
{
    ZERO(pthread_mutex_lock(&robust));
    return arg;
}

static void *locks(void *arg)
{
    pthread_mutexattr_t attr;
    pthread_mutex_t ceiling;
    int old = -1;

    ZERO(n___pthread_mutex_lock ? n___pthread_mutex_lock(&mutex) : pthread_mutex_lock(&mutex));
    ZERO(n___pthread_rwlock_wrlock ? n___pthread_rwlock_wrlock(&rwlock) : pthread_rwlock_wrlock(&rwlock));
    join(start(find_taken, NULL));
    ZERO(n___pthread_mutex_unlock ? n___pthread_mutex_unlock(&mutex) : pthread_mutex_unlock(&mutex));
    ZERO(n___pthread_rwlock_unlock ? n___pthread_rwlock_unlock(&rwlock) : pthread_rwlock_unlock(&rwlock));
    ZERO(n___pthread_rwlock_rdlock ? n___pthread_rwlock_rdlock(&rwlock) : pthread_rwlock_rdlock(&rwlock));
    if (n___pthread_rwlock_tryrdlock) {
        ZERO(n___pthread_rwlock_tryrdlock(&rwlock));
        ZERO(pthread_rwlock_unlock(&rwlock));
    }
    ZERO(pthread_rwlock_unlock(&rwlock));
    ZERO(pthread_mutex_trylock(&mutex));
    ZERO(pthread_mutex_unlock(&mutex));
    if (n___pthread_once) {
        ZERO(n___pthread_once(&once, run_once));
        ZERO(pthread_once(&once, run_once));
        EXPECT(ran, 1);
    }
    if (n_pthread_yield)
        ZERO(n_pthread_yield());

    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
    ZERO(pthread_mutex_init(&robust, &attr));
    join(start(leave_locked, NULL));
    EXPECT_ERROR(pthread_mutex_lock(&robust), EOWNERDEAD);
    ZERO(n_pthread_mutex_consistent_np ? n_pthread_mutex_consistent_np(&robust) : pthread_mutex_consistent(&robust));
    ZERO(pthread_mutex_unlock(&robust));
    ZERO(pthread_mutex_lock(&robust));
    ZERO(pthread_mutex_unlock(&robust));
    ZERO(pthread_mutex_destroy(&robust));

    EXPECT_ERROR(pthread_mutex_setprioceiling(&mutex, 1, &old), EINVAL); /* it has none */
    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_PROTECT));
    ZERO(pthread_mutexattr_setprioceiling(&attr, 2));
    ZERO(pthread_mutex_init(&ceiling, &attr));
    int error = pthread_mutex_setprioceiling(&ceiling, 3, &old);
    printf("ceiling: %s, was %d\n", error_name(error), old);
    return arg;
}

/* --- descriptors ------------------------------------------------------------------------------------ */

OPTIONAL(ssize_t, __recv, int, void *, size_t, int);
OPTIONAL(int, __sendmmsg, int, struct mmsghdr *, unsigned, int);
OPTIONAL(int, __socket, int, int, int);
NAMED(int, fstat64, int, struct stat64 *);
NAMED(int, __fxstat, int, int, struct stat *);
NAMED(int, __fxstat64, int, int, struct stat64 *);
NAMED(int, readdir_r, DIR *, struct dirent *, struct dirent **);
NAMED(int, readdir64_r, DIR *, struct dirent64 *, struct dirent64 **);

static void *descriptors(void *arg)
{
    char text[8] = "", entries[1024];
    int pair[2], fd, count = 0;
    struct stat st;
    struct stat64 st64;

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    struct iovec v = {(char *)"text", 4};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
    EXPECT(n___sendmmsg ? n___sendmmsg(pair[0], &message, 1, 0) : sendmmsg(pair[0], &message, 1, 0), 1);
    EXPECT(message.msg_len, 4);
    EXPECT(n___recv ? n___recv(pair[1], text, sizeof text, 0) : recv(pair[1], text, sizeof text, 0), 4);
    EXPECT_STR(text, "text");
    SYS(close(pair[0])), SYS(close(pair[1]));
    if (n___socket) {
        fd = SYS(n___socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
        EXPECT_ERRNO(recv(fd, text, sizeof text, 0), EAGAIN);
        SYS(close(fd));
    }

    fd = SYS(open(path, O_RDONLY));
    ZERO(n_fstat64(fd, &st64));
    EXPECT(st64.st_size, 8);
    ZERO(n___fxstat(1, fd, &st));
    EXPECT(st.st_size, 8);
    memset(&st64, 0, sizeof st64);
    ZERO(n___fxstat64(1, fd, &st64));
    EXPECT(st64.st_size, 8);
    SYS(close(fd));
    EXPECT_ERRNO(n_fstat64(-1, &st64), EBADF);

    DIR *dir = opendir(directory);
    CHECK(dir != NULL);
    while (readdir64(dir))
        count++;
    EXPECT(count, 3); /* itself, its parent, the file */
    struct dirent one, *next;
    struct dirent64 one64, *next64;
    rewinddir(dir);
    for (count = 0; n_readdir_r(dir, &one, &next) == 0 && next; count++)
        ;
    EXPECT(count, 3);
    rewinddir(dir);
    for (count = 0; n_readdir64_r(dir, &one64, &next64) == 0 && next64; count++)
        ;
    EXPECT(count, 3);
    ZERO(closedir(dir));
    struct dirent64 **list;
    EXPECT(scandir64(directory, &list, NULL, alphasort64), 3);
    EXPECT_STR(list[2]->d_name, "file");
    for (int i = 0; i < 3; i++)
        free(list[i]);
    free(list);
    fd = SYS(open(directory, O_RDONLY | O_DIRECTORY));
    CHECK(getdents64(fd, entries, sizeof entries) > 0);
    EXPECT(getdents64(fd, entries, sizeof entries), 0);
    SYS(close(fd));

    struct rlimit64 limit, again;
    ZERO(getrlimit64(RLIMIT_CORE, &limit));
    ZERO(setrlimit64(RLIMIT_CORE, &limit));
    ZERO(prlimit64(0, RLIMIT_CORE, NULL, &again));
    CHECK(again.rlim_cur == limit.rlim_cur && again.rlim_max == limit.rlim_max);
    ZERO(getrlimit64(RLIMIT_NOFILE, &limit));
    ZERO(setrlimit64(RLIMIT_NOFILE, &limit));

    fd = fanotify_init(FAN_CLOEXEC, O_RDONLY);
    print_error("fanotify_init", fd);
    if (fd >= 0)
        SYS(close(fd));
    return arg;
}

/* --- kernel threads --------------------------------------------------------------------------------- */

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

OPTIONAL(int, sched_setattr, pid_t, struct attributes *, unsigned);
OPTIONAL(int, sched_getattr, pid_t, struct attributes *, unsigned, unsigned);
NAMED(int, capget, struct __user_cap_header_struct *, struct __user_cap_data_struct *);
NAMED(int, capset, struct __user_cap_header_struct *, const struct __user_cap_data_struct *);

static void *policies(void *arg)
{
    struct sched_param none = {.sched_priority = 0}, high = {.sched_priority = 1};
    struct attributes attr = {.size = sizeof attr};

    ZERO(sched_setscheduler(0, SCHED_BATCH, &none));
    EXPECT(sched_getscheduler(0), SCHED_BATCH);
    ZERO(sched_setparam(0, &none));
    EXPECT_ERRNO(sched_setparam(0, &high), EINVAL);
    if (n_sched_getattr) {
        ZERO(n_sched_getattr(0, &attr, sizeof attr, 0));
        EXPECT(attr.policy, SCHED_BATCH);
    }
    if (n_sched_setattr) {
        attr = (struct attributes){.size = sizeof attr, .policy = SCHED_OTHER};
        ZERO(n_sched_setattr(0, &attr, 0));
        EXPECT(sched_getscheduler(0), SCHED_OTHER);
    }
    return arg;
}

static void *rights(void *arg)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2], again[2];

    EXPECT(setfsuid((uid_t)-1), geteuid());
    EXPECT(setfsuid(geteuid()), geteuid());
    EXPECT(setfsgid((gid_t)-1), getegid());
    EXPECT(setfsgid(getegid()), getegid());
    int persona = SYS(personality(0xffffffff));
    EXPECT(personality((unsigned)persona), persona);
    ZERO(n_capget(&header, data));
    ZERO(n_capset(&header, data));
    ZERO(n_capget(&header, again));
    CHECK(memcmp(data, again, sizeof data) == 0);
    EXPECT_ERRNO(setns(-1, 0), EBADF);
    int fd = open("/proc/self/ns/uts", O_RDONLY);
    if (fd >= 0) {
        print_error("setns", setns(fd, 0));
        SYS(close(fd));
    }
    print_error("initgroups", initgroups("root", 0));
    return arg;
}

static void *clocks(void *arg)
{
    struct timespec t = {-1, -1};
    clockid_t mine;

    ZERO(clock_getres(CLOCK_MONOTONIC, &t));
    CHECK(t.tv_sec == 0 && t.tv_nsec > 0);
    ZERO(pthread_getcpuclockid(pthread_self(), &mine));
    t.tv_nsec = -1;
    ZERO(clock_getres(mine, &t));
    CHECK(t.tv_sec == 0 && t.tv_nsec > 0);
    EXPECT_ERRNO(clock_getres(77, &t), EINVAL);
    return arg;
}

/* --- streams ---------------------------------------------------------------------------------------- */

NAMED(char *, _IO_fgets, char *, int, FILE *);
NAMED(size_t, _IO_fread, void *, size_t, size_t, FILE *);
NAMED(int, __uflow, FILE *);
NAMED(int, __underflow, FILE *);
NAMED(char *, __fgets_unlocked_chk, char *, size_t, int, FILE *);
NAMED(size_t, __fread_unlocked_chk, void *, size_t, size_t, size_t, FILE *);
NAMED(char *, gets, char *); /* linkers warn of it and of the next */
NAMED(char *, __gets_chk, char *, size_t);
NAMED(wchar_t *, __fgetws_chk, wchar_t *, size_t, int, FILE *);
NAMED(wchar_t *, __fgetws_unlocked_chk, wchar_t *, size_t, int, FILE *);
NAMED(wint_t, __wuflow, FILE *);
NAMED(wint_t, __wunderflow, FILE *);
NAMED(int, _IO_fputs, const char *, FILE *);
NAMED(size_t, _IO_fwrite, const void *, size_t, size_t, FILE *);
NAMED(int, _IO_fprintf, FILE *, const char *, ...);
NAMED(int, _IO_vfprintf, FILE *, const char *, va_list);
NAMED(int, __overflow, FILE *, int);
NAMED(int, __printf_chk, int, const char *, ...);
NAMED(int, __fprintf_chk, FILE *, int, const char *, ...);
NAMED(int, __vprintf_chk, int, const char *, va_list);
NAMED(int, __vfprintf_chk, FILE *, int, const char *, va_list);
NAMED(int, wprintf, const wchar_t *, ...);
NAMED(int, vwprintf, const wchar_t *, va_list);
NAMED(wint_t, __woverflow, FILE *, wint_t);
NAMED(int, __wprintf_chk, int, const wchar_t *, ...);
NAMED(int, __fwprintf_chk, FILE *, int, const wchar_t *, ...);
NAMED(int, __vwprintf_chk, int, const wchar_t *, va_list);
NAMED(int, __vfwprintf_chk, FILE *, int, const wchar_t *, va_list);
NAMED(int, __dprintf_chk, int, int, const char *, ...);
NAMED(int, __vdprintf_chk, int, int, const char *, va_list);
NAMED(void, __syslog_chk, int, int, const char *, ...);
NAMED(void, __vsyslog_chk, int, int, const char *, va_list);

/* The scanning functions under the names for each C standard. */
#define SCANS(kind, prefix, type, wide)                                                                                        \
    kind(int, prefix##f##wide##scanf, FILE *, const type *, ...);                                                              \
    kind(int, prefix##wide##scanf, const type *, ...);                                                                         \
    kind(int, prefix##vf##wide##scanf, FILE *, const type *, va_list);                                                         \
    kind(int, prefix##v##wide##scanf, const type *, va_list)
SCANS(NAMED, , char, );
SCANS(NAMED, __isoc99_, char, );
SCANS(OPTIONAL, __isoc23_, char, );
SCANS(NAMED, __isoc99_, wchar_t, w);
SCANS(OPTIONAL, __isoc23_, wchar_t, w);

static FILE *written(const char *text)
{
    int fd = SYS(open(path, O_WRONLY | O_TRUNC));

    write_all(fd, text, strlen(text));
    SYS(close(fd));
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    return f;
}

static void expect_written(FILE *f, const char *text)
{
    char got[256] = "";

    ZERO(fclose(f));
    f = fopen(path, "r");
    CHECK(f != NULL);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    ZERO(fclose(f));
    EXPECT_STR(got, text);
}

static void *read_streams(void *arg)
{
    char text[16];
    wchar_t wide[16];
    FILE *f = written("abline1\nline2\nblock1block2line3\nline4\n"), *old = stdin;

    EXPECT(n___underflow(f), 'a');
    EXPECT(n___uflow(f), 'a');
    EXPECT(n___uflow(f), 'b');
    EXPECT_STR(n__IO_fgets(text, sizeof text, f), "line1\n");
    EXPECT_STR(n___fgets_unlocked_chk(text, sizeof text, sizeof text, f), "line2\n");
    text[6] = '\0';
    EXPECT(n__IO_fread(text, 2, 3, f), 3);
    EXPECT_STR(text, "block1");
    EXPECT(n___fread_unlocked_chk(text, sizeof text, 2, 3, f), 3);
    EXPECT_STR(text, "block2");
    stdin = f;
    EXPECT_STR(n_gets(text), "line3");
    EXPECT_STR(n___gets_chk(text, sizeof text), "line4");
    CHECK(n___gets_chk(text, sizeof text) == NULL);
    ZERO(fclose(f));

    f = written("abcdline1\nline2\n");
    CHECK(fwide(f, 1) > 0);
    stdin = f;
    EXPECT(n___wunderflow(f), L'a');
    EXPECT(n___wuflow(f), L'a');
    EXPECT(getwchar(), L'b');
    EXPECT(getwchar_unlocked(), L'c');
    EXPECT(getwchar(), L'd');
    CHECK(n___fgetws_chk(wide, 16, 16, f) == wide && wcscmp(wide, L"line1\n") == 0);
    CHECK(n___fgetws_unlocked_chk(wide, 16, 16, f) == wide && wcscmp(wide, L"line2\n") == 0);
    EXPECT(getwchar(), WEOF);
    stdin = old;
    ZERO(fclose(f));
    return arg;
}

#define VARIADIC_SCAN(name, type)                                                                                              \
    static int name(int (*scan)(FILE *, const type *, va_list), int (*scan_stdin)(const type *, va_list), FILE *f,             \
                    const type *format, ...)                                                                                   \
    {                                                                                                                          \
        va_list list;                                                                                                          \
                                                                                                                               \
        va_start(list, format);                                                                                                \
        int n = scan ? scan(f, format, list) : scan_stdin(format, list);                                                       \
        va_end(list);                                                                                                          \
        return n;                                                                                                              \
    }
VARIADIC_SCAN(scan_list, char)
VARIADIC_SCAN(scan_wide_list, wchar_t)

#define SCAN_ALL(prefix, wide, list, format)                                                                                   \
    do {                                                                                                                       \
        int n_ = 0;                                                                                                            \
        stdin = written("11 22 33 44");                                                                                        \
        EXPECT(n_##prefix##f##wide##scanf(stdin, format, &n_), 1);                                                             \
        EXPECT(n_, 11);                                                                                                        \
        EXPECT(n_##prefix##wide##scanf(format, &n_), 1);                                                                       \
        EXPECT(n_, 22);                                                                                                        \
        EXPECT(list(n_##prefix##vf##wide##scanf, NULL, stdin, format, &n_), 1);                                                \
        EXPECT(n_, 33);                                                                                                        \
        EXPECT(list(NULL, n_##prefix##v##wide##scanf, NULL, format, &n_), 1);                                                  \
        EXPECT(n_, 44);                                                                                                        \
        ZERO(fclose(stdin));                                                                                                   \
    } while (0)

static void *scan_streams(void *arg)
{
    FILE *old = stdin;
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

    SCAN_ALL(, , scan_list, "%d");
    SCAN_ALL(__isoc99_, , scan_list, "%d");
    SCAN_ALL(__isoc99_, w, scan_wide_list, L"%d");
    CHECK(libc != NULL);
    if (dlsym(libc, "__isoc23_fscanf")) {
        SCAN_ALL(__isoc23_, , scan_list, "%d");
        SCAN_ALL(__isoc23_, w, scan_wide_list, L"%d");
    }
    stdin = old;
    return arg;
}

static void print_lists(FILE *f, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    EXPECT(n__IO_vfprintf(f, format, list), 2);
    va_end(list);
    va_start(list, format);
    EXPECT(n___vprintf_chk(1, format, list), 2);
    va_end(list);
    va_start(list, format);
    EXPECT(n___vfprintf_chk(f, 1, format, list), 2);
    va_end(list);
    ZERO(fflush(f));
    va_start(list, format);
    EXPECT(n___vdprintf_chk(fileno(f), 1, format, list), 2);
    va_end(list);
    va_start(list, format);
    n___vsyslog_chk(LOG_DEBUG, 1, format, list);
    va_end(list);
}

static void print_wide_lists(FILE *f, const wchar_t *format, ...)
{
    va_list list;

    va_start(list, format);
    EXPECT(n_vwprintf(format, list), 2);
    va_end(list);
    va_start(list, format);
    EXPECT(n___vwprintf_chk(1, format, list), 2);
    va_end(list);
    va_start(list, format);
    EXPECT(n___vfwprintf_chk(f, 1, format, list), 2);
    va_end(list);
}

static void *write_streams(void *arg)
{
    FILE *f = fopen(path, "w"), *old = stdout;

    CHECK(f != NULL);
    stdout = f;
    EXPECT(n___overflow(f, 'a'), 'a');
    CHECK(n__IO_fputs("b ", f) >= 0);
    EXPECT(n__IO_fwrite("cd ef ", 3, 2, f), 2);
    EXPECT(n__IO_fprintf(f, "%d ", 1), 2);
    EXPECT(n___printf_chk(1, "%d ", 2), 2);
    EXPECT(n___fprintf_chk(f, 1, "%d ", 3), 2);
    print_lists(f, "%d ", 4);
    EXPECT(n___dprintf_chk(fileno(f), 1, "%d\n", 5), 2);
    n___syslog_chk(LOG_DEBUG, 1, "%s", "a test");
    stdout = old;
    expect_written(f, "ab cd ef 1 2 3 4 4 4 4 5\n");

    f = fopen(path, "w");
    CHECK(f != NULL && fwide(f, 1) > 0);
    stdout = f;
    EXPECT(n___woverflow(f, L'a'), L'a');
    EXPECT(putwchar(L'b'), L'b');
    EXPECT(putwchar_unlocked(L' '), L' ');
    EXPECT(n_wprintf(L"%d ", 1), 2);
    EXPECT(n___wprintf_chk(1, L"%d ", 2), 2);
    EXPECT(n___fwprintf_chk(f, 1, L"%d ", 3), 2);
    print_wide_lists(f, L"%d ", 4);
    stdout = old;
    expect_written(f, "ab 1 2 3 4 4 4 ");
    return arg;
}

/* --- signals, children, names ----------------------------------------------------------------------- */

typedef void handler(int);

NAMED(handler *, bsd_signal, int, handler *);
NAMED(handler *, ssignal, int, handler *);
NAMED(handler *, sysv_signal, int, handler *);
NAMED(handler *, __sysv_signal, int, handler *);
NAMED(int, siginterrupt, int, int);

static int handled;

static void on_signal(int signal)
{
    handled += signal == SIGUSR1;
}

static void *signals(void *arg)
{
    struct sigaction act;

    CHECK(n_bsd_signal(SIGUSR1, on_signal) == SIG_DFL);
    ZERO(raise(SIGUSR1));
    ZERO(raise(SIGUSR1));
    EXPECT(handled, 2);
    CHECK(n_ssignal(SIGUSR1, SIG_IGN) == on_signal);
    ZERO(raise(SIGUSR1));
    CHECK(n_ssignal(SIGUSR1, on_signal) == SIG_IGN);
    ZERO(raise(SIGUSR1));
    EXPECT(handled, 3);
    for (int i = 0; i < 2; i++) { /* each for one signal */
        CHECK((i ? n_sysv_signal : n___sysv_signal)(SIGUSR1, on_signal) == (i ? SIG_DFL : on_signal));
        ZERO(raise(SIGUSR1));
        EXPECT(handled, 4 + i);
        ZERO(sigaction(SIGUSR1, NULL, &act));
        CHECK(act.sa_handler == SIG_DFL);
    }
    CHECK(signal(SIGUSR1, on_signal) == SIG_DFL);
    ZERO(n_siginterrupt(SIGUSR1, 1));
    ZERO(sigaction(SIGUSR1, NULL, &act));
    EXPECT(act.sa_flags & SA_RESTART, 0);
    ZERO(n_siginterrupt(SIGUSR1, 0));
    ZERO(sigaction(SIGUSR1, NULL, &act));
    EXPECT(act.sa_flags & SA_RESTART, SA_RESTART);
    ZERO(raise(SIGUSR1));
    EXPECT(handled, 6);
    return arg;
}

OPTIONAL(pid_t, __vfork, void) __attribute__((returns_twice));

static void *children(void *arg)
{
    int status;

    if (n___vfork) {
        pid_t pid = SYS(n___vfork());

        if (pid == 0)
            _exit(5);
        EXPECT(waitpid(pid, &status, 0), pid);
        EXPECT(WEXITSTATUS(status), 5);
    }
    return arg;
}

static void *passwords(void *arg)
{
    FILE *old = stdin;

    /* Without a terminal it is standard input that is asked. */
    int tty = open("/dev/tty", O_RDWR | O_NOCTTY);
    if (tty >= 0) {
        SYS(ioctl(tty, TIOCNOTTY));
        SYS(close(tty));
    }
    stdin = written("secret\n");
    EXPECT_STR(getpass(""), "secret");
    ZERO(fclose(stdin));
    stdin = old;

    unsigned left = alarm(0); /* lckpwdf has its own */
    if (lckpwdf() == 0) {
        EXPECT(lckpwdf(), -1); /* it is ours already */
        ZERO(ulckpwdf());
    }
    alarm(left);
    return arg;
}

#define RESOLVER(prefix)                                                                                                       \
    OPTIONAL(int, prefix##query, const char *, int, int, unsigned char *, int);                                                \
    OPTIONAL(int, prefix##search, const char *, int, int, unsigned char *, int);                                               \
    OPTIONAL(int, prefix##querydomain, const char *, const char *, int, int, unsigned char *, int);                            \
    OPTIONAL(int, prefix##send, const unsigned char *, int, unsigned char *, int);                                             \
    OPTIONAL(int, prefix##nquery, res_state, const char *, int, int, unsigned char *, int);                                    \
    OPTIONAL(int, prefix##nsearch, res_state, const char *, int, int, unsigned char *, int);                                   \
    OPTIONAL(int, prefix##nquerydomain, res_state, const char *, const char *, int, int, unsigned char *, int);                \
    OPTIONAL(int, prefix##nsend, res_state, const unsigned char *, int, unsigned char *, int)
RESOLVER(res_);
RESOLVER(__res_);

static int server;

/* A name server that knows no names; an empty datagram ends it. */
static void *serve(void *arg)
{
    unsigned char message[512];
    struct sockaddr_in from;
    socklen_t size;
    ssize_t n;
    intptr_t questions = 0;

    (void)arg;
    while ((n = SYS(recvfrom(server, message, sizeof message, 0, (struct sockaddr *)&from, (size = sizeof from, &size)))) > 0) {
        CHECK(n > NS_HFIXEDSZ);
        message[2] |= 0x80;
        message[3] = NXDOMAIN;
        EXPECT(sendto(server, message, (size_t)n, 0, (struct sockaddr *)&from, size), n);
        questions++;
    }
    return (void *)questions;
}

static void use_server(struct __res_state *state, const struct sockaddr_in *address)
{
    state->nscount = 1;
    state->nsaddr_list[0] = *address;
    state->options &= ~(unsigned long)(RES_USEVC | RES_ROTATE);
    state->retrans = 5;
    state->retry = 2;
}

#define ASK(call)                                                                                                              \
    do {                                                                                                                       \
        EXPECT(call, -1);                                                                                                      \
        EXPECT(h_errno, HOST_NOT_FOUND);                                                                                       \
    } while (0)
#define ASK_ALL(prefix)                                                                                                        \
    do {                                                                                                                       \
        if (!n_##prefix##query)                                                                                                \
            break;                                                                                                             \
        ASK(n_##prefix##query("no.such.name", C_IN, T_A, answer, sizeof answer));                                              \
        ASK(n_##prefix##search("no.such.name.", C_IN, T_A, answer, sizeof answer));                                            \
        ASK(n_##prefix##querydomain("no.such", "name", C_IN, T_A, answer, sizeof answer));                                     \
        EXPECT(n_##prefix##send(question, size, answer, sizeof answer), size);                                                 \
        ASK(n_##prefix##nquery(&state, "no.such.name", C_IN, T_A, answer, sizeof answer));                                     \
        ASK(n_##prefix##nsearch(&state, "no.such.name.", C_IN, T_A, answer, sizeof answer));                                   \
        ASK(n_##prefix##nquerydomain(&state, "no.such", "name", C_IN, T_A, answer, sizeof answer));                            \
        EXPECT(n_##prefix##nsend(&state, question, size, answer, sizeof answer), size);                                        \
        asked += 8;                                                                                                            \
    } while (0)

static void *resolver(void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    struct __res_state state = {.options = 0};
    unsigned char question[512], answer[512];
    intptr_t asked = 0;

    server = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    SYS(bind(server, (struct sockaddr *)&address, length));
    SYS(getsockname(server, (struct sockaddr *)&address, &length));
    pthread_t t = start(serve, NULL);
    ZERO(res_init());
    use_server(&_res, &address);
    ZERO(res_ninit(&state));
    use_server(&state, &address);
    int size = res_mkquery(QUERY, "no.such.name", C_IN, T_A, NULL, 0, NULL, question, sizeof question);
    CHECK(size > NS_HFIXEDSZ);
    ASK_ALL(res_);
    ASK_ALL(__res_);
    res_nclose(&state);
    int fd = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    EXPECT(sendto(fd, "", 0, 0, (struct sockaddr *)&address, length), 0);
    CHECK((intptr_t)join(t) >= asked); /* more where a datagram was late */
    SYS(close(fd)), SYS(close(server));
    return arg;
}

int main(void)
{
    static const struct {
        const char *name;
        void *(*run)(void *);
    } parts[] = {
        {"locks", locks},           {"descriptors", descriptors}, {"clocks", clocks},     {"reading", read_streams},
        {"scanning", scan_streams}, {"writing", write_streams},   {"signals", signals},   {"children", children},
        {"passwords", passwords},   {"resolver", resolver},       {"policies", policies}, {"rights", rights},
    };

    begin(40);
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/file", directory);
    int fd = SYS(open(path, O_RDWR | O_CREAT, 0600));
    write_all(fd, "text 12\n", 8);
    SYS(close(fd));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        join(start(parts[i].run, NULL));
        puts(parts[i].name);
    }
    SYS(unlink(path));
    SYS(rmdir(directory));
    return finish();
}
