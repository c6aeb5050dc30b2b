/* Boost.Context fibers inside threads, blocking on their own stacks, throwing, and ended from outside. */
#include "check.h"
#include <atomic>
#include <boost/context/fiber.hpp>
#include <stdexcept>

namespace ctx = boost::context;

enum { THREADS = 8, STEPS = 100 };

static sem_t turn[THREADS];
static std::atomic<int> unwound;

static void block(int id)
{
    ZERO(sem_post(&turn[(id + 1) % THREADS]));
    ZERO(sem_wait(&turn[id]));
}

struct object {
    ~object()
    {
        unwound++;
    }
};

static void *run(void *arg)
{
    int id = static_cast<int>(reinterpret_cast<intptr_t>(arg));
    int sum = 0;
    ctx::fiber counter([&](ctx::fiber &&back) {
        for (int i = 1; i <= STEPS; i++) {
            sum += i;
            block(id);
            back = std::move(back).resume();
            try {
                if (i % 10 == 0)
                    throw std::runtime_error("within");
            } catch (const std::runtime_error &) {
                sum++;
            }
        }
        return std::move(back);
    });
    ctx::fiber endless([](ctx::fiber &&back) {
        object o;
        for (;;) {
            sched_yield();
            back = std::move(back).resume();
        }
        return std::move(back);
    });

    for (int i = 0; i < STEPS + 1; i++) {
        counter = std::move(counter).resume();
        endless = std::move(endless).resume();
    }
    CHECK(!counter && endless);
    EXPECT(sum, STEPS * (STEPS + 1) / 2 + STEPS / 10);
    return nullptr;
}

int main()
{
    begin(20);
    for (auto &t : turn)
        ZERO(sem_init(&t, 0, 0));
    in_threads(THREADS, run);
    EXPECT(unwound.load(), THREADS);
    return finish();
}
