// What the C++20 library has for threads, each part checked; prints one line a part.
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <semaphore>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

#define REQUIRE(what)                                                                                        \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                          \
            std::exit(1);                                                                                    \
        }                                                                                                    \
    } while (0)

static void threads()
{
    std::vector<std::thread> all;
    std::vector<long> results(200);
    for (int i = 0; i < 200; i++)
        all.emplace_back([i, &results] {
            std::this_thread::sleep_for(std::chrono::milliseconds(i % 7));
            results[i] = i * 3;
        });
    for (auto &t : all)
        t.join();
    std::printf("thread: %ld\n", std::accumulate(results.begin(), results.end(), 0L));
}

static void async()
{
    std::vector<std::future<long>> all;
    for (long i = 0; i < 100; i++)
        all.push_back(std::async(std::launch::async, [i] {
            std::this_thread::sleep_for(1ms);
            return i * i;
        }));
    long sum = 0;
    for (auto &f : all)
        sum += f.get();

    std::promise<std::string> promise;
    auto shared = promise.get_future().share();
    REQUIRE(shared.wait_for(5ms) == std::future_status::timeout);
    std::vector<std::future<size_t>> readers;
    for (int i = 0; i < 20; i++)
        readers.push_back(std::async(std::launch::async, [shared] { return shared.get().size(); }));
    promise.set_value("twelve chars");
    for (auto &r : readers)
        REQUIRE(r.get() == 12);

    std::packaged_task<int(int)> task([](int x) -> int { throw x + 1; });
    auto failed = task.get_future();
    std::jthread runner(std::move(task), 41);
    int caught = 0;
    try {
        failed.get();
    } catch (int x) {
        caught = x;
    }
    std::printf("async: %ld, exception %d\n", sum, caught);
}

template <class T> class Queue
{
  public:
    explicit Queue(size_t room) : room(room)
    {
    }
    void push(T value)
    {
        std::unique_lock hold(lock);
        not_full.wait(hold, [this] { return items.size() < room; });
        items.push_back(std::move(value));
        not_empty.notify_one();
    }
    T pop()
    {
        std::unique_lock hold(lock);
        not_empty.wait(hold, [this] { return !items.empty(); });
        T value = std::move(items.front());
        items.pop_front();
        not_full.notify_one();
        return value;
    }

  private:
    size_t room;
    std::mutex lock;
    std::condition_variable not_full, not_empty;
    std::deque<T> items;
};

static void condition_variables()
{
    Queue<std::unique_ptr<long>> queue(8);
    std::atomic<long> sum{0};
    std::vector<std::jthread> all;
    for (int p = 0; p < 10; p++)
        all.emplace_back([&queue, p] {
            for (long i = 0; i < 1000; i++)
                queue.push(std::make_unique<long>(p * 1000 + i));
        });
    for (int c = 0; c < 20; c++)
        all.emplace_back([&] {
            for (int i = 0; i < 500; i++)
                sum += *queue.pop();
        });
    all.clear();
    std::printf("condition_variable: %ld\n", sum.load());

    std::mutex lock;
    std::condition_variable cond;
    std::unique_lock hold(lock);
    auto start = std::chrono::steady_clock::now();
    REQUIRE(cond.wait_for(hold, 20ms) == std::cv_status::timeout);
    auto took = std::chrono::steady_clock::now() - start;
    REQUIRE(took >= 20ms && took < 5s);
    REQUIRE(cond.wait_until(hold, std::chrono::system_clock::now() - 1s) == std::cv_status::timeout);
    std::printf("condition_variable: timed out\n");

    // condition_variable_any with a stop token
    std::condition_variable_any any;
    std::atomic<int> stopped{0};
    std::vector<std::jthread> waiting;
    for (int i = 0; i < 10; i++)
        waiting.emplace_back([&](std::stop_token stop) {
            std::unique_lock mine(lock);
            bool said = any.wait(mine, stop, [] { return false; });
            REQUIRE(!said && stop.stop_requested());
            stopped++;
        });
    hold.unlock();
    std::this_thread::sleep_for(5ms);
    waiting.clear();
    std::printf("stop_token: %d stopped\n", stopped.load());
}

static void semaphores()
{
    std::counting_semaphore<8> slots(4);
    std::atomic<int> inside{0}, most{0}, total{0};
    std::vector<std::jthread> all;
    for (int i = 0; i < 100; i++)
        all.emplace_back([&] {
            slots.acquire();
            int n = ++inside, m = most.load();
            while (m < n && !most.compare_exchange_weak(m, n))
                ;
            std::this_thread::sleep_for(1ms);
            inside--;
            total++;
            slots.release();
        });
    all.clear();
    REQUIRE(most <= 4);
    std::binary_semaphore closed(0);
    REQUIRE(!closed.try_acquire());
    REQUIRE(!closed.try_acquire_for(10ms));
    std::jthread opener([&] {
        std::this_thread::sleep_for(5ms);
        closed.release();
    });
    closed.acquire();
    std::printf("semaphore: %d through\n", total.load());
}

