/* Sleeps for SECONDS; linked statically, so that no loader preloads anything. */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    usleep((useconds_t)(atof(argv[argc - 1]) * 1e6));
    return 0;
}
