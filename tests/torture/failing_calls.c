/* Preloaded into a real process: its system calls on files below one folder fail now and then.

   arm(root, seed, permille): from now on; permille 0: no more. struck(): how many failed so far.
   A call fails before it does anything, but a name that is made, changed or removed may also have been
   when the error is told (`late`), as on a network file system or after an interrupted journal. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static char root[4096];
static size_t root_length;
static uint64_t seed, calls, failed;
static unsigned permille;

void arm(const char *folder, uint64_t new_seed, unsigned chance) {
    permille = 0;
    strncpy(root, folder, sizeof root - 1);
    root_length = strlen(root);
    seed = new_seed;
    permille = chance;
}

uint64_t struck(void) { return __atomic_load_n(&failed, __ATOMIC_RELAXED); }

static uint64_t next_random(void) {
    uint64_t z = seed + 0x9e3779b97f4a7c15u * __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

enum { EARLY = 1, LATE = 2 };

static int strike(const char *path, const int *numbers, int count) {
    if (!permille || strncmp(path, root, root_length)) return 0;
    uint64_t random = next_random();
    if (random % 1000 >= permille) return 0;
    __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
    errno = numbers[(random >> 20) % count];
    return (random >> 40) & 1 ? LATE : EARLY;
}

static int strike_open(int descriptor, const int *numbers, int count) {
    char link[64], path[4096];
    if (!permille) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strike(path, numbers, count);
}

static const int OPENING[] = {EMFILE, EIO, ENFILE, ENOSPC}, READING[] = {EIO};
static const int WRITING[] = {ENOSPC, EIO}, MAPPING[] = {ENOMEM, EIO}, NAMING[] = {EIO, ENOSPC};
#define OF(numbers) numbers, (int)(sizeof numbers / sizeof *numbers)
#define REAL(type, name, ...)                                     \
    static type (*real)(__VA_ARGS__);                             \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define OPEN(name)                                                \
    int name(const char *path, int flags, ...) {                  \
        REAL(int, name, const char *, int, ...);                  \
        va_list more;                                             \
        va_start(more, flags);                                    \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                             \
        if (strike(path, OF(OPENING))) return -1;                 \
        return real(path, flags, mode);                           \
    }
OPEN(open)
OPEN(open64)

#define ON_DESCRIPTOR(type, name, numbers, declared, ...)         \
    type name declared {                                          \
        static type(*real) declared;                              \
        if (!real) real = (type(*) declared)dlsym(RTLD_NEXT, #name); \
        if (strike_open(fd, OF(numbers))) return -1;              \
        return real(__VA_ARGS__);                                 \
    }
ON_DESCRIPTOR(ssize_t, pread, READING, (int fd, void *data, size_t size, off_t at), fd, data, size, at)
ON_DESCRIPTOR(ssize_t, pread64, READING, (int fd, void *data, size_t size, off64_t at), fd, data, size, at)
ON_DESCRIPTOR(ssize_t, pwrite, WRITING, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
ON_DESCRIPTOR(ssize_t, pwrite64, WRITING, (int fd, const void *data, size_t size, off64_t at), fd, data, size, at)
ON_DESCRIPTOR(int, fsync, WRITING, (int fd), fd)
ON_DESCRIPTOR(int, fdatasync, WRITING, (int fd), fd)
ON_DESCRIPTOR(int, ftruncate, WRITING, (int fd, off_t size), fd, size)
ON_DESCRIPTOR(int, ftruncate64, WRITING, (int fd, off64_t size), fd, size)
ON_DESCRIPTOR(int, fstat, READING, (int fd, struct stat *found), fd, found)
ON_DESCRIPTOR(int, fstat64, READING, (int fd, struct stat64 *found), fd, found)
ON_DESCRIPTOR(int, fstatvfs, READING, (int fd, struct statvfs *found), fd, found)

#define FALLOCATE(name, offset)                                   \
    int name(int fd, offset at, offset size) {                    \
        REAL(int, name, int, offset, offset);                     \
        if (strike_open(fd, OF(WRITING))) return errno;           \
        return real(fd, at, size);                                \
    }
FALLOCATE(posix_fallocate, off_t)
FALLOCATE(posix_fallocate64, off64_t)

#define MMAP(name, offset)                                        \
    void *name(void *where, size_t size, int protection, int flags, int fd, offset at) { \
        REAL(void *, name, void *, size_t, int, int, int, offset); \
        if (fd >= 0 && strike_open(fd, OF(MAPPING))) return MAP_FAILED; \
        return real(where, size, protection, flags, fd, at);      \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

/* A mapping has no descriptor: every msync counts as one below the folder. */
int msync(void *where, size_t size, int flags) {
    REAL(int, msync, void *, size_t, int);
    if (strike(root, OF(WRITING))) return -1;
    return real(where, size, flags);
}

#define ON_PATH(name, numbers, declared, ...)                     \
    int name declared {                                           \
        static int(*real) declared;                               \
        if (!real) real = (int(*) declared)dlsym(RTLD_NEXT, #name); \
        if (strike(path, OF(numbers))) return -1;                 \
        return real(__VA_ARGS__);                                 \
    }
ON_PATH(stat, READING, (const char *path, struct stat *found), path, found)
ON_PATH(stat64, READING, (const char *path, struct stat64 *found), path, found)
ON_PATH(statvfs, READING, (const char *path, struct statvfs *found), path, found)
ON_PATH(statvfs64, READING, (const char *path, struct statvfs64 *found), path, found)
ON_PATH(mkdir, NAMING, (const char *path, mode_t mode), path, mode)

#define ON_NAME(name, declared, ...)                              \
    int name declared {                                           \
        static int(*real) declared;                               \
        if (!real) real = (int(*) declared)dlsym(RTLD_NEXT, #name); \
        int struck_now = strike(path, OF(NAMING)), number = errno; \
        if (struck_now == EARLY) return -1;                       \
        int result = real(__VA_ARGS__);                           \
        if (struck_now != LATE || result) return result;          \
        errno = number;                                           \
        return -1;                                                \
    }
ON_NAME(rename, (const char *path, const char *target), path, target)
ON_NAME(link, (const char *path, const char *target), path, target)
ON_NAME(unlink, (const char *path), path)

DIR *opendir(const char *path) {
    REAL(DIR *, opendir, const char *);
    if (strike(path, OF(OPENING))) return NULL;
    return real(path);
}
