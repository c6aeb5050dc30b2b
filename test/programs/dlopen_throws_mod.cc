/* A C++ module for a C program: throws and catches, and lets one through a frame with a destructor. */
#include <stdexcept>
#include <string>

struct counter {
    int *n;
    ~counter()
    {
        ++*n;
    }
};

static void dive(int depth, int *ended)
{
    counter c{ended};

    if (depth == 0)
        throw std::runtime_error("deep");
    dive(depth - 1, ended);
}

extern "C" int module_throw(int depth)
{
    int ended = 0;

    try {
        dive(depth, &ended);
    } catch (const std::exception &e) {
        return std::string(e.what()) == "deep" ? ended : -1;
    }
    return -2;
}
