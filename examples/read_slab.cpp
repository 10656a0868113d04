// Read a slab in C++17, by schemas/FORMAT.md alone: no fieldslab, no library but the standard
// one. Copy this file into a project, define READ_SLAB_NO_MAIN, and it is a header:
//
//     slab::Slab train("train.slab");          // or with the id that it must have, as second argument
//     slab::Column tokens = train.column("tokens");
//     slab::Row row = tokens.row(7);           // row.data, row.size in bytes, row.null
//     for (slab::Row text : train.column("tags").lists(7)) ...  // of a nested field
//
// As a program it lists the fields of a slab, or prints rows in hexadecimal, lists in brackets:
//
//     g++ -std=c++17 -O2 examples/read_slab.cpp -o build/read_slab
//     build/read_slab photos.slab
//     build/read_slab photos.slab caption 7
//     build/read_slab --id ID photos.slab caption
//
// Files are mapped, not read. Their sizes, headers and offsets are checked, so that a wrong slab
// is an error and never a wild pointer. SHA-256 digests of blocks are checked when a row in them is
// first asked for; those of XXH3, which find accidents, are left to `fieldslab verify`. A Slab holds its
// directory open and finds every column below it: one that `fieldslab pack --force` replaces
// meanwhile stays readable as it was, and what was removed is an Error that says so. Columns stay
// readable as long as they live. Compressed fields are listed, but not read. For Linux and macOS
// on little-endian machines.

