/* What a descriptor of the running target is: a file, a pipe, a socket and who is at its other end. From
 * /proc alone: nothing is done to the descriptor. */
#ifndef DUMP_SOCKETS_H
#define DUMP_SOCKETS_H

/* A text that stays, such as "tcp 127.0.0.1:80 from 127.0.0.1:51234" or "/var/log/x"; NULL if nothing is
 * known. */
const char *descriptor_text(int fd);

#endif
