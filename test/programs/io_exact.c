/* Time-outs, handlers and cancellations that come just when data does: no byte is lost, and none comes twice.
 */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PAIRS = 12, PIECE = 300 };

static long bytes;
static int fds[PAIRS][2];
static pthread_t ends[2 * PAIRS];
static _Atomic int over[2 * PAIRS];
static long interrupted, late;

static char byte_at(long i, int id)
{
    return (char)(i * 7 + i / 251 + id);
}

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void on_signal(int signal)
{
    (void)signal;
}

/* What a transfer that may be interrupted or out of time gave: bytes, or 0 to try again. */
static long outcome(ssize_t n)
{
    if (n >= 0)
        return n;
    if (errno == EINTR)
        __atomic_fetch_add(&interrupted, 1, __ATOMIC_RELAXED);
    else if (errno == EAGAIN)
        __atomic_fetch_add(&late, 1, __ATOMIC_RELAXED);
    else
        FAIL("%s", error_name(errno));
    return 0;
}

static void *give(void *arg)
{
    int id = (int)(intptr_t)arg, fd = fds[id][1], socket = id % 3 != 0;
    uint32_t random = 77 + (uint32_t)id;
    char data[PIECE];

    for (long at = 0; at < bytes;) {
        size_t n = 1 + next_random(&random) % PIECE;
        if ((long)n > bytes - at)
            n = (size_t)(bytes - at);
        for (size_t i = 0; i < n; i++)
            data[i] = byte_at(at + (long)i, id);
        struct iovec v[2] = {{data, n / 3}, {data + n / 3, n - n / 3}};
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        switch (next_random(&random) % 4) {
        case 0:
            at += outcome(writev(fd, v, 2));
            break;
        case 1:
            at += outcome(socket ? sendmsg(fd, &m, 0) : write(fd, data, n));
            break;
        case 2:
            at += outcome(socket ? send(fd, data, n, 0) : write(fd, data, n));
            break;
        default:
            at += outcome(write(fd, data, n));
        }
        if (next_random(&random) % 4 == 0)
            sched_yield();
        if (next_random(&random) % 64 == 0)
            usleep(300);
    }
    over[PAIRS + id] = 1;
    while (over[PAIRS + id] != 2)
        sched_yield();
    return NULL;
}

static void *take(void *arg)
{
    int id = (int)(intptr_t)arg, fd = fds[id][0], socket = id % 3 != 0;
    uint32_t random = 99 + (uint32_t)id;
    char data[PIECE];
    long n;

    for (long at = 0; at < bytes; at += n) {
        size_t want = 1 + next_random(&random) % PIECE;
        struct iovec v[2] = {{data, want / 2}, {data + want / 2, want - want / 2}};
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        struct pollfd p = {fd, POLLIN, 0};
        switch (next_random(&random) % 7) {
        case 0:
            n = outcome(readv(fd, v, 2));
            break;
        case 1:
            n = outcome(socket ? recvmsg(fd, &m, 0) : read(fd, data, want));
            break;
        case 2:
            n = outcome(socket ? recv(fd, data, want, MSG_WAITALL) : read(fd, data, want));
            break;
        case 3:
            n = 0;
            if (outcome(poll(&p, 1, (int)(next_random(&random) % 3) - 1)) == 1)
                n = outcome(read(fd, data, want));
            break;
        case 4: { /* a time limit of its own */
            struct timeval t = {0, 1000 + next_random(&random) % 3000}, none = {0, 0};
            if (socket)
                SYS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
            n = outcome(read(fd, data, want));
            if (socket)
                SYS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
            break;
        }
        case 5:
            n = outcome(socket ? recvfrom(fd, data, want, 0, NULL, NULL) : read(fd, data, want));
            break;
        default:
            n = outcome(read(fd, data, want));
        }
        for (long i = 0; i < n; i++)
            if (data[i] != byte_at(at + i, id))
                FAIL("pair %d: byte %ld is %d, expected %d", id, at + i, data[i], byte_at(at + i, id));
    }
    over[id] = 1;
    while (over[id] != 2)
        sched_yield();
    return NULL;
}

/* Interrupts all of them until they are through. */
static void *pester(void *arg)
{
    uint32_t random = 5;

    for (int left = 2 * PAIRS; left > 0;) {
        for (int i = 0; i < 2 * PAIRS; i++) {
            if (over[i] == 0 && next_random(&random) % 2) {
                ZERO(pthread_kill(ends[i], SIGUSR1));
            } else if (over[i] == 1) {
                over[i] = 2;
                left--;
            }
        }
        usleep(200);
    }
    return arg;
}

/* A thread that is cancelled has either taken the byte or left it. glibc before 2.41 does not keep to that: a
 * cancellation between the kernel's reading and its return loses the byte (its bug 12683). Strict: none may
 * be lost. */
static int one[2], strict;
static _Atomic long taken;

static void *take_one(void *arg)
{
    char c;
    int state;

    ssize_t n = arg ? recv(one[0], &c, 1, 0) : read(one[0], &c, 1);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    EXPECT(n, 1);
    taken++;
    return NULL;
}

static void cancel_while_it_comes(int rounds)
{
    long given = 0, lost = 0;

    for (int i = 0; i < rounds; i++) {
        pthread_t t = start(take_one, i % 2 ? one : NULL);
        if (i % 3)
            sched_yield();
        write_all(one[1], "x", 1);
        given++;
        ZERO(pthread_cancel(t));
        join(t);
        /* What nobody took is still there. */
        char c;
        while (recv(one[0], &c, 1, MSG_DONTWAIT) == 1)
            taken++;
        lost = given - taken;
        CHECK(lost >= 0 && (lost == 0 || !strict));
    }
    fprintf(stderr, "%ld of %ld lost\n", lost, given);
}

static void *cancel_many(void *arg)
{
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, one));
    cancel_while_it_comes((int)(intptr_t)arg);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};

    bytes = argument(argc, argv, 1, 100000);
    strict = (int)argument(argc, argv, 2, 0);
    begin(60);
    SYS(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < PAIRS; i++) {
        if (i % 3 == 0)
            SYS(pipe(fds[i]));
        else
            SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, fds[i]));
        if (i % 3 == 2) { /* a writer that has to wait */
            int small = 4608;
            SYS(setsockopt(fds[i][1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
        }
        ends[i] = start_number(take, i);
        ends[PAIRS + i] = start_number(give, i);
    }
    pthread_t pest = start(pester, NULL);
    for (int i = 0; i < 2 * PAIRS; i++)
        join(ends[i]);
    join(pest);
    fprintf(stderr, "%ld interrupted, %ld out of time\n", interrupted, late);
    puts("interrupted");
    join(start_number(cancel_many, 2000));
    puts("cancelled");
    return finish();
}
