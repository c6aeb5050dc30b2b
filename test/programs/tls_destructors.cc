/* C++ thread_local objects end once a thread, in reverse order, on that thread, before the keys' destructors.
 */
#include "check.h"
#include <atomic>
#include <string>
#include <vector>

static std::atomic<int> alive, built, ended;
static pthread_key_t key;
static thread_local std::string *log;

struct object {
    const char *name;
    pthread_t owner;
    object *self;
    std::vector<int> data;
    explicit object(const char *n) : name(n), owner(pthread_self()), self(this), data(100, 1)
    {
        alive++;
        built++;
    }
    ~object();
};

static thread_local object a("a");
static thread_local object b("b");

object::~object()
{
    CHECK(pthread_equal(owner, pthread_self()));
    CHECK(self == this);
    EXPECT(data.size(), 100);
    if (log)
        *log += std::string(" ") + name;
    if (this == &b) {
        /* Made in a destructor: it must end too. */
        static thread_local object late("late");
        late.data[0] = 1;
    }
    sched_yield();
    CHECK(pthread_equal(owner, pthread_self()));
    alive--;
    ended++;
}

static void key_end(void *p)
{
    CHECK(p == log);
    *log += " key";
}

static void use(void *p)
{
    log = static_cast<std::string *>(p);
    ZERO(pthread_setspecific(key, p));
    a.data[0] = 2;
    sched_yield();
    b.data[0] = 3;
}

static void *by_return(void *p)
{
    use(p);
    return nullptr;
}

static void *by_exit(void *p)
{
    object local("local");

    use(p);
    pthread_exit(nullptr);
}

static void *untouched(void *)
{
    return nullptr;
}

static void *by_detached(void *g)
{
    a.data[0] = 1;
    gate_add(static_cast<gate *>(g), 1);
    return nullptr;
}

int main()
{
    begin(20);
    ZERO(pthread_key_create(&key, key_end));
    for (auto run : {by_return, by_exit}) {
        std::vector<std::string> logs(50);
        std::vector<pthread_t> threads;
        for (auto &l : logs)
            threads.push_back(start(run, &l));
        for (auto t : threads)
            join(t);
        for (auto &l : logs)
            EXPECT_STR(l.c_str(), logs[0].c_str());
        printf("%s:%s\n", run == by_return ? "return" : "exit", logs[0].c_str());
    }
    int before = built;
    in_threads(10, untouched);
    EXPECT(built.load(), before);
    gate detached = GATE;
    for (int i = 0; i < 10; i++)
        ZERO(pthread_detach(start(by_detached, &detached)));
    gate_wait(&detached, 10);
    while (alive.load() != 0)
        sched_yield();
    EXPECT(built.load(), ended.load());
    return finish();
}
