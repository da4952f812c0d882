//===- Protocol.cpp - The messages of the tcp backend -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Encoding and decoding, with every check of what another process sent.
//
//===------------------------------------------------------------------------------------------===//

#include "Tcp/Protocol.h"
#include <algorithm>
#include <cstring>

using namespace commsched::runtime;
using namespace commsched::runtime::tcp;

bool Block::resize(size_t size) {
  void *moved = std::realloc(start, size > 0 ? size : 1);
  if (!moved)
    return false;
  start = static_cast<char *>(moved);
  length = size;
  return true;
}

//===- Numbers and texts ------------------------------------------------------------------------===//

void Writer::number(uint64_t value, int width) {
  for (int i = 0; i < width; ++i)
    bytes.push_back(static_cast<char>(value >> (8 * i)));
}

void Writer::f64(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  u64(bits);
}

void Writer::text(std::string_view value) {
  u32(static_cast<uint32_t>(value.size()));
  raw(value.data(), value.size());
}

void Writer::raw(const void *data, size_t size) {
  if (size > 0)
    bytes.insert(bytes.end(), static_cast<const char *>(data), static_cast<const char *>(data) + size);
}

const char *Reader::raw(size_t size) {
  if (size > left) {
    good = false;
    left = 0;
    return nullptr;
  }
  const char *result = data;
  data += size;
  left -= size;
  return result;
}

