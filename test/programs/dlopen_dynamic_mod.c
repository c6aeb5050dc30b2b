/* Loaded and unloaded in a loop; its thread-local variables are made on first use. */
static __thread long value = 42;
static int constructed;

long module_bump(void);
int module_constructed(void);

__attribute__((constructor)) static void construct(void)
{
    constructed = 1;
}

long module_bump(void)
{
    return ++value;
}

int module_constructed(void)
{
    return constructed;
}
