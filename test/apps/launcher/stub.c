/* Stands for the library in the launcher's test. */
int launcher_stub;
