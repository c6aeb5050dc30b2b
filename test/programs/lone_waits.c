/* One thread that waits again and again while no other can run, for a client, for the time and for either: what it waits for
 * comes, in order, and whatever else ends a wait does so, too. Between the waits a thread that has only just come uses the
 * processor, so that the first finds its own thread-local data again. */
#include "check.h"
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { ROUNDS = 300 };

static __thread unsigned turns;
static int server, client;
static _Atomic bool over;

static void on_signal(int sig)
{
    (void)sig;
}

static void answer(unsigned char expected)
{
    unsigned char byte;
    ssize_t got = read(server, &byte, 1);
    if (got != 1 || byte != expected)
        FAIL("got %zd, byte %d, expected %d", got, byte, expected);
    turns++;
    if (write(server, &byte, 1) != 1)
        FAIL("write: %s", strerror(errno));
}

static void *serve(void *arg)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        answer((unsigned char)i);
        sleep_us(50);
        struct pollfd both = {.fd = server, .events = POLLIN};
        int ready = poll(&both, 1, 1);
        if (ready < 0)
            FAIL("poll: %s", strerror(errno));
    }
    if (turns != ROUNDS)
        FAIL("%u turns", turns);
    return arg;
}

static void *other(void *arg)
{
    turns += 1000;
    errno = EDOM;
    return arg;
}

static void requests(void)
{
    pthread_t thread = start(serve, NULL);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned char byte = (unsigned char)i;
        if (write(client, &byte, 1) != 1 || read(client, &byte, 1) != 1)
            FAIL("client: %s", strerror(errno));
        if (byte != (unsigned char)i)
            FAIL("answer %d to %u", byte, i);
        if (i % 4 == 3)
            join(start(other, NULL));
    }
    join(thread);
}

static struct gate waiting = GATE;

/* Its wait is ended by a signal, by others each time. */
static void *interrupted(void *arg)
{
    for (unsigned i = 0; i < ROUNDS / 3; i++) {
        char byte;
        struct pollfd one = {.fd = server, .events = POLLIN};
        struct timespec minute = {60, 0};
        gate_add(&waiting, 1);
        int ret = i % 3 == 0 ? poll(&one, 1, 60000) : i % 3 == 1 ? (int)read(server, &byte, 1) : nanosleep(&minute, NULL);
        if (ret != -1 || errno != EINTR)
            FAIL("wait %u: %d, %s", i, ret, strerror(errno));
    }
    over = true;
    return arg;
}

static void signals(void)
{
    struct sigaction act = {.sa_handler = on_signal};
    SYS(sigaction(SIGUSR1, &act, NULL));
    pthread_t thread = start(interrupted, NULL);
    for (int i = 0; i < ROUNDS / 3; i++) {
        gate_wait(&waiting, i + 1);
        do { /* the first may come before the wait */
            pthread_kill(thread, SIGUSR1);
            sleep_us(200);
        } while (waiting.count == i + 1 && !over);
    }
    join(thread);
}

static void *for_ever(void *arg)
{
    char byte;
    gate_add(&waiting, 1);
    for (;;)
        if (arg)
            sleep(60);
        else
            (void)!read(server, &byte, 1);
    return NULL;
}

static void cancellations(void)
{
    for (int i = 0; i < ROUNDS / 3; i++) {
        void *result;
        long before = waiting.count;
        pthread_t thread = start(for_ever, i % 2 ? &server : NULL);
        gate_wait(&waiting, before + 1);
        if (i % 3)
            sleep_us(100);
        ZERO(pthread_cancel(thread));
        ZERO(pthread_join(thread, &result));
        if (result != PTHREAD_CANCELED)
            FAIL("not cancelled");
    }
}

int main(void)
{
    int fds[2];
    begin(120);
    SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    server = fds[0];
    client = fds[1];
    requests();
    signals();
    cancellations();
    return finish();
}
