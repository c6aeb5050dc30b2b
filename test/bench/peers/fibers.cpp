// The benchmark programs that need no I/O, with Boost.Fiber's fibers for threads (one OS thread).
#include "../bench.h"
#include <boost/fiber/all.hpp>
#include <chrono>
#include <string>
#include <vector>

namespace bf = boost::fibers;

static size_t stack_kb = 128;

template <class Body> static bf::fiber spawn(Body body)
{
    return bf::fiber(bf::launch::post, std::allocator_arg, bf::fixedsize_stack(stack_kb << 10), body);
}

static void sleepers(long n, long delay_ms, bool quiet)
{
    std::vector<bf::fiber> all;
    all.reserve(n);
    double t0 = now();
    for (long i = 0; i < n; i++)
        all.push_back(spawn([=] {
            boost::this_fiber::sleep_for(std::chrono::milliseconds(delay_ms));
            if (!quiet)
                putchar('.');
        }));
    double t1 = now();
    for (auto &f : all)
        f.join();
    double t = now() - t0;
    fprintf(stderr, "sleepers n=%ld delay_ms=%ld stack_kb=%zu seconds=%.4f create_s=%.4f ops_s=%.0f peak_rss_kb=%ld\n",
            n, delay_ms, stack_kb, t, t1 - t0, n / t, peak_rss_kb());
}

static void createjoin(long m, long batch)
{
    std::vector<bf::fiber> some(batch);
    double t0 = now();
    for (long left = m; left > 0; left -= batch) {
        for (auto &f : some)
            f = spawn([] {});
        for (auto &f : some)
            f.join();
    }
    double t = now() - t0;
    printf("createjoin m=%ld batch=%ld seconds=%.4f ops_s=%.0f us_each=%.3f peak_rss_kb=%ld\n", m, batch, t, m / t,
           t * 1e6 / m, peak_rss_kb());
}

static void pingpong(const std::string &way, long m)
{
    bf::mutex lock;
    bf::condition_variable wake[2];
    int turn = 0;
    auto player = [&](int me) {
        for (long i = 0; i < m; i++) {
            if (way == "cond") {
                std::unique_lock<bf::mutex> held(lock);
                wake[me].wait(held, [&] { return turn == me; });
                turn = !me;
                wake[!me].notify_one();
            } else {
                while (turn != me)
                    boost::this_fiber::yield();
                turn = !me;
            }
        }
    };
    double t0 = now();
    bf::fiber a = spawn([&] { player(0); }), b = spawn([&] { player(1); });
    a.join();
    b.join();
    double t = now() - t0;
    printf("pingpong by=%s m=%ld seconds=%.4f ops_s=%.0f ns_round=%.1f peak_rss_kb=%ld\n", way.c_str(), m, t, m / t,
           t * 1e9 / m, peak_rss_kb());
}

int main(int argc, char **argv)
{
    if (argc < 3)
        usage("fibers sleepers N DELAY_MS STACK_KB [-q] | createjoin M BATCH | pingpong cond|yield M");
    std::string what = argv[1];
    if (what == "sleepers" && argc > 4) {
        stack_kb = atol(argv[4]);
        sleepers(atol(argv[2]), atol(argv[3]), argc > 5);
    } else if (what == "createjoin") {
        createjoin(atol(argv[2]), argc > 3 ? atol(argv[3]) : 1);
    } else if (what == "pingpong" && argc > 3) {
        pingpong(argv[2], atol(argv[3]));
    }
}
