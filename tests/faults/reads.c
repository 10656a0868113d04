/* Preloaded: the N-th read of a file below FAULT_PREFIX fails with an errno, or comes up short; each, if N < 0.
   FAULT_FILE holds int64 count, int64 N, int64 errno (0: a short read), shared with the test. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile int64_t *control;
static const char *prefix;

__attribute__((constructor)) static void start(void) {
  const char *path = getenv("FAULT_FILE");
  prefix = getenv("FAULT_PREFIX");
  if (!path || !prefix) return;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  control = map == MAP_FAILED ? NULL : map;
  close(fd);
}

/* 0: go on; 1: errno is set; 2: a short read. */
static int fault(int fd) {
  char link[64], path[4096];
  if (!control || fd < 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return 0;
  path[size] = 0;
  if (strncmp(path, prefix, strlen(prefix)) != 0) return 0;
  int64_t number = __sync_add_and_fetch(&control[0], 1);
  if (control[1] >= 0 && number != control[1]) return 0;
  if (control[2] == 0) return 2;
  errno = (int)control[2];
  return 1;
}

ssize_t read(int fd, void *data, size_t size) {
  int kind = fault(fd);
  if (kind == 1) return -1;
  return syscall(SYS_read, fd, data, kind == 2 && size > 1 ? size / 2 : size);
}

ssize_t pread64(int fd, void *data, size_t size, off_t offset) {
  int kind = fault(fd);
  if (kind == 1) return -1;
  return syscall(SYS_pread64, fd, data, kind == 2 && size > 1 ? size / 2 : size, offset);
}
ssize_t pread(int fd, void *data, size_t size, off_t offset) {
  return pread64(fd, data, size, offset);
}

ssize_t readv(int fd, const struct iovec *parts, int count) {
  struct iovec first = parts[0];
  int kind = fault(fd);
  if (kind == 1) return -1;
  if (kind == 2 && first.iov_len > 1) first.iov_len /= 2;
  return syscall(SYS_readv, fd, kind == 2 ? &first : parts, kind == 2 ? 1 : count);
}

static ssize_t vector(int fd, const struct iovec *parts, int count, off_t offset) {
  struct iovec first = parts[0];
  int kind = fault(fd);
  if (kind == 1) return -1;
  if (kind == 2 && first.iov_len > 1) first.iov_len /= 2;
  if (kind == 2) return syscall(SYS_preadv, fd, &first, 1, offset, 0);
  return syscall(SYS_preadv, fd, parts, count, offset, 0);
}
ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
  return vector(fd, parts, count, offset);
}
ssize_t preadv64(int fd, const struct iovec *parts, int count, off_t offset) {
  return vector(fd, parts, count, offset);
}
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
  return vector(fd, parts, count, offset);
}
ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
  return vector(fd, parts, count, offset);
}

/* Pages of maps that cannot be read in, from the N-th call on: verify tries again by blocks. */
int madvise(void *start, size_t size, int advice) {
  if (control && advice == 22 && control[3] &&
      __sync_add_and_fetch(&control[0], 1) >= control[1] && control[1]) {
    errno = (int)control[2];
    return -1;
  }
  return (int)syscall(SYS_madvise, start, size, advice);
}
