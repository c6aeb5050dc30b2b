/* Detached threads with large stacks that come and go under a limit of address space: whoever makes them finds room again and
 * again, whichever thread the others ended beside. */
#include "check.h"
#include <sys/resource.h>

enum { CREATORS = 2, ALL = 5000 };

static pthread_attr_t large;
static _Atomic unsigned made;

static void *nothing(void *arg)
{
    return arg;
}

static void *creator(void *arg)
{
    pthread_t t;

    for (int mine = 0; made < ALL || mine == 0;) {
        int err = pthread_create(&t, &large, nothing, NULL);
        if (err == 0) {
            made++;
            mine++;
        } else {
            EXPECT_ERROR(err, EAGAIN);
        }
    }
    return arg;
}

int main(void)
{
    struct rlimit limit;

    begin(30);
    SYS(getrlimit(RLIMIT_AS, &limit));
    limit.rlim_cur = 800l << 20;
    SYS(setrlimit(RLIMIT_AS, &limit));
    ZERO(pthread_attr_init(&large));
    ZERO(pthread_attr_setdetachstate(&large, PTHREAD_CREATE_DETACHED));
    ZERO(pthread_attr_setstacksize(&large, 16l << 20));
    in_threads(CREATORS, creator);
    return finish();
}
