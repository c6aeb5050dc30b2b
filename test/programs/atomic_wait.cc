/* What the C++ library waits with: atomics, latch, barrier, semaphore, futures, shared and timed mutexes,
 * stop tokens. */
#include "check.h"
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <future>
#include <latch>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

template <typename F> static void crowd(int n, F f)
{
    std::vector<std::jthread> threads;

    for (int i = 0; i < n; i++)
        threads.emplace_back(f, i);
}

template <typename T> static void atomics()
{
    std::atomic<T> turn{0};

    crowd(8, [&](int id) {
        for (int i = 0; i < 50; i++) {
            for (T t = turn.load(); t % 8 != static_cast<T>(id); t = turn.load())
                turn.wait(t);
            turn.fetch_add(1);
            turn.notify_all();
        }
    });
    EXPECT(turn.load(), 400);
}

static void rendezvous()
{
    std::latch gate(8);
    int completed = 0;
    std::barrier barrier(8, [&]() noexcept { completed++; });

    crowd(8, [&](int) {
        gate.arrive_and_wait();
        for (int i = 1; i <= 50; i++) {
            barrier.arrive_and_wait();
            EXPECT(completed, 2 * i - 1);
            barrier.arrive_and_wait();
        }
    });
    EXPECT(completed, 100);
}

static void semaphores()
{
    std::counting_semaphore<3> semaphore(3);
    std::binary_semaphore never(0);
    std::atomic<int> inside{0};

    crowd(12, [&](int) {
        for (int i = 0; i < 50; i++) {
            semaphore.acquire();
            CHECK(++inside <= 3);
            std::this_thread::yield();
            inside--;
            semaphore.release();
        }
        CHECK(!never.try_acquire_for(2ms));
    });
}

static void futures()
{
    std::vector<std::future<int>> results;
    int sum = 0;

    for (int i = 0; i < 20; i++)
        results.push_back(std::async(std::launch::async, [i] {
            std::promise<int> promise;
            std::future<int> f = promise.get_future();
            std::thread t([&] {
                std::this_thread::sleep_for(1ms);
                promise.set_value(i);
            });
            int value = f.get();
            t.join();
            if (i == 19)
                throw std::runtime_error("the last");
            return value;
        }));
    try {
        for (auto &r : results)
            sum += r.get();
        FAIL("no exception came through the future");
    } catch (const std::runtime_error &e) {
        EXPECT_STR(e.what(), "the last");
    }
    EXPECT(sum, 18 * 19 / 2);
    std::promise<int> never;
    CHECK(never.get_future().wait_for(2ms) == std::future_status::timeout);
}

static void mutexes()
{
    std::shared_timed_mutex shared;
    std::recursive_timed_mutex recursive;
    std::timed_mutex timed;
    int a = 0, b = 0;

    crowd(8, [&](int id) {
        for (int i = 0; i < 50; i++) {
            if (id < 2) {
                std::unique_lock<std::shared_timed_mutex> lock(shared);
                a++;
                std::this_thread::yield();
                b++;
            } else {
                std::shared_lock<std::shared_timed_mutex> lock(shared);
                EXPECT(a, b);
            }
            std::scoped_lock both(recursive, timed);
            CHECK(recursive.try_lock_for(1ms));
            recursive.unlock();
        }
    });
    EXPECT(a, 100);
    timed.lock();
    std::thread([&] { CHECK(!timed.try_lock_for(2ms)); }).join();
    timed.unlock();
}

static void stopping()
{
    std::mutex m;
    std::condition_variable_any changed;
    std::atomic<int> stopped{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 10; i++)
            threads.emplace_back([&](std::stop_token token) {
                std::unique_lock<std::mutex> lock(m);
                CHECK(!changed.wait(lock, token, [] { return false; }));
                stopped++;
            });
    }
    EXPECT(stopped.load(), 10);
}

int main()
{
    static const struct {
        const char *name;
        void (*run)();
    } all[] = {{"int", atomics<int>},     {"long", atomics<long>}, {"barrier", rendezvous},
               {"semaphore", semaphores}, {"future", futures},     {"mutex", mutexes},
               {"stop_token", stopping}};

    begin(30);
    for (auto &part : all) {
        part.run();
        std::thread(part.run).join();
        puts(part.name);
    }
    return finish();
}
