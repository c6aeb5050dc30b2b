/* Stands in for glibc's own header of this name: the alignment of its thread control block. */
#pragma once
#define TCB_ALIGNMENT 64
