/*
 * The script for gdb, in the section that gdb looks at when it loads the library (gdb manual, "dotdebug_gdb_scripts
 * section"): 4 is Python text, followed by a name and a new line.
 */
    .section .debug_gdb_scripts, "MS", @progbits, 1
    .byte   4
    .ascii  "gdb.inlined-script.vthread\n"
    .incbin "vthread.py"
    .byte   0
    .section .note.GNU-stack, "", @progbits
