/* A program may close every descriptor that it did not open, one by one or by the range, while its threads wait; and the
 * number of one that a thread waits on, though the file stays open by another. */
#include "check.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { THREADS = 8 };

static int pair[2];
static struct gate waiting = GATE;

static void *receive(void *arg)
{
    char byte;

    gate_add(&waiting, 1);
    EXPECT(read(pair[0], &byte, 1), 1);
    sleep_us(1000);
    return arg;
}

static void close_all(int way)
{
    int keep = pair[0] > pair[1] ? pair[0] : pair[1];

    if (way == 0)
        closefrom(keep + 1);
    else if (way == 1)
        SYS(close_range((unsigned)keep + 1, ~0U, 0));
    else if (way == 2)
        SYS(syscall(SYS_close_range, (unsigned)keep + 1, ~0U, 0));
    else
        for (int fd = keep + 1, end = (int)sysconf(_SC_OPEN_MAX); fd < end; fd++)
            if (close(fd) != 0 && errno != EBADF)
                FAIL("close(%d): %s", fd, error_name(errno));
}

static void *closer(void *arg)
{
    close_all((int)(intptr_t)arg);
    return arg;
}

/* Gives up by time-out; what happens to the file later is nobody's business. */
static int number;

static void *give_up(void *arg)
{
    char byte;
    volatile char stack[16384];

    gate_add(&waiting, 1);
    EXPECT(read(number, &byte, 1), -1);
    CHECK(errno == EAGAIN);
    /* The stack of the wait, used for something else while the file becomes ready. */
    memset((char *)stack, 'A', sizeof stack);
    write_all(pair[1], "x", 1);
    sleep_us(20000);
    for (size_t i = 0; i < sizeof stack; i++)
        CHECK(stack[i] == 'A');
    return arg;
}

int main(void)
{
    begin(30);
    for (int way = 0; way < 4; way++) {
        pthread_t threads[THREADS];
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(receive, NULL);
        gate_wait(&waiting, THREADS * (way + 1));
        if (way % 2)
            join(start_number(closer, way));
        else
            close_all(way);
        write_all(pair[1], "12345678", THREADS);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        close(pair[0]);
        close(pair[1]);
    }
    puts("all closed");

    struct timeval soon = {0, 100000};
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SYS(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    number = SYS(dup(pair[0]));
    pthread_t t = start(give_up, NULL);
    gate_wait(&waiting, THREADS * 4 + 1);
    sleep_us(10000); /* most likely it waits by now; right in any case */
    SYS(close(number));
    join(t);
    puts("closed under a wait");
    return finish();
}
