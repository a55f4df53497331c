//! A small agent: the other end of the socket, for the command line, benchmarks and tests.
