/* Threads that wait for descriptors whose numbers change their meaning meanwhile, or are waited for again and again.
 *
 * A wait that has begun is for what the number stood for then: it ends when something comes there, although the number has been
 * closed, or has become another socket that others wait for, who get what comes to that one and nothing else. (Whether
 * the call that was overtaken returns the data, or EBADF, is not looked at.) What has been waited for and is closed is closed
 * for its peer, too. */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { ROUNDS = 60 };

static struct gate waiting = GATE;

struct receiver {
    pthread_t thread;
    int fd;
    ssize_t got;
    int error;
    char byte;
};

static void *receive(void *arg)
{
    struct receiver *r = arg;
    gate_add(&waiting, 1);
    r->got = read(r->fd, &r->byte, 1);
    r->error = errno;
    return NULL;
}

/* A thread that reads a byte, and has begun to wait by the time this returns, as far as can be told. */
static void begin_receive(struct receiver *r, int fd)
{
    long before = waiting.count;
    *r = (struct receiver){.fd = fd};
    r->thread = start(receive, r);
    gate_wait(&waiting, before + 1);
    sleep_us(300);
}

static void end_receive(struct receiver *r, char byte, bool overtaken)
{
    join(r->thread);
    if (overtaken && r->got == -1)
        EXPECT_ERROR(r->error, EBADF);
    else if (r->got != 1 || r->byte != byte)
        FAIL("got %zd, byte %d, expected %d", r->got, r->byte, byte);
}

static void pair(int fds[2])
{
    SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
}

/* To one whose number is closed: if it had not begun to wait by then nobody has the other end. */
static void write_old(int fd)
{
    if (write(fd, "o", 1) == -1)
        EXPECT_ERROR(errno, EPIPE);
}

static void closed_meanwhile(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct receiver old, new;
        int a[2], b[2];
        pair(a);
        begin_receive(&old, a[0]);
        int number = a[0];
        if (i % 3 == 2) { /* replaced at once */
            pair(b);
            SYS(dup2(b[0], number));
            SYS(close(b[0]));
        } else {
            SYS(close(number));
            if (i % 3 == 0) {
                write_old(a[1]);
                end_receive(&old, 'o', true);
                SYS(close(a[1]));
                continue;
            }
            pair(b);
            if (b[0] != number) { /* others make descriptors too */
                SYS(dup2(b[0], number));
                SYS(close(b[0]));
            }
        }
        begin_receive(&new, number);
        if (i % 2) {
            write_old(a[1]);
            end_receive(&old, 'o', true);
            EXPECT(write(b[1], "n", 1), 1);
            end_receive(&new, 'n', false);
        } else {
            EXPECT(write(b[1], "n", 1), 1);
            end_receive(&new, 'n', false);
            write_old(a[1]);
            end_receive(&old, 'o', true);
        }
        SYS(close(a[1]));
        SYS(close(number));
        SYS(close(b[1]));
    }
}

/* The end of the reader's side is seen although it has been waited for often; so is that of the writer's. */
static void *write_until_closed(void *arg)
{
    char page[4096] = "";
    ssize_t n;
    while ((n = write(*(int *)arg, page, sizeof page)) > 0)
        ;
    EXPECT(n, -1);
    EXPECT_ERROR(errno, EPIPE);
    return NULL;
}

static void *read_until_closed(void *arg)
{
    char page[4096];
    while (read(*(int *)arg, page, sizeof page) > 0)
        ;
    return NULL;
}

static void closed_for_the_peer(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        int fds[2];
        struct receiver r;
        SYS(pipe2(fds, O_CLOEXEC));
        for (int k = 0; k < 3; k++) {
            begin_receive(&r, fds[0]);
            EXPECT(write(fds[1], "x", 1), 1);
            end_receive(&r, 'x', false);
        }
        pthread_t thread = start(i % 2 ? write_until_closed : read_until_closed, &fds[i % 2]);
        sleep_us(300);
        SYS(close(fds[1 - i % 2]));
        join(thread);
        SYS(close(fds[i % 2]));
    }
}

