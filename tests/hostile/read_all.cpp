// Reads every row of every field of the slabs whose paths come on stdin, a line each. The answer is
// a line for each field: its name's length and CRC-32, that of its rows, and how it ended.

#define READ_SLAB_NO_MAIN
#include "read_slab.cpp"

#include <array>
#include <cstdio>
#include <iostream>

namespace {

class Checksum {
 public:
  Checksum() {
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int k = 0; k < 8; ++k) value = value & 1 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
      table_[i] = value;
    }
  }
  void add(const void* data, std::uint64_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (std::uint64_t i = 0; i < size; ++i)
      state_ = table_[(state_ ^ bytes[i]) & 255] ^ (state_ >> 8);
  }
  std::uint32_t value() const { return ~state_; }

 private:
  std::array<std::uint32_t, 256> table_;
  std::uint32_t state_ = ~std::uint32_t(0);
};

constexpr std::uint64_t kMostRows = 1000, kMostBytes = 1 << 24;

void read_column(const slab::Slab& opened, const std::string& name) {
  Checksum of_name, of_rows;
  of_name.add(name.data(), name.size());
  const char* end = "read";
  try {
    const slab::Column column = opened.column(name);
    std::uint64_t bytes = 0;
    for (std::uint64_t row = 0; row < std::min(column.rows(), kMostRows); ++row) {
      const slab::Row found = column.row(row);
      const std::uint64_t size = found.null ? ~std::uint64_t(0) : found.size;
      of_rows.add(&size, sizeof size);
      if (found.null) continue;
      bytes += found.size;
      if (bytes > kMostBytes) {
        end = "large";
        break;
      }
      of_rows.add(found.data, found.size);
      if (!column.field().nested) continue;
      for (const slab::Row& list : column.lists(row)) {
        const std::uint64_t length = list.null ? ~std::uint64_t(0) : list.size;
        of_rows.add(&length, sizeof length);
      }
    }
  } catch (const slab::Error&) {
    end = "refused";
  }
  std::printf("%zu %u %u %s\n", name.size(), of_name.value(), of_rows.value(), end);
}

}  // namespace

int main() {
  for (std::string path; std::getline(std::cin, path);) {
    try {
      const slab::Slab opened(path);
      for (const slab::Field& field : opened.fields()) read_column(opened, field.name);
    } catch (const slab::Error&) {
    }
    std::puts("done");
    std::fflush(stdout);
  }
}
