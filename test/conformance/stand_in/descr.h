/* Stands in for glibc's own header of this name, for tests that include it and need nothing of it. */
#pragma once
