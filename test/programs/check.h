/*
 * What the test programs share: checks that say what differed and end the process, a deadline for the whole
 * program, and a few helpers to start threads and to wait for a number of them. The programs know nothing of
 * the library: each prints the same lines with and without it.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "older.h"

/* Writes one line without taking any lock that the program may hold, and leaves without running handlers. */
__attribute__((noreturn, format(printf, 3, 4))) static inline void fail_at(const char *file, int line, const char *format, ...)
{
    char text[512];
    const char *slash = strrchr(file, '/');
    int n = snprintf(text, sizeof text, "FAIL %s:%d: ", slash ? slash + 1 : file, line);
    va_list ap;

    va_start(ap, format);
    n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, ap);
    va_end(ap);
    if (n > (int)sizeof text - 2)
        n = (int)sizeof text - 2;
    text[n++] = '\n';
    if (ftrylockfile(stdout) == 0) {
        fflush(stdout);
        funlockfile(stdout);
    }
    if (write(STDOUT_FILENO, text, (size_t)n) != n)
        _exit(2);
    _exit(1);
}

static inline const char *error_name(int error)
{
    const char *name = error == 0 ? "0" : strerrorname_np(error);

    return name ? name : "an unknown error";
}

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition)                                                                                                       \
    do {                                                                                                                       \
        if (!(condition))                                                                                                      \
            FAIL("%s is false", #condition);                                                                                   \
    } while (0)

#define EXPECT(got, want)                                                                                                      \
    do {                                                                                                                       \
        long long got_ = (long long)(got), want_ = (long long)(want);                                                          \
        if (got_ != want_)                                                                                                     \
            FAIL("%s is %lld, expected %lld", #got, got_, want_);                                                              \
    } while (0)

#define EXPECT_STR(got, want)                                                                                                  \
    do {                                                                                                                       \
        const char *got_ = (got), *want_ = (want);                                                                             \
        if (!got_ || strcmp(got_, want_) != 0)                                                                                 \
            FAIL("%s is \"%s\", expected \"%s\"", #got, got_ ? got_ : "(null)", want_);                                        \
    } while (0)

/* For functions that return an error number. */
#define EXPECT_ERROR(call, want)                                                                                               \
    do {                                                                                                                       \
        int got_ = (call), want_ = (want);                                                                                     \
        if (got_ != want_)                                                                                                     \
            FAIL("%s: %s, expected %s", #call, error_name(got_), error_name(want_));                                           \
    } while (0)

#define ZERO(call) EXPECT_ERROR(call, 0)

/* For functions that return -1 and set errno. */
#define EXPECT_ERRNO(call, want)                                                                                               \
    do {                                                                                                                       \
        errno = 0;                                                                                                             \
        long long got_ = (long long)(call);                                                                                    \
        int error_ = errno, want_ = (want);                                                                                    \
        if (got_ != -1 || error_ != want_)                                                                                     \
            FAIL("%s: %lld and %s, expected -1 and %s", #call, got_, error_name(error_), error_name(want_));                   \
    } while (0)

/* The value of a call that must not return -1. */
#define SYS(call)                                                                                                              \
    ({                                                                                                                         \
        __typeof__(call) value_ = (call);                                                                                      \
        if (value_ == (__typeof__(call))-1)                                                                                    \
            FAIL("%s: %s", #call, error_name(errno));                                                                          \
        value_;                                                                                                                \
    })

/* The first line of every main: SIGALRM ends a program that hangs, unless whoever runs it sees to that. */
static inline void begin(unsigned seconds)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!getenv("CHECK_NO_ALARM"))
        alarm(seconds);
}

/* The last line of every main. */
static inline int finish(void)
{
    puts("ok");
    return 0;
}

static inline long argument(int argc, char **argv, int index, long otherwise)
{
    return argc > index ? strtol(argv[index], NULL, 0) : otherwise;
}

static inline pthread_t start(void *(*run)(void *), void *arg)
{
    pthread_t thread;

    ZERO(pthread_create(&thread, NULL, run, arg));
    return thread;
}

static inline pthread_t start_number(void *(*run)(void *), long number)
{
    return start(run, (void *)(intptr_t)number);
}

static inline void *join(pthread_t thread)
{
    void *value;

    ZERO(pthread_join(thread, &value));
    return value;
}

/* Runs `run(0)` to `run(count - 1)` each in a thread and joins them all. */
static inline void in_threads(int count, void *(*run)(void *))
{
    pthread_t *threads = (pthread_t *)calloc((size_t)count, sizeof *threads);

    CHECK(threads != NULL);
    for (int i = 0; i < count; i++)
        threads[i] = start_number(run, i);
    for (int i = 0; i < count; i++)
        join(threads[i]);
    free(threads);
}

static inline int64_t now_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline int64_t now_us(void)
{
    return now_ns(CLOCK_MONOTONIC) / 1000;
}

static inline struct timespec in_ms(clockid_t clock, int64_t ms)
{
    int64_t t = now_ns(clock) + ms * 1000000;
    struct timespec at;

    at.tv_sec = t / 1000000000;
    at.tv_nsec = t % 1000000000;
    return at;
}

static inline void sleep_us(long us)
{
    struct timespec t;

    t.tv_sec = us / 1000000;
    t.tv_nsec = us % 1000000 * 1000;
    while (nanosleep(&t, &t) == -1)
        CHECK(errno == EINTR);
}

/* A count that threads raise and wait for. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long count;
};

#define GATE                                                                                                                   \
    {                                                                                                                          \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0                                                                 \
    }

static inline void gate_add(struct gate *g, long n)
{
    ZERO(pthread_mutex_lock(&g->lock));
    g->count += n;
    ZERO(pthread_cond_broadcast(&g->changed));
    ZERO(pthread_mutex_unlock(&g->lock));
}

static inline void gate_wait(struct gate *g, long at_least)
{
    ZERO(pthread_mutex_lock(&g->lock));
    while (g->count < at_least)
        ZERO(pthread_cond_wait(&g->changed, &g->lock));
    ZERO(pthread_mutex_unlock(&g->lock));
}

/* The path of a file in the directory of the program; the buffer is the caller's. */
static inline const char *beside(char *buffer, size_t size, const char *name)
{
    ssize_t n = readlink("/proc/self/exe", buffer, size - 1);

    CHECK(n > 0);
    buffer[n] = '\0';
    char *slash = strrchr(buffer, '/');
    CHECK(slash != NULL && (size_t)(slash - buffer) + strlen(name) + 2 < size);
    strcpy(slash + 1, name);
    return buffer;
}

static inline void write_all(int fd, const void *data, size_t size)
{
    const char *p = (const char *)data;

    while (size > 0) {
        ssize_t n = SYS(write(fd, p, size));
        p += n;
        size -= (size_t)n;
    }
}

static inline void read_all(int fd, void *data, size_t size)
{
    char *p = (char *)data;

    while (size > 0) {
        ssize_t n = SYS(read(fd, p, size));
        if (n == 0)
            FAIL("end of file %zu bytes early", size);
        p += n;
        size -= (size_t)n;
    }
}

#endif
