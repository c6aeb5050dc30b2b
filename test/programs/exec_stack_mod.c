/* Linked so that it wants executable stacks. */
int exec_stack_mod(int x);

int exec_stack_mod(int x)
{
    return x + 1;
}
