/* Loaded late, with initialised thread-local variables in the static block (-ftls-model=initial-exec). */
static __thread long value = 0x123456789;
static __thread char text[32] = "initial";
static __thread long zero;

long *module_value(void);
char *module_text(void);
long *module_zero(void);

long *module_value(void)
{
    return &value;
}

char *module_text(void)
{
    return text;
}

long *module_zero(void)
{
    return &zero;
}
