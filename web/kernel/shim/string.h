/* The two functions of the C library that the kernel uses. clang compiles them to memory.fill and memory.copy. */
#define memset __builtin_memset
#define memcpy __builtin_memcpy
