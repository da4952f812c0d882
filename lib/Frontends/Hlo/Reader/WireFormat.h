//===- WireFormat.h - Protocol buffers as bytes -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Walks over the fields of a serialized message where it lies, and writes varints. A library for protocol buffers would
// parse the message and print it anew; a module that comes back has to differ in its schedule alone, byte for byte. So
// this reader hands out pieces of the given bytes. The encoding is that of
// https://protobuf.dev/programming-guides/encoding.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_READER_WIREFORMAT_H
#define COMMSCHED_LIB_FRONTENDS_HLO_READER_WIREFORMAT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <string>

namespace commsched::hlo {

/// One field of a message.
struct WireField {
  uint32_t number = 0;
  /// True if the field is a varint and has `value`; false if it has `bytes`.
  bool isVarint = false;
  uint64_t value = 0;
  /// The payload of a length-delimited or fixed field.
  llvm::StringRef bytes;
  /// The field with its tag and length, as it lies in the message.
  llvm::StringRef whole;

  int64_t integer() const { return static_cast<int64_t>(value); }
};

/// The fields of one message in the order in which they lie. O(size) for all.
class WireReader {
public:
  explicit WireReader(llvm::StringRef message) : rest(message) {}
  /// Reads the next field. Returns false at the end of the message, and if the bytes are not a message.
  bool next(WireField &field);
  /// Returns true if the last next() met bytes that are not a field.
  bool isMalformed() const { return malformed; }

private:
  bool readVarint(uint64_t &value);

  llvm::StringRef rest;
  bool malformed = false;
};

/// Appends the integers of a repeated field, packed or not. Returns false if the bytes are not varints.
bool appendIntegers(const WireField &field, llvm::SmallVectorImpl<int64_t> &values);

void writeVarint(uint64_t value, std::string &out);
/// Writes a field that is a varint.
void writeInteger(uint32_t number, int64_t value, std::string &out);
/// Writes a packed list of varints, or nothing if it is empty.
void writeIntegers(uint32_t number, llvm::ArrayRef<int64_t> values, std::string &out);
/// Writes a length-delimited field.
void writeBytes(uint32_t number, llvm::StringRef bytes, std::string &out);
/// The fields of a message but for those with these numbers, as they lie.
std::string withoutFields(llvm::StringRef message, llvm::ArrayRef<uint32_t> numbers);
/// The payload of the last field with this number; empty if there is none.
llvm::StringRef fieldOf(llvm::StringRef message, uint32_t number);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_READER_WIREFORMAT_H