uint64_t Reader::number(int width) {
  const char *from = raw(width);
  uint64_t value = 0;
  for (int i = 0; from && i < width; ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
  return value;
}

double Reader::f64() {
  uint64_t bits = u64();
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::string Reader::text() {
  size_t size = u32();
  const char *from = raw(size);
  return from ? std::string(from, size) : std::string();
}

//===- Greeting ---------------------------------------------------------------------------------===//

static constexpr char kMagic[] = {'C', 'O', 'M', 'M', 'R', 'T', '\r', '\n'};
static constexpr size_t kSecretBytes = 256, kJobBytes = 160;
static_assert(sizeof(kMagic) + 4 + kSecretBytes + 3 * 4 + 4 + kJobBytes + 4 == kGreetingBytes);

/// A text in a field of a fixed size.
static void writeField(Writer &writer, std::string_view text, size_t size) {
  text = text.substr(0, size);
  writer.u32(static_cast<uint32_t>(text.size()));
  writer.raw(text.data(), text.size());
  std::string padding(size - text.size(), '\0');
  writer.raw(padding.data(), padding.size());
}

static std::string readField(Reader &reader, size_t size) {
  size_t length = reader.u32();
  const char *field = reader.raw(size);
  return field ? std::string(field, std::min(length, size)) : std::string();
}

static Block copyOf(const Bytes &bytes) {
  Block result;
  if (result.resize(bytes.size()))
    std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

Block tcp::encodeGreeting(const Greeting &greeting) {
  Bytes bytes;
  Writer writer(bytes);
  writer.raw(kMagic, sizeof(kMagic));
  writeField(writer, greeting.secret, kSecretBytes);
  writer.u32(greeting.version);
  writer.i32(greeting.rank);
  writer.i32(greeting.ranks);
  writeField(writer, greeting.job, kJobBytes);
  writer.u32(0);
  return copyOf(bytes);
}

bool tcp::decodeGreeting(const char *data, Greeting &greeting) {
  Reader reader(data, kGreetingBytes);
  if (std::memcmp(reader.raw(sizeof(kMagic)), kMagic, sizeof(kMagic)) != 0)
    return false;
  greeting.secret = readField(reader, kSecretBytes);
  greeting.version = reader.u32();
  greeting.rank = reader.i32();
  greeting.ranks = reader.i32();
  greeting.job = readField(reader, kJobBytes);
  return true;
}

bool tcp::isSameSecret(const std::string &a, const std::string &b) {
  char left[kSecretBytes] = {}, right[kSecretBytes] = {};
  std::copy_n(a.data(), std::min(a.size(), kSecretBytes), left);
  std::copy_n(b.data(), std::min(b.size(), kSecretBytes), right);
  volatile unsigned char difference = a.size() != b.size(); // volatile: every byte is looked at
  for (size_t i = 0; i < kSecretBytes; ++i)
    difference = difference | static_cast<unsigned char>(left[i] ^ right[i]);
  return difference == 0;
}

//===- Frames -----------------------------------------------------------------------------------===//

Block tcp::encodeFrame(Kind kind, const Bytes &body, const void *data, size_t size) {
  Bytes head;
  Writer writer(head);
  writer.u32(static_cast<uint32_t>(kind));
  writer.u32(0);
  writer.u64(body.size() + size);
  writer.raw(body.data(), body.size());
  Block result = copyOf(head);
  if (size > 0 && result.resize(head.size() + size))
    std::memcpy(result.data() + head.size(), data, size);
  return result.size() == head.size() + size ? std::move(result) : Block();
}

bool tcp::decodeHeader(const char *header, Kind &kind, uint64_t &length) {
  Reader reader(header, kHeaderBytes);
  uint32_t number = reader.u32(), zero = reader.u32();
  length = reader.u64();
  kind = static_cast<Kind>(number);
  if (number < static_cast<uint32_t>(Kind::welcome) || number > static_cast<uint32_t>(Kind::last) || zero != 0)
    return false;
  bool carriesData = kind == Kind::completed || kind == Kind::result || kind == Kind::submit || kind == Kind::value;
  return length <= (carriesData ? kLongestData : kLongestControl);
}

//===- Works ------------------------------------------------------------------------------------===//

namespace {
/// Products and sums of sizes that are never beyond kLongestData.
class Size {
public:
  explicit Size(int64_t value) : value(value), good(value >= 0 && value <= limit) {}
  Size times(int64_t factor) const {
    if (!good || factor < 0 || (factor > 0 && value > limit / factor))
      return Size(-1);
    return Size(value * factor);
  }
  Size plus(Size other) const { return good && other.good ? Size(value + other.value) : Size(-1); }
  bool isGood() const { return good; }
  int64_t get() const { return value; }

private:
  static constexpr auto limit = static_cast<int64_t>(kLongestData);
  int64_t value;
  bool good;
};
} // namespace

static Size sumCounts(const int64_t *counts, int32_t members, int64_t size) {
  Size sum(0);
  for (int32_t i = 0; i < members; ++i)
    sum = sum.plus(Size(counts[i]));
  return sum.times(size);
}

static bool isMember(int32_t member, int32_t members) { return member >= 0 && member < members; }

bool tcp::sizeWork(const commrt_work &work, int32_t members, int32_t index, int64_t &inBytes, int64_t &outBytes) {
  inBytes = outBytes = 0;
  int64_t element = work.kind == COMMRT_BARRIER ? 1 : commrt_dtype_size(work.dtype);
  Size block = Size(work.count).times(element), none(0), all = block.times(members);
  if (element == 0 || !isMember(index, members) || !block.isGood())
    return false;
  Size in = none, out = none;
  bool isRoot = work.root == index, needsRoot = false;
  switch (work.kind) {
  case COMMRT_ALL_GATHER:
    in = block, out = all;
    break;
  case COMMRT_REDUCE_SCATTER:
    in = all, out = block;
    break;
  case COMMRT_ALL_REDUCE:
    in = out = block;
    break;
  case COMMRT_ALL_TO_ALL:
    if (!work.send_counts != !work.recv_counts)
      return false;
    in = work.send_counts ? sumCounts(work.send_counts, members, element) : all;
    out = work.recv_counts ? sumCounts(work.recv_counts, members, element) : all;
    break;
  case COMMRT_BROADCAST:
    needsRoot = true;
    in = isRoot ? block : none, out = block;
    break;
  case COMMRT_REDUCE:
    needsRoot = true;
    in = block, out = isRoot ? block : none;
    break;
  case COMMRT_GATHER:
    needsRoot = true;
    in = block, out = isRoot ? all : none;
    break;
  case COMMRT_SCATTER:
    needsRoot = true;
    in = isRoot ? all : none, out = block;
    break;
  case COMMRT_PERMUTE:
    if (work.send_to < -1 || work.send_to >= members || work.recv_from < -1 || work.recv_from >= members)
      return false;
    in = work.send_to >= 0 ? block : none, out = block;
    break;
  case COMMRT_SEND:
  case COMMRT_RECV:
    if (!isMember(work.peer, members) || work.tag < 0)
      return false;
    (work.kind == COMMRT_SEND ? in : out) = block;
    break;
  case COMMRT_BARRIER:
    break;
  default:
    return false;
  }
  if (!in.isGood() || !out.isGood() || (needsRoot && !isMember(work.root, members)))
    return false;
  inBytes = in.get();
  outBytes = out.get();
  return true;
}

/// The finaliser of splitmix64.
static uint64_t mixInto(uint64_t hash, uint64_t value) {
  uint64_t x = hash * 0x9e3779b97f4a7c15ull + value + 0x632be59bd9b4e019ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t tcp::sealFingerprint(const commrt_work &work) {
  bool isMessage = work.kind == COMMRT_SEND || work.kind == COMMRT_RECV;
  uint64_t hash = work.fingerprint;
  for (int64_t value : {int64_t(isMessage ? COMMRT_SEND : work.kind), int64_t(work.dtype), int64_t(work.reduction),
                        work.send_counts ? -1 : work.count, int64_t(isMessage ? 0 : work.root)})
    hash = mixInto(hash, static_cast<uint64_t>(value));
  return hash;
}

void tcp::encodeWork(const commrt_work &work, int32_t members, Writer &writer) {
  for (int32_t value : {work.kind, work.dtype, work.reduction, work.root, work.peer, work.send_to, work.recv_from,
                        work.injected, work.one_shot})
    writer.i32(value);
  for (int64_t value : {work.count, work.tag, work.site, work.cost_ns, work.delay_ns})
    writer.i64(value);
  writer.f64(work.scale);
  writer.u64(work.fingerprint);
  writer.text(work.group ? work.group : "");
  writer.u32(work.location != nullptr);
  writer.text(work.location ? work.location : "");
  writer.u32(work.send_counts != nullptr);
  for (const int64_t *counts : {work.send_counts, work.recv_counts})
    for (int32_t i = 0; counts && i < members; ++i)
      writer.i64(counts[i]);
}

bool tcp::decodeWork(Reader &reader, int32_t members, int32_t index, commrt_work &work, WorkParts &parts) {
  work = {};
  work.struct_size = sizeof(work);
  for (int32_t *value : {&work.kind, &work.dtype, &work.reduction, &work.root, &work.peer, &work.send_to,
                         &work.recv_from, &work.injected, &work.one_shot})
    *value = reader.i32();
  for (int64_t *value : {&work.count, &work.tag, &work.site, &work.cost_ns, &work.delay_ns})
    *value = reader.i64();
  work.scale = reader.f64();
  work.fingerprint = reader.u64();
  parts.group = reader.text();
  bool hasLocation = reader.u32() != 0;
  parts.location = reader.text();
  work.group = parts.group.c_str();
  work.location = hasLocation ? parts.location.c_str() : nullptr;
  if (reader.u32() != 0) {
    if (reader.remaining() / (2 * sizeof(int64_t)) < static_cast<size_t>(members))
      return false;
    for (std::vector<int64_t> *counts : {&parts.sendCounts, &parts.recvCounts}) {
      counts->resize(members);
      for (int64_t &count : *counts)
        count = reader.i64();
    }
    work.send_counts = parts.sendCounts.data();
    work.recv_counts = parts.recvCounts.data();
  }
  bool isReduction = work.reduction >= COMMRT_SUM && work.reduction <= COMMRT_SCALED_SUM;
  int64_t in, out;
  return reader.isGood() && isReduction && sizeWork(work, members, index, in, out);
}
