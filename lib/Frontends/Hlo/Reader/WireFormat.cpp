//===- WireFormat.cpp - Protocol buffers as bytes ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every length is checked against the bytes that are left, so no input reads outside of the message.
//
//===------------------------------------------------------------------------------------------===//

#include "WireFormat.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched::hlo;

namespace {

/// The wire types of the encoding. Groups (3 and 4) have not been written since proto2, and XLA has none.
enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

/// Bits of a varint's byte, and the most bytes of a 64-bit varint.
constexpr unsigned kVarintBits = 7, kMaxVarintBytes = 10;

} // namespace

bool WireReader::readVarint(uint64_t &value) {
  value = 0;
  for (unsigned i = 0; i < kMaxVarintBytes && i < rest.size(); ++i) {
    uint8_t byte = rest[i];
    value |= static_cast<uint64_t>(byte & 0x7f) << (kVarintBits * i);
    if (byte & 0x80)
      continue;
    rest = rest.drop_front(i + 1);
    return true;
  }
  return false;
}

bool WireReader::next(WireField &field) {
  if (rest.empty() || malformed)
    return false;
  StringRef begin = rest;
  uint64_t tag = 0, length = 0;
  malformed = true;
  if (!readVarint(tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX >> 3)
    return false;
  field = WireField();
  field.number = static_cast<uint32_t>(tag >> 3);
  switch (tag & 7) {
  case kVarint:
    field.isVarint = true;
    if (!readVarint(field.value))
      return false;
    break;
  case kFixed64:
    length = 8;
    break;
  case kFixed32:
    length = 4;
    break;
  case kLengthDelimited:
    if (!readVarint(length))
      return false;
    break;
  default:
    return false;
  }
  if (length > rest.size())
    return false;
  field.bytes = rest.take_front(length);
  rest = rest.drop_front(length);
  field.whole = begin.drop_back(rest.size());
  malformed = false;
  return true;
}

bool commsched::hlo::appendIntegers(const WireField &field, SmallVectorImpl<int64_t> &values) {
  if (field.isVarint) {
    values.push_back(field.integer());
    return true;
  }
  // A packed list is a sequence of varints: the tag of a field is one, too.
  StringRef rest = field.bytes;
  while (!rest.empty()) {
    uint64_t value = 0;
    unsigned i = 0;
    for (;; ++i) {
      if (i == kMaxVarintBytes || i == rest.size())
        return false;
      value |= static_cast<uint64_t>(static_cast<uint8_t>(rest[i]) & 0x7f) << (kVarintBits * i);
      if (!(static_cast<uint8_t>(rest[i]) & 0x80))
        break;
    }
    rest = rest.drop_front(i + 1);
    values.push_back(static_cast<int64_t>(value));
  }
  return true;
}

void commsched::hlo::writeVarint(uint64_t value, std::string &out) {
  for (; value >= 0x80; value >>= kVarintBits)
    out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void commsched::hlo::writeInteger(uint32_t number, int64_t value, std::string &out) {
  writeVarint(static_cast<uint64_t>(number) << 3 | kVarint, out);
  writeVarint(static_cast<uint64_t>(value), out);
}

void commsched::hlo::writeIntegers(uint32_t number, ArrayRef<int64_t> values, std::string &out) {
  std::string packed;
  for (int64_t value : values)
    writeVarint(static_cast<uint64_t>(value), packed);
  if (!values.empty())
    writeBytes(number, packed, out);
}

std::string commsched::hlo::withoutFields(StringRef message, ArrayRef<uint32_t> numbers) {
  std::string result;
  WireReader reader(message);
  WireField field;
  while (reader.next(field))
    if (!llvm::is_contained(numbers, field.number))
      result += field.whole;
  return result;
}

StringRef commsched::hlo::fieldOf(StringRef message, uint32_t number) {
  StringRef found;
  WireReader reader(message);
  WireField field;
  while (reader.next(field))
    if (field.number == number)
      found = field.bytes;
  return found;
}

void commsched::hlo::writeBytes(uint32_t number, StringRef bytes, std::string &out) {
  writeVarint(static_cast<uint64_t>(number) << 3 | kLengthDelimited, out);
  writeVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}
