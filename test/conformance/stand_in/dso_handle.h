/* Stands in for glibc's own header of this name. */
#pragma once
extern void *__dso_handle __attribute__((visibility("hidden")));
