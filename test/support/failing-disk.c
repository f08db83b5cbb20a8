/*
 * A disk that fails for files whose name has `inbox.db`, for as long as the file FAILING_DISK says how: `write`, `sync`,
 * or `late`: then it takes 150 ms to sync.
 * Preloaded into a process, it stands before the C library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is(int fd, char how) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  if (strstr(path, "inbox.db") == NULL) return 0;
  const char *name = getenv("FAILING_DISK");
  FILE *file = name == NULL ? NULL : fopen(name, "r");
  if (file == NULL) return 0;
  int said = fgetc(file);
  fclose(file);
  return said == how;
}

static int fails(int fd, char how) {
  if (!is(fd, how)) return 0;
  errno = EIO;
  return 1;
}

static void delay(int fd) {
  if (is(fd, 'l')) usleep(150000);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t length) {
  return fails(fd, 'w') ? -1 : NEXT(write)(fd, bytes, length);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
  return fails(fd, 'w') ? -1 : NEXT(pwrite)(fd, bytes, length, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
  return fails(fd, 'w') ? -1 : NEXT(pwrite64)(fd, bytes, length, at);
}
int fsync(int fd) {
  delay(fd);
  return fails(fd, 's') ? -1 : NEXT(fsync)(fd);
}
int fdatasync(int fd) { return fails(fd, 's') ? -1 : NEXT(fdatasync)(fd); }
