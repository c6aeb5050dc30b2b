/* A thread closes every descriptor that the program did not make, and puts files of its own onto every number, again and
 * again, while others wait for each other by sockets and pipes: nothing is lost, nothing comes that was not sent, and the
 * numbers that the program gets are the lowest that it has free.
 *
 * usage: descriptors_taken [hard]: with the hard limit at the soft one, and one number at a time */
#include "check.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { PAIRS = 8, SOFT = 700, SWEEPS = 12 };

static int ends[PAIRS][2], top, sink;
static bool fill = true;
static atomic_int stop;
static atomic_long turns[PAIRS];

/* Each end answers the other: a lost wake-up stops the pair. */
static void *talk(void *arg)
{
    long i = (intptr_t)arg / 2;
    int fd = ends[i][(intptr_t)arg % 2];
    long n = 0;

    if ((intptr_t)arg % 2 == 0)
        write_all(fd, &n, sizeof n), n++;
    for (;;) {
        long got;
        struct pollfd p = {fd, POLLIN, 0};
        if (i % 3 == 0)
            EXPECT(poll(&p, 1, -1), 1);
        if (SYS(read(fd, &got, sizeof got)) == 0)
            return arg;
        EXPECT(got, n);
        n = got + 1;
        atomic_store(&turns[i], n);
        if (stop) {
            SYS(shutdown(fd, SHUT_RDWR));
            return arg;
        }
        if (send(fd, &n, sizeof n, MSG_NOSIGNAL) < 0) {
            EXPECT(errno, EPIPE);
            return arg;
        }
        n++;
        if (n % 64 == 0)
            sleep_us(100);
    }
}

/* Every pair goes on. */
static void expect_progress(void)
{
    for (int i = 0; i < PAIRS; i++) {
        long before = atomic_load(&turns[i]);
        for (int k = 0; atomic_load(&turns[i]) == before; k++) {
            if (k == 10000)
                FAIL("pair %d has stopped", i);
            sleep_us(1000);
        }
    }
}

static void expect_lowest(void)
{
    int a = SYS(open("/dev/null", O_RDONLY)), b = SYS(socket(AF_UNIX, SOCK_STREAM, 0));

    EXPECT(a, top + 1);
    EXPECT(b, top + 2);
    SYS(close(a)), SYS(close(b));
}

static void take(int fd, int how)
{
    struct stat st;

    switch (how) {
    case 0:
        EXPECT(dup2(sink, fd), fd);
        break;
    case 1:
        EXPECT(dup3(sink, fd, O_CLOEXEC), fd);
        break;
    default:
        EXPECT(syscall(SYS_dup2, sink, fd), fd);
        break;
    }
    SYS(fstat(fd, &st));
}

static void *sweep(void *arg)
{
    struct rlimit old, l;

    (void)arg;
    ZERO(getrlimit(RLIMIT_NOFILE, &old));
    for (int round = 0; round < SWEEPS; round++) {
        int end = SOFT;
        if (round % 4 == 2) { /* up and down */
            l = old;
            l.rlim_cur = l.rlim_max > 1200 ? 1200 : l.rlim_max;
            end = (int)l.rlim_cur;
            ZERO(setrlimit(RLIMIT_NOFILE, &l));
        }
        for (int fd = top + 1; fd < end; fd++) {
            take(fd, round % 3);
            if (!fill)
                SYS(close(fd));
        }
        if (fill)
            EXPECT_ERRNO(open("/dev/null", O_RDONLY), EMFILE);
        /* Nobody else has written there. */
        struct stat st;
        SYS(fstat(sink, &st));
        EXPECT(st.st_size, 0);
        if (round % 2)
            SYS(close_range((unsigned)top + 1, ~0U, 0));
        else
            for (int fd = top + 1; fd < end + 100; fd++)
                if (close(fd) != 0)
                    EXPECT(errno, EBADF);
        if (round % 4 == 2)
            ZERO(setrlimit(RLIMIT_NOFILE, &old));
        expect_lowest();
        expect_progress();
        closefrom(top + 1);
        SYS(close_range((unsigned)top + 1, ~0U, CLOSE_RANGE_CLOEXEC));
        for (int fd = top + 1; fd < end + 100; fd++)
            if (syscall(SYS_close, fd) != 0)
                EXPECT(errno, EBADF);
        expect_progress();
        expect_lowest();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2 * PAIRS];
    struct rlimit l;
    char name[] = "/tmp/descriptors_taken-XXXXXX";

    begin(60);
    ZERO(getrlimit(RLIMIT_NOFILE, &l));
    l.rlim_cur = SOFT;
    if (argc > 1 && strcmp(argv[1], "hard") == 0)
        l.rlim_max = SOFT, fill = false;
    ZERO(setrlimit(RLIMIT_NOFILE, &l));
    SYS(close_range(3, ~0U, 0));
    sink = SYS(mkstemp(name));
    SYS(unlink(name));
    for (int i = 0; i < PAIRS; i++)
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]));
    top = ends[PAIRS - 1][1];
    for (int i = 0; i < 2 * PAIRS; i++)
        threads[i] = start_number(talk, i);
    sweep(NULL);
    join(start(sweep, NULL));
    stop = 1;
    for (int i = 0; i < 2 * PAIRS; i++)
        join(threads[i]);
    return finish();
}
