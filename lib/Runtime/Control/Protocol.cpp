//===- Protocol.cpp - The messages of the control plane ---------------------------------------===//
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

#include "Control/Protocol.h"
#include <algorithm>
#include <cstring>

using namespace commsched::runtime;
using namespace commsched::runtime::control;

//===- Numbers and texts ------------------------------------------------------------------------===//

void Writer::number(uint64_t value, int width) {
  for (int i = 0; i < width; ++i)
    bytes.push_back(static_cast<char>(value >> (8 * i)));
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

Bytes control::encodeGreeting(const Greeting &greeting) {
  Bytes bytes;
  Writer writer(bytes);
  writer.raw(kMagic, sizeof(kMagic));
  writeField(writer, greeting.secret, kSecretBytes);
  writer.u32(greeting.version);
  writer.i32(greeting.rank);
  writer.i32(greeting.ranks);
  writeField(writer, greeting.job, kJobBytes);
  writer.u32(0);
  return bytes;
}

bool control::decodeGreeting(const char *data, Greeting &greeting) {
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

bool control::isSameSecret(const std::string &a, const std::string &b) {
  char left[kSecretBytes] = {}, right[kSecretBytes] = {};
  std::copy_n(a.data(), std::min(a.size(), kSecretBytes), left);
  std::copy_n(b.data(), std::min(b.size(), kSecretBytes), right);
  volatile unsigned char difference = a.size() != b.size(); // volatile: every byte is looked at
  for (size_t i = 0; i < kSecretBytes; ++i)
    difference = difference | static_cast<unsigned char>(left[i] ^ right[i]);
  return difference == 0;
}

//===- Frames -----------------------------------------------------------------------------------===//

Bytes control::encodeFrame(Kind kind, const Bytes &body) {
  Bytes frame;
  Writer writer(frame);
  writer.u32(static_cast<uint32_t>(kind));
  writer.u32(0);
  writer.u64(body.size());
  writer.raw(body.data(), body.size());
  return frame;
}

Bytes control::encodeFailure(int32_t status, int32_t rank, std::string_view text) {
  Bytes body;
  Writer writer(body);
  writer.i32(status);
  writer.i32(rank);
  writer.text(text);
  return encodeFrame(Kind::failed, body);
}

bool control::decodeHeader(const char *header, Kind &kind, uint64_t &length) {
  Reader reader(header, kHeaderBytes);
  uint32_t number = reader.u32(), zero = reader.u32();
  length = reader.u64();
  kind = static_cast<Kind>(number);
  bool isKnown = number >= static_cast<uint32_t>(Kind::waiting) && number <= static_cast<uint32_t>(Kind::last);
  return isKnown && zero == 0 && length <= kLongestFrame;
}

//===- Starts -----------------------------------------------------------------------------------===//

bool control::isComparison(const commrt_work &work) {
  bool isKind = work.kind == COMMRT_BARRIER || work.kind == COMMRT_SEND || work.kind == COMMRT_RECV;
  return isKind && work.count == 0;
}

void control::encodeWork(const commrt_work &work, Writer &writer) {
  writer.i32(work.kind);
  writer.i32(work.peer);
  writer.i32(work.injected);
  writer.u64(work.fingerprint);
  writer.text(work.location ? work.location : "");
}

bool control::decodeWork(Reader &reader, int32_t members, commrt_work &work, std::string &location) {
  work = {};
  work.struct_size = sizeof(work);
  work.dtype = COMMRT_I8;
  work.scale = 1;
  work.site = -1;
  work.root = work.send_to = work.recv_from = -1;
  work.in_outer = work.out_outer = 1;
  work.kind = reader.i32();
  work.peer = reader.i32();
  work.injected = reader.i32();
  work.fingerprint = reader.u64();
  location = reader.text();
  work.group = "";
  work.location = location.c_str();
  bool hasPeer = work.kind == COMMRT_BARRIER || (work.peer >= 0 && work.peer < members);
  return reader.isComplete() && isComparison(work) && hasPeer;
}
