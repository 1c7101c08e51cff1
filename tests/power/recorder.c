/* A library for LD_PRELOAD that records what a process asks of the disk.
 *
 * Only paths below $RECORD_BELOW are recorded, each operation as one record appended to $RECORD_LOG:
 *   one letter, the length of the path, the path, an offset, the length of the data, the data (integers of 8 bytes, host order).
 * w write, t truncate, s sync (of a file or a folder), c create, u unlink, r rename and l link (data: the new path), m mkdir.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int below(const char *path)
{
    const char *root = getenv("RECORD_BELOW");
    size_t n = root ? strlen(root) : 0;
    return n && strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == 0);
}

static const char *absolute(const char *path, char *room)
{
    char here[PATH_MAX];
    if (path[0] == '/' || !getcwd(here, sizeof here))
        return path;
    snprintf(room, PATH_MAX, "%s/%s", here, path);
    return room;
}

static void record(char kind, const char *path, uint64_t offset, const void *data, uint64_t size)
{
    uint64_t length = strlen(path);
    pthread_mutex_lock(&lock);
    int log = REAL(open)(getenv("RECORD_LOG"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    char *all = malloc(25 + length + size);
    if (log < 0 || !all)
        abort();
    all[0] = kind;
    memcpy(all + 1, &length, 8);
    memcpy(all + 9, path, length);
    memcpy(all + 9 + length, &offset, 8);
    memcpy(all + 17 + length, &size, 8);
    memcpy(all + 25 + length, data, size);
    for (uint64_t done = 0; done < 25 + length + size;) {
        ssize_t step = REAL(write)(log, all + done, 25 + length + size - done);
        if (step <= 0)
            abort();
        done += (uint64_t)step;
    }
    REAL(close)(log);
    free(all);
    pthread_mutex_unlock(&lock);
}

static int path_of(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0)
        return 0;
    path[n] = 0;
    return below(path);
}

ssize_t write(int file, const void *data, size_t size)
{
    char path[PATH_MAX];
    int mine = path_of(file, path);
    off_t at = mine ? lseek(file, 0, SEEK_CUR) : 0;
    if (mine && fcntl(file, F_GETFL) & O_APPEND)
        at = lseek(file, 0, SEEK_END);
    ssize_t done = REAL(write)(file, data, size);
    if (mine && done > 0)
        record('w', path, (uint64_t)at, data, (uint64_t)done);
    return done;
}

static ssize_t write_at(int file, const void *data, size_t size, off_t at)
{
    char path[PATH_MAX];
    ssize_t done = REAL(pwrite)(file, data, size, at);
    if (done > 0 && path_of(file, path))
        record('w', path, (uint64_t)at, data, (uint64_t)done);
    return done;
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return write_at(file, data, size, at); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { return write_at(file, data, size, at); }

static int truncate_to(int file, off_t size)
{
    char path[PATH_MAX];
    int failed = REAL(ftruncate)(file, size);
    if (!failed && path_of(file, path))
        record('t', path, (uint64_t)size, "", 0);
    return failed;
}

int ftruncate(int file, off_t size) { return truncate_to(file, size); }
int ftruncate64(int file, off64_t size) { return truncate_to(file, size); }

int fsync(int file)
{
    char path[PATH_MAX];
    int failed = REAL(fsync)(file);
    if (!failed && path_of(file, path))
        record('s', path, 0, "", 0);
    return failed;
}

int fdatasync(int file)
{
    char path[PATH_MAX];
    int failed = REAL(fdatasync)(file);
    if (!failed && path_of(file, path))
        record('s', path, 0, "", 0);
    return failed;
}

static int open_at(int folder, const char *name, int flags, mode_t mode)
{
    char room[PATH_MAX], path[PATH_MAX];
    struct stat unused;
    int is_new = (flags & O_CREAT) && below(absolute(name, room)) && stat(name, &unused) != 0;
    int file = REAL(openat)(folder, name, flags, mode);
    if (file >= 0 && path_of(file, path)) {
        if (is_new)
            record('c', path, 0, "", 0);
        else if (flags & O_TRUNC)
            record('t', path, 0, "", 0);
    }
    return file;
}

#define MODE(flags, last) mode_t mode = 0; if ((flags) & O_CREAT) { va_list more; va_start(more, last); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *name, int flags, ...) { MODE(flags, flags) return open_at(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags, flags) return open_at(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE(flags, flags) return open_at(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE(flags, flags) return open_at(folder, name, flags, mode); }

int unlink(const char *name)
{
    char room[PATH_MAX];
    const char *path = absolute(name, room);
    int failed = REAL(unlink)(name);
    if (!failed && below(path))
        record('u', path, 0, "", 0);
    return failed;
}

int rename(const char *old, const char *new)
{
    char room[PATH_MAX], other[PATH_MAX];
    const char *from = absolute(old, room), *to = absolute(new, other);
    int failed = REAL(rename)(old, new);
    if (!failed && below(from))
        record('r', from, 0, to, strlen(to));
    return failed;
}

int link(const char *old, const char *new)
{
    char room[PATH_MAX], other[PATH_MAX];
    const char *from = absolute(old, room), *to = absolute(new, other);
    int failed = REAL(link)(old, new);
    if (!failed && below(from))
        record('l', from, 0, to, strlen(to));
    return failed;
}

int mkdir(const char *name, mode_t mode)
{
    char room[PATH_MAX];
    const char *path = absolute(name, room);
    int failed = REAL(mkdir)(name, mode);
    if (!failed && below(path))
        record('m', path, 0, "", 0);
    return failed;
}