/* Time limits end waits before anything has come; what comes then is for the next wait, and no other. */
static void *limited(void *arg)
{
    int fd = *(int *)arg;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte;
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 4; k++) {
            EXPECT(recv(fd, &byte, 1, 0), -1);
            EXPECT_ERROR(errno, EAGAIN);
            EXPECT(poll(&p, 1, 1), 0);
        }
        gate_add(&waiting, 1);
        while (recv(fd, &byte, 1, 0) == -1)
            EXPECT_ERROR(errno, EAGAIN);
        EXPECT(byte, i);
        EXPECT(send(fd, &byte, 1, 0), 1);
    }
    return NULL;
}

static void after_time_limits(void)
{
    int fds[2];
    struct timeval limit = {.tv_usec = 1000};
    pair(fds);
    SYS(setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    long before = waiting.count;
    pthread_t thread = start(limited, &fds[0]);
    for (int i = 0; i < ROUNDS; i++) {
        char byte = (char)i;
        gate_wait(&waiting, before + i + 1);
        EXPECT(send(fds[1], &byte, 1, 0), 1);
        EXPECT(recv(fds[1], &byte, 1, 0), 1);
        EXPECT(byte, i);
    }
    join(thread);
    SYS(close(fds[0]));
    SYS(close(fds[1]));
}

/* One reads and one writes by the same number, and a child made meanwhile waits by it, too. */
static void *echo(void *arg)
{
    int fd = *(int *)arg;
    char byte;
    ssize_t n;
    while ((n = read(fd, &byte, 1)) == 1)
        EXPECT(write(fd, &byte, 1), 1);
    EXPECT(n, 0);
    return NULL;
}

static void *in_child(void *arg)
{
    struct receiver r;
    begin_receive(&r, *(int *)arg);
    end_receive(&r, 'c', false);
    return NULL;
}

static void forked(void)
{
    for (int i = 0; i < 8; i++) {
        int fds[2], for_child[2];
        char byte = 'e';
        pair(fds);
        pair(for_child);
        pthread_t thread = start(echo, &fds[0]);
        struct receiver r;
        begin_receive(&r, for_child[0]);
        EXPECT(write(for_child[1], "p", 1), 1);
        end_receive(&r, 'p', false);
        pid_t child = SYS(fork());
        if (child == 0) {
            join(start(in_child, &for_child[0]));
            _exit(0);
        }
        for (int k = 0; k < 20; k++) {
            EXPECT(write(fds[1], &byte, 1), 1);
            EXPECT(read(fds[1], &byte, 1), 1);
        }
        EXPECT(write(for_child[1], "c", 1), 1);
        int status = -1;
        while (waitpid(child, &status, 0) == -1)
            EXPECT_ERROR(errno, EINTR);
        EXPECT(status, 0);
        SYS(close(fds[1]));
        join(thread);
        SYS(close(fds[0]));
        SYS(close(for_child[0]));
        SYS(close(for_child[1]));
    }
}

/* ROUNDS round trips between two threads, each waited for: test/counters counts the calls. */
static void trips(long n)
{
    int fds[2];
    char byte = 't';
    pair(fds);
    pthread_t thread = start(echo, &fds[0]);
    while (n-- > 0) {
        EXPECT(write(fds[1], &byte, 1), 1);
        EXPECT(read(fds[1], &byte, 1), 1);
    }
    SYS(shutdown(fds[1], SHUT_WR));
    join(thread);
    SYS(close(fds[0]));
    SYS(close(fds[1]));
}

static void *all(void *arg)
{
    closed_meanwhile();
    closed_for_the_peer();
    after_time_limits();
    forked();
    trips(ROUNDS);
    return arg;
}

static void *trips_alone(void *arg)
{
    trips((long)(intptr_t)arg);
    return NULL;
}

/* numbers_watched [TRIPS: nothing but so many round trips] */
int main(int argc, char **argv)
{
    begin(120);
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1)
        join(start(trips_alone, (void *)(intptr_t)argument(argc, argv, 1, 1)));
    else
        join(start(all, NULL));
    return finish();
}
