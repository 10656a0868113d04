// Memory between pages that nobody may touch, also for the arrays of numpy.
//
// Data end right in front of a guard page, but for up to 15 bytes of alignment, which hold a mark
// that is looked at when the memory is freed. What new memory holds differs each time.

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, FRONT = 32, ALIGN = 16, FILLED = 1 << 16, MARK = 0xA5 };

static unsigned char fill;

static size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

static unsigned char *find_room(void *data) {
  return (unsigned char *)((uintptr_t)((unsigned char *)data - FRONT) & ~(uintptr_t)(PAGE - 1));
}

void *guard_new(size_t size, size_t align) {
  if (size > SIZE_MAX / 2) return NULL;
  size_t aligned = round_up(size, align), room = round_up(aligned + FRONT, PAGE);
  unsigned char *start = mmap(NULL, room + 2 * PAGE, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return NULL;
  if (mprotect(start + PAGE, room, PROT_READ | PROT_WRITE)) {
    munmap(start, room + 2 * PAGE);
    return NULL;
  }
  unsigned char *data = start + PAGE + room - aligned;
  memcpy(start + PAGE, &size, sizeof size);
  memcpy(start + PAGE + sizeof size, &room, sizeof room);
  memset(data - (FRONT - 2 * sizeof size), MARK, FRONT - 2 * sizeof size);
  memset(data + size, MARK, aligned - size);
  return data;
}

// Nobody may write there from now on.
void guard_seal(void *data) {
  size_t room;
  unsigned char *start = find_room(data);
  memcpy(&room, start + sizeof room, sizeof room);
  mprotect(start, room, PROT_READ);
}

void guard_free(void *data) {
  if (!data) return;
  unsigned char *start = find_room(data), *byte = data;
  size_t size, room;
  memcpy(&size, start, sizeof size);
  memcpy(&room, start + sizeof size, sizeof room);
  int whole = 1;
  for (int i = 1; i <= (int)(FRONT - 2 * sizeof size); i++) whole &= byte[-i] == MARK;
  for (byte += size; byte < start + room; byte++) whole &= *byte == MARK;
  if (!whole) {
    fprintf(stderr, "memory was written beside an array of %zu bytes\n", size);
    abort();
  }
  munmap(start - PAGE, room + 2 * PAGE);
}

static void *new_array(void *context, size_t size) {
  (void)context;
  void *data = guard_new(size, ALIGN);
  if (data) memset(data, ++fill, size < FILLED ? size : FILLED);
  return data;
}

static void *new_zeros(void *context, size_t count, size_t size) {
  (void)context;
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? NULL : guard_new(bytes, ALIGN);
}

static void free_array(void *context, void *data, size_t size) {
  (void)context, (void)size;
  guard_free(data);
}

static void *resize_array(void *context, void *data, size_t size) {
  void *larger = new_array(context, size);
  if (larger && data) {
    size_t before;
    memcpy(&before, find_room(data), sizeof before);
    memcpy(larger, data, before < size ? before : size);
    guard_free(data);
  }
  return larger;
}

// PyDataMem_Handler of numpy, version 1.
struct {
  char name[127];
  uint8_t version;
  void *context;
  void *(*new_array)(void *, size_t);
  void *(*new_zeros)(void *, size_t, size_t);
  void *(*resize_array)(void *, void *, size_t);
  void (*free_array)(void *, void *, size_t);
} guard_handler = {"guarded", 1, NULL, new_array, new_zeros, resize_array, free_array};
