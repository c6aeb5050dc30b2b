/* The C++ side of arch_test.c. */
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <unistd.h>

extern "C" {
extern int cleanups;
int throw_and_catch(int value);
int throw_through(void (*step)(void));
void throw_uncaught(void);
int cleanups_run(void (*body)(void));
}

namespace
{

struct Counted {
    ~Counted()
    {
        cleanups++;
    }
};

[[gnu::noinline]] void thrower(int depth, int value)
{
    std::string on_the_heap(100, 'x');

    if (depth)
        thrower(depth - 1, value);
    else
        throw value;
    if (on_the_heap.empty())
        std::abort();
}

[[gnu::noinline]] int nested(int depth, void (*body)(void))
{
    Counted c;

    if (depth)
        return nested(depth - 1, body) + 1;
    body();
    return 0;
}

} // namespace

int throw_and_catch(int value)
{
    try {
        thrower(10, value);
    } catch (int caught) {
        return caught;
    }
    return -1;
}

/* 100 if the exception is still there after `step`, called inside of the handler, has returned. */
int throw_through(void (*step)(void))
{
    try {
        throw std::runtime_error("hundred");
    } catch (const std::exception &e) {
        step();
        return std::string(e.what()) == "hundred" ? 100 : 0;
    }
}

void throw_uncaught(void)
{
    std::set_terminate([] { _exit(7); });
    throw std::runtime_error("nobody catches this");
}

int cleanups_run(void (*body)(void))
{
    return nested(2, body);
}