static void latches_and_barriers()
{
    constexpr int n = 50;
    std::latch ready(n), go(1), done(n);
    std::atomic<int> count{0};
    std::vector<std::jthread> all;
    for (int i = 0; i < n; i++)
        all.emplace_back([&] {
            ready.count_down();
            go.wait();
            count++;
            done.arrive_and_wait();
            REQUIRE(count == n);
        });
    ready.wait();
    REQUIRE(count == 0);
    go.count_down();
    all.clear();
    std::printf("latch: %d\n", count.load());

    int phases = 0;
    std::barrier sync(n, [&]() noexcept {
        REQUIRE(count == (phases + 2) * n);
        phases++;
    });
    for (int i = 0; i < n; i++)
        all.emplace_back([&] {
            for (int r = 0; r < 100; r++) {
                count++;
                sync.arrive_and_wait();
            }
        });
    all.clear();
    std::printf("barrier: %d phases\n", phases);
}

static void atomic_wait()
{
    std::atomic<int> turn{0};
    std::vector<std::jthread> all;
    constexpr int n = 16;
    for (int i = 0; i < n; i++)
        all.emplace_back([&, i] {
            for (int r = 0; r < 50; r++) {
                int want = r * n + i, now;
                while ((now = turn.load()) != want)
                    turn.wait(now);
                turn++;
                turn.notify_all();
            }
        });
    all.clear();
    std::atomic_flag flag;
    std::jthread setter([&] {
        std::this_thread::sleep_for(2ms);
        flag.test_and_set();
        flag.notify_all();
    });
    flag.wait(false);
    std::printf("atomic wait: %d turns\n", turn.load());
}

static void mutexes()
{
    std::recursive_timed_mutex recursive;
    std::timed_mutex timed;
    std::shared_timed_mutex shared;
    std::atomic<int> refused{0};
    long value = 0;
    {
        std::scoped_lock both(recursive, timed);
        std::scoped_lock again(recursive);
        std::vector<std::jthread> all;
        for (int i = 0; i < 20; i++)
            all.emplace_back([&] {
                if (!recursive.try_lock() && !timed.try_lock_for(10ms))
                    refused++;
            });
    }
    {
        std::vector<std::jthread> all;
        for (int i = 0; i < 8; i++)
            all.emplace_back([&] {
                for (int k = 0; k < 500; k++) {
                    std::unique_lock hold(shared);
                    value++;
                }
            });
        for (int i = 0; i < 8; i++)
            all.emplace_back([&] {
                for (int k = 0; k < 500; k++) {
                    std::shared_lock hold(shared);
                    REQUIRE(value >= 0 && value <= 4000);
                }
            });
    }
    // held over a sleep by more threads than carriers
    std::mutex plain;
    std::vector<std::jthread> all;
    for (int i = 0; i < 16; i++)
        all.emplace_back([&] {
            std::lock_guard hold(plain);
            std::this_thread::sleep_for(2ms);
            value++;
        });
    all.clear();
    std::printf("mutex: %d refused, %ld\n", refused.load(), value);
}

static std::atomic<int> made{0}, destroyed{0};

struct Counted {
    std::string text = "per thread";
    int uses = 0;
    Counted()
    {
        made++;
    }
    ~Counted()
    {
        REQUIRE(text == "per thread" && uses == 10);
        destroyed++;
    }
};

static thread_local Counted counted;

static void thread_locals_and_once()
{
    std::once_flag once;
    std::atomic<int> calls{0}, thrown{0};
    std::vector<std::jthread> all;
    for (int i = 0; i < 100; i++)
        all.emplace_back([&] {
            for (int k = 0; k < 10; k++) {
                counted.uses++;
                std::this_thread::yield();
            }
            try {
                std::call_once(once, [&] {
                    std::this_thread::sleep_for(1ms);
                    if (++calls == 1)
                        throw std::runtime_error("first call");
                });
            } catch (const std::runtime_error &) {
                thrown++;
            }
            static const int slow = [] {
                std::this_thread::sleep_for(5ms);
                return 7;
            }();
            REQUIRE(slow == 7);
        });
    all.clear();
    REQUIRE(made == destroyed);
    std::printf("thread_local: %d; call_once: %d calls, %d thrown\n", made.load(), calls.load(),
                thrown.load());
}

static void exceptions()
{
    std::atomic<int> caught{0};
    std::vector<std::jthread> all;
    for (int i = 0; i < 50; i++)
        all.emplace_back([&, i] {
            struct Guard {
                std::atomic<int> &n;
                ~Guard()
                {
                    n++;
                }
            };
            for (int k = 0; k < 20; k++) {
                try {
                    Guard guard{caught};
                    std::this_thread::sleep_for(100us);
                    throw std::to_string(i);
                } catch (const std::string &s) {
                    REQUIRE(s == std::to_string(i));
                    std::this_thread::yield();
                }
            }
        });
    all.clear();
    std::printf("exceptions: %d\n", caught.load());
}

int main()
{
    threads();
    async();
    condition_variables();
    semaphores();
    latches_and_barriers();
    atomic_wait();
    mutexes();
    thread_locals_and_once();
    exceptions();
    return 0;
}
