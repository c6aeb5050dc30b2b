/* Waiting when all numbers of the process are in use: several threads for one descriptor; one that is closed under its
 * waiter while the file stays open by another number, and the number that is used again, for the same file or another.
 */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { LIMIT = 64, ROUNDS = 12 };

static int first[2], second[2]; /* socket pairs, with a time-out for receiving */
static int number;              /* by which the threads wait for either */
static struct gate about = GATE;

static void fill(void)
{
    while (dup(STDIN_FILENO) >= 0)
        ;
    EXPECT(errno, EMFILE);
}

static void *nothing(void *arg)
{
    return arg;
}

static int taken;

static void *take(void *arg)
{
    char byte;

    EXPECT(read(first[0], &byte, 1), 1);
    EXPECT(byte, 'x');
    __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
    return arg;
}

/* Gives up by time-out; what happens to the file later is nobody's business. */
static void *give_up(void *arg)
{
    char byte = 0;
    volatile char stack[8192];

    gate_add(&about, 1);
    EXPECT(read(number, &byte, 1), -1);
    CHECK(errno == EAGAIN || errno == EBADF); /* the number may be closed before the call */
    memset((char *)stack, 'A', sizeof stack);
    gate_add(&about, 1);
    for (int i = 0; i < 20; i++) {
        sched_yield();
        for (size_t k = 0; k < sizeof stack; k++)
            CHECK(stack[k] == 'A');
    }
    return arg;
}

/* Waits for the other file by the number. */
static void *wait_for_second(void *arg)
{
    struct pollfd p = {number, POLLIN, 0};
    char byte;

    gate_add(&about, 1);
    EXPECT(poll(&p, 1, -1), 1);
    EXPECT(read(number, &byte, 1), 1);
    EXPECT(byte, 's');
    return arg;
}

int main(void)
{
    struct rlimit limit;
    struct timeval soon = {0, 30000};
    pthread_t threads[8], other;
    char byte;

    begin(40);
    join(start(nothing, NULL));
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = LIMIT;
    SYS(setrlimit(RLIMIT_NOFILE, &limit));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, first));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, second));
    number = SYS(dup(first[0]));
    fill();

    for (int i = 0; i < 8; i++)
        threads[i] = start(take, NULL);
    for (int i = 1; i <= 8; i++) {
        write_all(first[1], "x", 1);
        while (__atomic_load_n(&taken, __ATOMIC_RELAXED) < i)
            sleep_us(500);
    }
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    puts("several for one");

    SYS(setsockopt(first[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
    SYS(setsockopt(second[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon)); /* for one who comes late */
    for (int round = 0; round < ROUNDS; round++) {
        about.count = 0;
        threads[0] = start(give_up, NULL);
        gate_wait(&about, 1);
        if (round % 4 != 3)
            sleep_us(5000); /* most likely it waits by now; right in any case */
        SYS(close(number));
        if (round % 2 == 0) { /* nobody has the number until the wait is over */
            gate_wait(&about, 2);
            write_all(first[1], "y", 1); /* the file becomes ready, for nobody */
            join(threads[0]);
            EXPECT(read(first[0], &byte, 1), 1);
            EXPECT(dup2(first[0], number), number); /* the same file by the same number */
            for (int i = 0; i < 2; i++) {
                about.count = 0;
                threads[0] = start(give_up, NULL);
                gate_wait(&about, 2);
                join(threads[0]);
            }
        } else { /* another file, and another waiter */
            EXPECT(dup2(second[0], number), number);
            other = start(wait_for_second, NULL);
            gate_wait(&about, 3); /* both, and the end of the first */
            join(threads[0]);
            write_all(second[1], "s", 1);
            join(other);
            EXPECT(dup2(first[0], number), number);
        }
    }
    puts("closed and used again");
    return finish();
}
