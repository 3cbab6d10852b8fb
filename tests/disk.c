/* Preloaded into a process: logs each change below $DISK_ROOT to $DISK_LOG/log, one line each, and saves the content of
   a file in $DISK_LOG whenever the file is forced to disk. If $DISK_FAULT_AT is n, the n-th change does not happen: the
   process is killed ($DISK_FAULT is "kill"), or the call fails once ("EIO"), or from then on as on a full disk
   ("ENOSPC").

   Lines: create PATH; size PATH SIZE [DATA in hex]; sync PATH NUMBER; folder PATH; rename FROM TO; remove PATH;
   mkdir PATH. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define LONGEST 8192
#define SHOWN 32
#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
/* Runs CALL as one change to PATH, and DONE if it succeeded. */
#define CHANGE(path, failed, removes, call, done) \
    do { \
        pthread_mutex_lock(&lock); \
        if (fails(removes)) { pthread_mutex_unlock(&lock); return failed; } \
        __typeof__(call) result = call; \
        int kept = errno; \
        if (result != failed) done; \
        pthread_mutex_unlock(&lock); \
        errno = kept; \
        return result; \
    } while (0)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root, *folder, *fault;
static size_t root_length;
static long fault_at, count, saved;
static int log_file = -1;

__attribute__((constructor)) static void start(void) {
    root = getenv("DISK_ROOT");
    folder = getenv("DISK_LOG");
    fault = getenv("DISK_FAULT");
    const char *at = getenv("DISK_FAULT_AT");
    fault_at = at ? atol(at) : 0;
    if (!root || !folder) { root = NULL; return; }
    root_length = strlen(root);
    char name[LONGEST];
    snprintf(name, sizeof name, "%s/log", folder);
    log_file = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int inside(const char *path) {
    return root && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int of_descriptor(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, LONGEST / 2 - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return inside(path);
}

static int of_name(int at, const char *name, char *path) {
    if (!root) return 0;
    if (name[0] == '/') { snprintf(path, LONGEST, "%s", name); return inside(path); }
    if (at == AT_FDCWD) { if (!getcwd(path, LONGEST / 2)) return 0; }
    else if (!of_descriptor(at, path)) return 0;
    strcat(path, "/");
    strncat(path, name, LONGEST / 2 - 2);
    return inside(path);
}

static void line(const char *op, const char *path, const char *rest) {
    char text[3 * LONGEST];
    int length = snprintf(text, sizeof text, "%s\t%s\t%s\n", op, path, rest);
    syscall(SYS_write, log_file, text, length);
}

static int fails(int removes) {
    count++;
    if (!fault || count < fault_at) return 0;
    if (!strcmp(fault, "kill") && count == fault_at) { kill(getpid(), SIGKILL); pause(); }
    if (!strcmp(fault, "EIO") && count == fault_at) { errno = EIO; return 1; }
    if (!strcmp(fault, "ENOSPC") && !removes) { errno = ENOSPC; return 1; }
    return 0;
}

static void log_size(int fd, const char *path, const char *data, size_t length) {
    struct stat about;
    char rest[64 + 2 * SHOWN];
    fstat(fd, &about);
    int end = snprintf(rest, sizeof rest, "%lld\t", (long long)about.st_size);
    for (size_t i = 0; data && i < length && i < SHOWN; i++) end += sprintf(rest + end, "%02x", (unsigned char)data[i]);
    line("size", path, rest);
}

static void log_sync(int fd, const char *path) {
    struct stat about;
    fstat(fd, &about);
    if (S_ISDIR(about.st_mode)) { line("folder", path, ""); return; }
    char name[LONGEST], number[32], block[1 << 16];
    snprintf(number, sizeof number, "%ld", ++saved);
    snprintf(name, sizeof name, "%s/%s", folder, number);
    int from = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    int to = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (ssize_t size; from >= 0 && (size = syscall(SYS_read, from, block, sizeof block)) > 0;)
        syscall(SYS_write, to, block, size);
    if (from >= 0) close(from);
    close(to);
    line("sync", path, number);
}

static int opened(int fd, const char *path, int existed) {
    if (existed) log_size(fd, path, NULL, 0);
    else line("create", path, "");
    return fd;
}

#define OPEN(name, arguments, at, call) \
    int name arguments { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | __O_TMPFILE)) { va_list v; va_start(v, flags); mode = va_arg(v, mode_t); va_end(v); } \
        char full[LONGEST]; \
        struct stat about; \
        if (!(flags & (O_CREAT | O_TRUNC)) || !of_name(at, path, full)) return call; \
        int existed = !lstat(full, &about); \
        if (existed && !(flags & O_TRUNC)) return call; \
        CHANGE(full, -1, 0, call, opened(result, full, existed)); \
    }
OPEN(open, (const char *path, int flags, ...), AT_FDCWD, real(path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, real(path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), at, real(at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), at, real(at, path, flags, mode))

#define WRITE(type, name, arguments, call, data, length) \
    type name arguments { \
        REAL(name); \
        char path[LONGEST]; \
        if (!root || !of_descriptor(fd, path)) return call; \
        CHANGE(path, -1, 0, call, log_size(fd, path, data, length)); \
    }
WRITE(ssize_t, write, (int fd, const void *data, size_t length), real(fd, data, length), data, length)
WRITE(ssize_t, pwrite, (int fd, const void *data, size_t length, off_t at), real(fd, data, length, at), NULL, 0)
WRITE(ssize_t, pwrite64, (int fd, const void *data, size_t length, off64_t at), real(fd, data, length, at), NULL, 0)
WRITE(ssize_t, writev, (int fd, const struct iovec *parts, int number), real(fd, parts, number), NULL, 0)
WRITE(int, ftruncate, (int fd, off_t size), real(fd, size), NULL, 0)
WRITE(int, ftruncate64, (int fd, off64_t size), real(fd, size), NULL, 0)

#define SYNC(name) \
    int name(int fd) { \
        REAL(name); \
        char path[LONGEST]; \
        if (!root || !of_descriptor(fd, path)) return real(fd); \
        CHANGE(path, -1, 0, real(fd), log_sync(fd, path)); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define NAMED(name, arguments, at, removes, op, call) \
    int name arguments { \
        REAL(name); \
        char full[LONGEST]; \
        if (!of_name(at, path, full)) return call; \
        CHANGE(full, -1, removes, call, line(op, full, "")); \
    }
NAMED(mkdir, (const char *path, mode_t mode), AT_FDCWD, 0, "mkdir", real(path, mode))
NAMED(mkdirat, (int at, const char *path, mode_t mode), at, 0, "mkdir", real(at, path, mode))
NAMED(unlink, (const char *path), AT_FDCWD, 1, "remove", real(path))
NAMED(rmdir, (const char *path), AT_FDCWD, 1, "remove", real(path))
NAMED(unlinkat, (int at, const char *path, int flags), at, 1, "remove", real(at, path, flags))

#define RENAME(name, arguments, from_at, to_at, call) \
    int name arguments { \
        REAL(name); \
        char full[LONGEST], target[LONGEST]; \
        if (!of_name(from_at, from, full) || !of_name(to_at, to, target)) return call; \
        CHANGE(full, -1, 0, call, line("rename", full, target)); \
    }
RENAME(rename, (const char *from, const char *to), AT_FDCWD, AT_FDCWD, real(from, to))
RENAME(renameat, (int a, const char *from, int b, const char *to), a, b, real(a, from, b, to))
