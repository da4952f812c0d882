//===- ProtobufMessage.h - Messages of protocol buffers ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The part of the wire format that Chakra's traces need (https://protobuf.dev/programming-guides/encoding): variable
// length integers, and fields with a length in front. So the export needs neither the library nor its compiler.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_REPORT_TRACE_PROTOBUFMESSAGE_H
#define COMMSCHED_LIB_REPORT_TRACE_PROTOBUFMESSAGE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/LEB128.h"
#include "llvm/Support/raw_ostream.h"

namespace commsched {

/// One message, which grows field by field. Numbers are those of the schema.
class ProtobufMessage {
public:
  /// A field of one of the types uint64, bool and enum, or of an int32 or int64 that is not negative.
  void addInteger(unsigned number, uint64_t value) {
    addTag(number, WireType::Varint);
    llvm::encodeULEB128(value, os);
  }

  /// A field of the type string, which has to be UTF-8: other bytes are replaced.
  void addString(unsigned number, llvm::StringRef text) {
    addBytes(number, llvm::json::isUTF8(text) ? text.str() : llvm::json::fixUTF8(text));
  }

  /// A field that is a message.
  void addMessage(unsigned number, const ProtobufMessage &message) { addBytes(number, message.bytes); }

  /// A repeated field of the type uint64; nothing if it is empty.
  void addIntegers(unsigned number, llvm::ArrayRef<uint64_t> values) {
    if (values.empty())
      return;
    ProtobufMessage packed;
    for (uint64_t value : values)
      llvm::encodeULEB128(value, packed.os);
    addMessage(number, packed);
  }

  /// Writes the message with its length in front, as files that hold several messages have it.
  void writeDelimited(llvm::raw_ostream &out) const {
    llvm::encodeULEB128(bytes.size(), out);
    out << bytes;
  }

private:
  enum class WireType : unsigned { Varint = 0, Length = 2 };

  void addTag(unsigned number, WireType type) { llvm::encodeULEB128(number << 3 | static_cast<unsigned>(type), os); }

  void addBytes(unsigned number, llvm::StringRef value) {
    addTag(number, WireType::Length);
    llvm::encodeULEB128(value.size(), os);
    os << value;
  }

  llvm::SmallString<128> bytes;
  llvm::raw_svector_ostream os{bytes};
};

} // namespace commsched

#endif // COMMSCHED_LIB_REPORT_TRACE_PROTOBUFMESSAGE_H