#ifndef READ_SLAB_CPP
#define READ_SLAB_CPP

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace slab {

constexpr std::uint64_t kHeader = 4096;
constexpr std::uint64_t kMaxManifest = 16 * 1024 * 1024;
constexpr std::uint64_t kMaxCount = std::uint64_t(1) << 48;
constexpr std::uint64_t kBlock = 65536;
constexpr int kMaxDepth = 64;

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---------------------------------------------------------------------------------------------
// SHA-256 (FIPS 180-4, sections 5 and 6)

using Sha256 = std::array<unsigned char, 32>;

class Hasher {
 public:
  void add(const unsigned char* data, std::uint64_t size) {
    total_ += size;
    for (; size; ++data, --size) {
      chunk_[filled_++] = *data;
      if (filled_ < sizeof chunk_) continue;
      compress(chunk_);
      filled_ = 0;
      for (; size > 64; size -= 64, data += 64) compress(data + 1);
    }
  }

  Sha256 finish() {
    const std::uint64_t bits = 8 * total_;
    const unsigned char one = 0x80, zero = 0;
    add(&one, 1);
    while (filled_ != 56) add(&zero, 1);
    unsigned char length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
    add(length, 8);
    Sha256 digest;
    for (std::size_t i = 0; i < 32; ++i)
      digest[i] = static_cast<unsigned char>(state_[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
  }

 private:
  std::uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned char chunk_[64];
  std::size_t filled_ = 0;
  std::uint64_t total_ = 0;

  static std::uint32_t rotate(std::uint32_t word, int bits) {
    return word >> bits | word << (32 - bits);
  }

  void compress(const unsigned char* data) {
    static const std::uint32_t kRounds[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    std::uint32_t w[64];
    for (int i = 0; i < 16; ++i)
      w[i] = std::uint32_t(data[4 * i]) << 24 | std::uint32_t(data[4 * i + 1]) << 16 |
             std::uint32_t(data[4 * i + 2]) << 8 | data[4 * i + 3];
    for (int i = 16; i < 64; ++i) {
      const std::uint32_t near = w[i - 2], far = w[i - 15];
      w[i] = (rotate(near, 17) ^ rotate(near, 19) ^ near >> 10) + w[i - 7] +
             (rotate(far, 7) ^ rotate(far, 18) ^ far >> 3) + w[i - 16];
    }
    std::uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3];
    std::uint32_t e = state_[4], f = state_[5], g = state_[6], h = state_[7];
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t first = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                                  ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
      const std::uint32_t second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                                   ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first;
      d = c, c = b, b = a, a = first + second;
    }
    const std::uint32_t sums[] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state_[i] += sums[i];
  }
};

inline Sha256 sha256(const unsigned char* data, std::uint64_t size) {
  Hasher hasher;
  hasher.add(data, size);
  return hasher.finish();
}

inline std::string to_hex(const Sha256& digest) {
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// ---------------------------------------------------------------------------------------------
// JSON, as much as a manifest needs

struct Json {
  enum Type { kNull, kBool, kNumber, kString, kArray, kObject } type = kNull;
  bool truth = false;
  std::string text;  // of a string, decoded; of a number, as it stands
  std::vector<Json> items;
  std::map<std::string, Json> members;

  const Json* find(const std::string& key) const {
    auto found = members.find(key);
    return found == members.end() ? nullptr : &found->second;
  }
  const Json& at(const std::string& key) const {
    const Json* found = find(key);
    if (type != kObject || !found) throw Error("manifest.json: `" + key + "` is missing");
    return *found;
  }
  const std::string& string() const {
    if (type != kString) throw Error("manifest.json: a string was expected");
    return text;
  }
  const std::vector<Json>& array() const {
    if (type != kArray) throw Error("manifest.json: a list was expected");
    return items;
  }
  bool boolean() const {
    if (type != kBool) throw Error("manifest.json: true or false was expected");
    return truth;
  }
  std::uint64_t count() const {
    bool digits = type == kNumber && !text.empty() && text.size() <= 15 &&
                  text.find_first_not_of("0123456789") == std::string::npos;
    std::uint64_t value = digits ? std::stoull(text) : kMaxCount + 1;
    if (value > kMaxCount) throw Error("manifest.json: a count is no integer up to 2^48");
    return value;
  }
};

class JsonParser {
 public:
  explicit JsonParser(const std::string& source) : at_(source.data()), end_(at_ + source.size()) {}

  Json parse() {
    Json value = parse_value(0);
    skip_spaces();
    if (at_ != end_) fail("text behind its end");
    return value;
  }

 private:
  const char* at_;
  const char* end_;

  [[noreturn]] static void fail(const std::string& why) {
    throw Error("manifest.json: not valid JSON: " + why);
  }
  void skip_spaces() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  char next() {
    if (at_ == end_) fail("it ends early");
    return *at_++;
  }
  bool take(char wanted) {
    skip_spaces();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail(std::string("no '") + wanted + "' where one belongs");
  }
  void expect_word(const char* word) {
    for (; *word; ++word)
      if (next() != *word) fail("unknown word");
  }

  Json parse_value(int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    skip_spaces();
    if (at_ == end_) fail("it ends early");
    Json value;
    switch (*at_) {
      case '{':
        value.type = Json::kObject;
        parse_members(value, depth);
        break;
      case '[':
        value.type = Json::kArray;
        parse_items(value, depth);
        break;
      case '"':
        value.type = Json::kString;
        value.text = parse_string();
        break;
      case 't':
        expect_word("true");
        value.type = Json::kBool;
        value.truth = true;
        break;
      case 'f':
        expect_word("false");
        value.type = Json::kBool;
        break;
      case 'n':
        expect_word("null");
        break;
      default:
        value.type = Json::kNumber;
        value.text = parse_number();
    }
    return value;
  }

  void parse_members(Json& value, int depth) {
    expect('{');
    if (take('}')) return;
    do {
      skip_spaces();
      std::string key = parse_string();
      expect(':');
      if (!value.members.emplace(key, parse_value(depth + 1)).second) fail("a key comes twice");
    } while (take(','));
    expect('}');
  }

  void parse_items(Json& value, int depth) {
    expect('[');
    if (take(']')) return;
    do value.items.push_back(parse_value(depth + 1));
    while (take(','));
    expect(']');
  }

  std::string parse_number() {
    const char* start = at_;
    while (at_ < end_ && std::strchr("+-.eE0123456789", *at_) && *at_) ++at_;
    if (at_ == start) fail("unknown character");
    return std::string(start, at_);
  }

  std::string parse_string() {
    if (next() != '"') fail("a string was expected");
    std::string text;
    for (char c = next(); c != '"'; c = next()) {
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      if (c == '\\')
        parse_escape(text);
      else
        text += c;
    }
    return text;
  }

  void parse_escape(std::string& text) {
    static const char kLetters[] = "\"\\/bfnrt", kMeanings[] = "\"\\/\b\f\n\r\t";
    char c = next();
    if (c != 'u') {
      const char* found = c ? std::strchr(kLetters, c) : nullptr;
      if (!found) fail("unknown escape");
      text += kMeanings[found - kLetters];
      return;
    }
    std::uint32_t code = parse_unit();
    if (code >= 0xD800 && code < 0xDC00) {
      expect_word("\\u");
      std::uint32_t low = parse_unit();
      if (low < 0xDC00 || low > 0xDFFF) fail("half a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      fail("half a surrogate pair");
    }
    append_utf8(text, code);
  }

  std::uint32_t parse_unit() {
    static const std::string kDigits = "0123456789abcdef";
    std::uint32_t unit = 0;
    for (int i = 0; i < 4; ++i) {
      char c = next();
      std::size_t digit = kDigits.find(c >= 'A' && c <= 'F' ? char(c + 32) : c);
      if (digit == std::string::npos) fail("unknown escape");
      unit = unit * 16 + std::uint32_t(digit);
    }
    return unit;
  }

  static void append_utf8(std::string& text, std::uint32_t code) {
    if (code < 0x80) {
      text += char(code);
      return;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int kLead[] = {0, 0xC0, 0xE0, 0xF0};
    text += char(kLead[more] | (code >> (6 * more)));
    while (more-- > 0) text += char(0x80 | ((code >> (6 * more)) & 0x3F));
  }
};

// As the `id` of a slab is computed of it (FORMAT.md, rule 18): keys sorted, no spaces, no escapes
// but those that JSON demands. Numbers stay as they stand.
inline void write_canonically(const Json& value, std::string& out) {
  auto write_string = [&out](const std::string& text) {
    static const char kDigits[] = "0123456789abcdef", kLetters[] = "\"\\/bfnrt",
                      kMeanings[] = "\"\\/\b\f\n\r\t";
    out += '"';
    for (char c : text) {
      const char* found = c && c != '/' ? std::strchr(kMeanings, c) : nullptr;
      if (found)
        (out += '\\') += kLetters[found - kMeanings];
      else if (static_cast<unsigned char>(c) < 0x20)
        ((out += "\\u00") += kDigits[c >> 4]) += kDigits[c & 15];
      else
        out += c;
    }
    out += '"';
  };
  const char* comma = "";
  switch (value.type) {
    case Json::kNull:
      out += "null";
      break;
    case Json::kBool:
      out += value.truth ? "true" : "false";
      break;
    case Json::kNumber:
      out += value.text;
      break;
    case Json::kString:
      write_string(value.text);
      break;
    case Json::kArray:
      out += '[';
      for (const Json& item : value.items) {
        out += comma;
        write_canonically(item, out);
        comma = ",";
      }
      out += ']';
      break;
    case Json::kObject:
      out += '{';
      for (const auto& member : value.members) {
        out += comma;
        write_string(member.first);
        out += ':';
        write_canonically(member.second, out);
        comma = ",";
      }
      out += '}';
  }
}

// ---------------------------------------------------------------------------------------------
// The manifest (FORMAT.md, "Fields", "Shards" and "Manifest")

struct Field {
  std::string name, stem, kind, dtype;
  std::vector<std::uint64_t> shape;
  bool nullable = false;
  bool nested = false;                  // a row is a list of lists
  bool indexed = false, coded = false;  // more arrays of images
  bool compressed = false;              // rows are zstd frames, which need a library

  bool variable() const { return compressed || is_of_variable_length(); }
  bool is_of_variable_length() const {
    return nested || kind == "ragged" || kind == "text" || kind == "binary" || kind == "image";
  }
};

struct Shard {
  std::uint64_t rows = 0;
  std::vector<std::uint64_t> elements;  // of each variable-length field
  std::vector<std::uint64_t> nulls;     // of each nullable field
  std::vector<std::uint64_t> points;    // of each indexed and nested field
  std::string root;
};

struct Manifest {
  std::uint64_t rows = 0;
  std::string id;
  bool sha256 = false;  // the digests of blocks
  std::vector<Field> fields;
  std::vector<Shard> shards;
};

// What a reader does not know, it refuses by name: it might change what it does know.
inline void know(const Json& object, std::initializer_list<const char*> names) {
  if (object.type != Json::kObject) throw Error("manifest.json: an object was expected");
  for (const auto& member : object.members)
    if (std::find(names.begin(), names.end(), member.first) == names.end())
      throw Error("manifest.json: unknown member `" + member.first + "`");
}

inline std::vector<std::uint64_t> parse_counts(const Json& list) {
  std::vector<std::uint64_t> counts;
  for (const Json& item : list.array()) counts.push_back(item.count());
  return counts;
}

// [0-9]{2,6}-[a-z0-9_]{1,40}: a stem becomes a file name, and must not become a path.
inline bool is_stem(const std::string& stem) {
  const std::string digits = "0123456789", letters = digits + "abcdefghijklmnopqrstuvwxyz_";
  std::size_t dash = stem.find('-');
  return dash != std::string::npos && dash >= 2 && dash <= 6 &&
         stem.find_first_not_of(digits) == dash && stem.size() - dash - 1 >= 1 &&
         stem.size() - dash - 1 <= 40 &&
         stem.find_first_not_of(letters, dash + 1) == std::string::npos;
}

// Bytes of an array, of no more than 2^62.
inline std::uint64_t multiply(std::uint64_t items, std::uint64_t bytes) {
  std::uint64_t product;
  if (__builtin_mul_overflow(items, bytes, &product) || product >> 62)
    throw Error("manifest.json: an array is too large");
  return product;
}

inline Field parse_field(const Json& json) {
  know(json, {"name", "stem", "kind", "dtype", "shape", "nullable", "inner", "codec", "index", "coded",
              "logical", "categories", "table", "compression", "attributes"});
  Field field;
  field.name = json.at("name").string();
  field.stem = json.at("stem").string();
  field.kind = json.at("kind").string();
  field.dtype = json.find("dtype") ? json.at("dtype").string() : "uint8";
  if (json.find("shape")) field.shape = parse_counts(json.at("shape"));
  if (json.find("nullable")) field.nullable = json.at("nullable").boolean();
  field.nested = field.kind == "nested";
  if (field.nested != (json.find("inner") != nullptr))
    throw Error("manifest.json: `inner` belongs to nested fields");
  std::uint64_t items = 1;
  for (std::uint64_t length : field.shape) items = multiply(items, std::max<std::uint64_t>(length, 1));
  field.indexed = json.find("index") != nullptr;
  if (json.find("coded")) field.coded = json.at("coded").boolean();
  field.compressed = json.find("compression") != nullptr;
  if (!is_stem(field.stem)) throw Error("manifest.json: no file can have the stem " + field.stem);
  if (!field.variable() && field.kind != "fixed" && field.kind != "categorical")
    throw Error("manifest.json: unknown kind " + field.kind);
  return field;
}

inline Manifest parse_manifest(const std::string& source) {
  Json json = JsonParser(source).parse();
  if (json.at("format").string() != "fieldslab") throw Error("manifest.json: no fieldslab manifest");
  if (json.at("version").count() != 1)
    throw Error("manifest.json: unsupported version " + json.at("version").text);
  know(json, {"format", "version", "rows", "fields", "shards", "tables", "attributes", "digest",
              "made", "id", "sha256"});
  Manifest manifest;
  manifest.id = json.at("id").string();
  const std::string digest = json.find("digest") ? json.at("digest").string() : "xxh3";
  if (digest != "xxh3" && digest != "sha256")
    throw Error("manifest.json: unknown digest " + digest);
  manifest.sha256 = digest == "sha256";
  manifest.rows = json.at("rows").count();
  std::size_t variable = 0, nullable = 0, divided = 0;
  for (const Json& item : json.at("fields").array()) {
    manifest.fields.push_back(parse_field(item));
    variable += manifest.fields.back().variable();
    nullable += manifest.fields.back().nullable;
    divided += manifest.fields.back().indexed || manifest.fields.back().nested;
  }
  std::uint64_t rows = 0;
  for (const Json& item : json.at("shards").array()) {
    know(item, {"rows", "elements", "nulls", "root", "points"});
    Shard shard{item.at("rows").count(), parse_counts(item.at("elements")),
                parse_counts(item.at("nulls")),
                item.find("points") ? parse_counts(item.at("points"))
                                    : std::vector<std::uint64_t>(),
                item.at("root").string()};
    if (shard.rows == 0 || shard.elements.size() != variable || shard.nulls.size() != nullable ||
        shard.points.size() != divided)
      throw Error("manifest.json: counts of a shard do not fit the fields");
    rows += shard.rows;
    if (rows > kMaxCount) throw Error("manifest.json: too many rows");
    manifest.shards.push_back(std::move(shard));
  }
  if (rows != manifest.rows) throw Error("manifest.json: the shards hold another number of rows");
  for (const char* name : {"made", "id", "sha256"}) json.members.erase(name);
  std::string content;
  write_canonically(json, content);
  if (to_hex(sha256(reinterpret_cast<const unsigned char*>(content.data()), content.size())) !=
      manifest.id)
    throw Error("manifest.json: `id` is not the digest of the content");
  return manifest;
}

// ---------------------------------------------------------------------------------------------
// Files (FORMAT.md, "Arrays")

struct Descr {
  std::string text;  // as numpy writes it
  std::uint64_t bytes;
};

inline Descr descr(const std::string& dtype) {
  static const std::map<std::string, Descr> kKnown = {
      {"bool", {"|b1", 1}},     {"int8", {"|i1", 1}},      {"uint8", {"|u1", 1}},
      {"int16", {"<i2", 2}},    {"uint16", {"<u2", 2}},    {"int32", {"<i4", 4}},
      {"uint32", {"<u4", 4}},   {"int64", {"<i8", 8}},     {"uint64", {"<u8", 8}},
      {"float16", {"<f2", 2}},  {"float32", {"<f4", 4}},   {"float64", {"<f8", 8}},
      {"complex64", {"<c8", 8}}, {"complex128", {"<c16", 16}}};
  auto found = kKnown.find(dtype);
  if (found == kKnown.end()) throw Error("manifest.json: unknown dtype " + dtype);
  return found->second;
}

// A directory that is held open: what is in it is opened below it, whatever becomes of its path.
class Directory {
 public:
  // The slab itself; its path may be a link. The lock tells packers that somebody reads it.
  explicit Directory(const std::string& path) : path_(path) {
    fd_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ < 0) throw Error(path + ": cannot be opened: " + std::strerror(errno));
    ::flock(fd_, LOCK_SH | LOCK_NB);
  }
  // A folder in it, which may not be one.
  Directory(const Directory& slab, const std::string& name) : path_(slab.path_ + "/" + name) {
    fd_ = ::openat(slab.fd_, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd_ < 0)
      throw Error(path_ + ": is no folder: " + std::strerror(errno) + slab.advice());
  }
  ~Directory() { ::close(fd_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

  // Whether the path leads here, as it did when this was opened.
  bool in_place() const {
    struct stat here, there;
    return ::fstat(fd_, &here) == 0 && ::stat(path_.c_str(), &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
  }
  // What to add to an error about something in it.
  std::string advice() const {
    return in_place() ? "" : "; the slab was packed again, or removed: open it again";
  }

 private:
  std::string path_;
  int fd_;
};

// A file that is neither a link nor anything but a regular file.
class File {
 public:
  File(const Directory& folder, const std::string& name) : path_(folder.path() + "/" + name) {
    fd_ = ::openat(folder.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const std::string& path = path_;
    struct stat status;
    if (fd_ < 0) {
      const char* what = errno == ELOOP ? "links in a slab are not followed; cp -RL copies without"
                                        : std::strerror(errno);
      throw Error(path + ": cannot be opened: " + what + folder.advice());
    }
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(fd_);
      throw Error(path + ": is no regular file");
    }
    size_ = std::uint64_t(status.st_size);
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const { return size_; }

  std::string read() const {
    std::string content(size_, '\0');
    for (std::uint64_t done = 0; done < size_;) {
      ssize_t got = ::pread(fd_, &content[done], size_ - done, off_t(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw Error(path_ + ": cannot be read");
      done += std::uint64_t(got);
    }
    return content;
  }

  const unsigned char* map() const {
    void* start = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
    if (start == MAP_FAILED) throw Error(path_ + ": cannot be mapped: " + std::strerror(errno));
    return static_cast<const unsigned char*>(start);
  }

 private:
  std::string path_;
  int fd_;
  std::uint64_t size_;
};

// One array, mapped. Its size and header follow from dtype and shape; the file must agree.
class Array {
 public:
  Array(const Directory& folder, const std::string& name, const Descr& item,
        const std::vector<std::uint64_t>& shape)
      : path_(folder.path() + "/" + name), items_(shape[0]), item_bytes_(item.bytes) {
    const std::string& path = path_;
    for (std::size_t i = 1; i < shape.size(); ++i)
      if (__builtin_mul_overflow(item_bytes_, shape[i], &item_bytes_)) throw too_large(path);
    std::uint64_t expected;
    if (__builtin_mul_overflow(items_, item_bytes_, &expected) ||
        __builtin_add_overflow(expected, kHeader, &expected) || expected >> 62)
      throw too_large(path);
    File file(folder, name);
    if (file.size() != expected)
      throw Error(path + ": has " + std::to_string(file.size()) + " bytes, not " +
                  std::to_string(expected));
    const unsigned char* start = file.map();
    map_ = std::shared_ptr<const unsigned char>(start, [expected](const unsigned char* pointer) {
      ::munmap(const_cast<unsigned char*>(pointer), expected);
    });
    if (std::memcmp(start, header(item.text, shape).data(), kHeader) != 0)
      throw Error(path + ": the header is not that of this array");
  }

  std::uint64_t items() const { return items_; }
  std::uint64_t item_bytes() const { return item_bytes_; }
  // Begins on a page, so it is aligned for every dtype.
  const unsigned char* data() const { return map_.get() + kHeader; }
  std::uint64_t size() const { return items_ * item_bytes_; }

  // From now on `check` compares blocks with these digests, which begin with the array's first.
  void expect(std::shared_ptr<const Array> table, std::uint64_t first_block) {
    table_ = std::move(table);
    first_block_ = first_block;
    marks_.reset(new std::atomic<bool>[(size() + kBlock - 1) / kBlock + 1]());
  }
  // Check the blocks of some bytes, each once; threads may. Nothing is checked without digests.
  void check(std::uint64_t start, std::uint64_t size_of_part) const {
    if (!table_ || !size_of_part) return;
    for (std::uint64_t b = start / kBlock; b <= (start + size_of_part - 1) / kBlock; ++b) {
      if (marks_.get()[b].load(std::memory_order_relaxed)) continue;
      const std::uint64_t begin = b * kBlock;
      const Sha256 found = sha256(data() + begin, std::min(kBlock, size() - begin));
      if (std::memcmp(found.data(), table_->data() + 32 * (first_block_ + b), 32) != 0)
        throw Error(path_ + ": the block at byte " + std::to_string(kHeader + begin) +
                    " does not match its SHA-256");
      marks_.get()[b].store(true, std::memory_order_relaxed);
    }
  }

 private:
  std::shared_ptr<const unsigned char> map_;
  std::shared_ptr<const Array> table_;
  std::shared_ptr<std::atomic<bool>[]> marks_;  // blocks that were right
  std::uint64_t first_block_ = 0;
  std::string path_;
  std::uint64_t items_, item_bytes_;

  static Error too_large(const std::string& path) { return Error(path + ": shape is too large"); }

  static std::string header(const std::string& item, const std::vector<std::uint64_t>& shape) {
    std::string tuple;
    for (std::size_t i = 0; i < shape.size(); ++i)
      tuple += (i ? ", " : "") + std::to_string(shape[i]);
    if (shape.size() == 1) tuple += ",";
    std::string text("\x93NUMPY\x01\x00\xf6\x0f", 10);
    text += "{'descr': '" + item + "', 'fortran_order': False, 'shape': (" + tuple + "), }";
    text.resize(kHeader - 1, ' ');
    return text + '\n';
  }
};

// ---------------------------------------------------------------------------------------------
// Rows

struct Row {
  const unsigned char* data;  // inside the map: it lives as long as the Column
  std::uint64_t size;         // in bytes
  bool null;
};

// Where the digests of the fields of a shard begin in its table (FORMAT.md, rule 15).
struct Blocks {
  std::uint64_t values, offsets, lists, list_offsets, valid;
};

// Those of each field; the last entry has the length of the table as `values`.
inline std::vector<Blocks> list_blocks(const Manifest& manifest, const Shard& shard) {
  std::vector<Blocks> list;
  std::uint64_t next = 0;
  auto add = [&next](std::uint64_t bytes) {
    const std::uint64_t first = next;
    next += bytes / kBlock + (bytes % kBlock != 0);
    return first;
  };
  std::size_t variable = 0, nullable = 0, divided = 0;
  for (const Field& field : manifest.fields) {
    Blocks blocks{0, 0, 0, 0, 0};
    std::uint64_t item = field.compressed ? 1 : descr(field.dtype).bytes;
    for (std::uint64_t length : field.compressed ? std::vector<std::uint64_t>() : field.shape)
      item = multiply(item, length);
    blocks.values =
        add(multiply(field.variable() ? shard.elements[variable++] : shard.rows, item));
    if (field.variable()) blocks.offsets = add(8 * (shard.rows + 1));
    if (field.compressed && field.is_of_variable_length()) add(8 * shard.rows);  // lengths
    if (field.kind == "image") add(8 * shard.rows);                              // size
    if (field.indexed) {
      add(10 * shard.points[divided++]);  // points.values
      add(8 * (shard.rows + 1));          // points.offsets
    }
    if (field.nested) {
      blocks.lists = add(4 * shard.points[divided++]);
      blocks.list_offsets = add(8 * (shard.rows + 1));
    }
    if (field.coded) add(shard.rows);  // codec
    if (field.nullable && shard.nulls[nullable++] > 0) blocks.valid = add(shard.rows);
    list.push_back(blocks);
  }
  list.push_back({next, 0, 0, 0, 0});
  return list;
}

// One field of all rows.
class Column {
 public:
  Column(const Directory& slab, const Manifest& manifest, std::size_t index)
      : field_(manifest.fields[index]) {
    if (field_.compressed) throw Error("field " + field_.name + " is compressed (zstd)");
    std::size_t variable = 0, nullable = 0, divided = 0;  // which of the counts of a shard are this field's
    for (std::size_t i = 0; i < index; ++i) {
      variable += manifest.fields[i].variable();
      nullable += manifest.fields[i].nullable;
      divided += manifest.fields[i].indexed || manifest.fields[i].nested;
    }
    for (std::size_t k = 0; k < manifest.shards.size(); ++k) {
      const Shard& shard = manifest.shards[k];
      Part part;
      part.first = rows_;
      std::string number = std::to_string(k);
      number.insert(0, number.size() < 5 ? 5 - number.size() : 0, '0');
      const Directory folder(slab, "shard-" + number);
      const std::string& stem = field_.stem;
      std::vector<std::uint64_t> shape = field_.shape;
      shape.insert(shape.begin(), field_.variable() ? shard.elements[variable] : shard.rows);
      part.values.emplace_back(folder, stem + ".values.npy", descr(field_.dtype), shape);
      if (field_.variable())
        part.offsets.emplace_back(folder, stem + ".offsets.npy", descr("uint64"),
                                  std::vector<std::uint64_t>{shard.rows + 1});
      if (field_.nested) {
        part.lists.emplace_back(folder, stem + ".lists.values.npy", descr("int32"),
                                std::vector<std::uint64_t>{shard.points[divided]});
        part.lists.emplace_back(folder, stem + ".lists.offsets.npy", descr("uint64"),
                                std::vector<std::uint64_t>{shard.rows + 1});
      }
      if (field_.nullable && shard.nulls[nullable] > 0)
        part.valid.emplace_back(folder, stem + ".valid.npy", descr("bool"),
                                std::vector<std::uint64_t>{shard.rows});
      if (manifest.sha256) expect_digests(folder, list_blocks(manifest, shard), index, shard, part);
      parts_.push_back(std::move(part));
      rows_ += shard.rows;
    }
  }

  const Field& field() const { return field_; }
  std::uint64_t rows() const { return rows_; }

  // Of a nested field, the elements of all lists of the row.
  Row row(std::uint64_t number) const {
    const Part& part = find_part(number);
    std::uint64_t place = number - part.first, start = place, stop = place + 1;
    const Array& values = part.values[0];
    if (!part.offsets.empty()) find_range(part.offsets[0], values, number, place, start, stop);
    if (!part.valid.empty()) part.valid[0].check(place, 1);
    bool null = !part.valid.empty() && part.valid[0].data()[place] == 0;
    const std::uint64_t bytes = values.item_bytes();
    values.check(start * bytes, (stop - start) * bytes);
    return {values.data() + start * bytes, (stop - start) * bytes, null};
  }

  // The lists inside one row of a nested field: none where the row is null.
  std::vector<Row> lists(std::uint64_t number) const {
    if (!field_.nested) throw Error("field " + field_.name + " is not nested");
    const Part& part = find_part(number);
    const Row whole = row(number);
    std::uint64_t start, stop, used = 0;
    find_range(part.lists[1], part.lists[0], number, number - part.first, start, stop);
    part.lists[0].check(4 * start, 4 * (stop - start));
    std::vector<Row> lists;
    for (std::uint64_t i = start; i < stop; ++i) {
      std::int32_t length;
      std::memcpy(&length, part.lists[0].data() + 4 * i, 4);
      std::uint64_t size;
      if (length < -1 ||
          __builtin_mul_overflow(std::uint64_t(std::max(length, 0)), part.values[0].item_bytes(),
                                 &size) ||
          size > whole.size - used)
        throw Error("lists of row " + std::to_string(number) + " are damaged");
      lists.push_back({whole.data + used, size, length < 0});
      used += size;
    }
    if (used != whole.size) throw Error("lists of row " + std::to_string(number) + " are damaged");
    return lists;
  }

 private:
  struct Part {
    std::uint64_t first;  // row of the slab
    std::vector<Array> values, offsets, valid;  // one array, or none
    std::vector<Array> lists;                   // lengths of lists, and which are a row's; or none
  };

  const Part& find_part(std::uint64_t number) const {
    if (number >= rows_)
      throw Error("row " + std::to_string(number) + " of " + std::to_string(rows_));
    auto behind = std::upper_bound(
        parts_.begin(), parts_.end(), number,
        [](std::uint64_t wanted, const Part& part) { return wanted < part.first; });
    return *(behind - 1);
  }

  static void find_range(const Array& offsets, const Array& items, std::uint64_t number,
                         std::uint64_t place, std::uint64_t& start, std::uint64_t& stop) {
    std::uint64_t bounds[2];
    offsets.check(8 * place, 16);
    std::memcpy(bounds, offsets.data() + 8 * place, 16);
    start = bounds[0];
    stop = bounds[1];
    if (start > stop || stop > items.items())
      throw Error("offsets of row " + std::to_string(number) + " are damaged");
  }

  static void expect_digests(const Directory& folder, const std::vector<Blocks>& blocks,
                             std::size_t index, const Shard& shard, Part& part) {
    auto table = std::make_shared<const Array>(
        folder, "digests.npy", descr("uint8"),
        std::vector<std::uint64_t>{blocks.back().values, 32});
    if (to_hex(sha256(table->data(), table->size())) != shard.root)
      throw Error(folder.path() + "/digests.npy: is not the digest table of this shard");
    part.values[0].expect(table, blocks[index].values);
    if (!part.offsets.empty()) part.offsets[0].expect(table, blocks[index].offsets);
    if (!part.valid.empty()) part.valid[0].expect(table, blocks[index].valid);
    if (part.lists.empty()) return;
    part.lists[0].expect(table, blocks[index].lists);
    part.lists[1].expect(table, blocks[index].list_offsets);
  }

  Field field_;
  std::vector<Part> parts_;
  std::uint64_t rows_ = 0;
};

class Slab {
 public:
  // With `id`, the slab must have it: all of its 64 digits, or the first 16 or more.
  explicit Slab(const std::string& path, const std::string& id = "") {
    open(path);
    if (!id.empty() && (id.size() < 16 || manifest_.id.compare(0, id.size(), id) != 0))
      throw Error(path + ": has the id " + manifest_.id + ", not " + id);
  }

  std::uint64_t rows() const { return manifest_.rows; }
  const std::string& id() const { return manifest_.id; }
  const std::vector<Field>& fields() const { return manifest_.fields; }

  Column column(const std::string& name) const {
    for (std::size_t i = 0; i < manifest_.fields.size(); ++i)
      if (manifest_.fields[i].name == name) return Column(*directory_, manifest_, i);
    throw Error("no field " + name);
  }

 private:
  void open(const std::string& path) {
    // A slab that is replaced right now is opened again: the next one, or the one after it.
    for (int attempt = 0;; ++attempt) {
      directory_ = std::make_shared<Directory>(path);
      try {
        File file(*directory_, "manifest.json");
        if (file.size() > kMaxManifest) throw Error("manifest.json: too large");
        manifest_ = parse_manifest(file.read());
      } catch (const Error&) {
        if (directory_->in_place() || attempt == 20) throw;
        continue;
      }
      if (directory_->in_place() || attempt == 20) return;
    }
  }

  std::shared_ptr<Directory> directory_;
  Manifest manifest_;
};

}  // namespace slab

#ifndef READ_SLAB_NO_MAIN

#include <cstdio>
#include <cstdlib>

static std::string format(const slab::Row& row) {
  if (row.null) return "null";
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::uint64_t i = 0; i < row.size; ++i) {
    text += kDigits[row.data[i] >> 4];
    text += kDigits[row.data[i] & 15];
  }
  return text;
}

static void print_row(const slab::Column& column, std::uint64_t number) {
  const slab::Row row = column.row(number);
  std::string line = format(row);
  if (column.field().nested && !row.null) {
    line = "[";
    for (const slab::Row& list : column.lists(number))
      line += (line.size() > 1 ? ", " : "") + format(list);
    line += "]";
  }
  std::puts(line.c_str());
}

int main(int count, char** words) {
  const bool pinned = count > 2 && !std::strcmp(words[1], "--id");
  const char* program = words[0];
  const std::string id = pinned ? words[2] : "";
  if (pinned) words += 2, count -= 2;
  if (count < 2 || count > 4) {
    std::fprintf(stderr, "usage: %s [--id ID] SLAB [FIELD [ROW]]\n", program);
    return 2;
  }
  try {
    slab::Slab opened(words[1], id);
    if (count == 2) {
      std::printf("%llu rows\n", static_cast<unsigned long long>(opened.rows()));
      for (const slab::Field& field : opened.fields())
        std::printf("%s: %s %s\n", field.name.c_str(), field.kind.c_str(), field.dtype.c_str());
      return 0;
    }
    slab::Column column = opened.column(words[2]);
    if (count == 4) {
      print_row(column, std::strtoull(words[3], nullptr, 10));
      return 0;
    }
    for (std::uint64_t number = 0; number < column.rows(); ++number) print_row(column, number);
  } catch (const slab::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}

#endif  // READ_SLAB_NO_MAIN
#endif  // READ_SLAB_CPP
