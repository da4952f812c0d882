//===- HostValue.cpp - Arguments and results of a run -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Fills, prints, reads and writes dense host tensors.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/HostValue.h"
#include "CommSched/Support/OutputFile.h"
#include "CommSched/Support/SplitMix64.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>
#include <optional>

using namespace llvm;
using namespace commsched;

/// Largest width of an element, bits.
static constexpr unsigned kWidestElement = 64;

bool HostBuffer::reset(int64_t size) {
  // A buffer of no bytes still needs an address.
  auto *bytes = static_cast<char *>(std::calloc(std::max<int64_t>(size, 1), 1));
  if (!bytes)
    return false;
  memory.reset(bytes);
  length = size;
  return true;
}

int64_t HostValue::elementBytes() const {
  if (elementType.isIndex())
    return 8;
  return PowerOf2Ceil(divideCeil(elementType.getIntOrFloatBitWidth(), 8));
}

std::optional<int64_t> HostValue::byteSize() const {
  int64_t bytes = elementBytes();
  if (is_contained(shape, 0))
    return 0;
  for (int64_t size : shape)
    if (MulOverflow(bytes, size, bytes))
      return std::nullopt;
  return bytes;
}

Expected<HostValue> HostValue::ofType(mlir::Type type, int64_t dynamicSize) {
  HostValue value;
  value.elementType = type;
  value.isScalar = true;
  std::string text;
  raw_string_ostream(text) << "a value of type " << type;
  if (auto shaped = dyn_cast<mlir::ShapedType>(type)) {
    if (!isa<mlir::TensorType, mlir::BaseMemRefType>(type))
      return createStringError(text + " cannot be passed: expected a tensor, a memref, a number or an index");
    if (!shaped.hasRank())
      return createStringError(text + " cannot be passed: expected a known rank");
    if (auto memref = dyn_cast<mlir::MemRefType>(type);
        memref && (!memref.getLayout().isIdentity() || memref.getMemorySpace()))
      return createStringError(text + " cannot be passed: expected row-major order and the default memory space");
    value.elementType = shaped.getElementType();
    for (int64_t size : shaped.getShape()) {
      value.isDynamic.push_back(mlir::ShapedType::isDynamic(size));
      value.shape.push_back(value.isDynamic.back() ? dynamicSize : size);
    }
    value.isScalar = false;
  }
  if (!value.elementType.isIntOrIndexOrFloat())
    return createStringError(text + " cannot be passed: expected elements that are numbers or indices");
  if (!value.elementType.isIndex() && value.elementType.getIntOrFloatBitWidth() > kWidestElement)
    return createStringError(text + " cannot be passed: expected elements of at most " + Twine(kWidestElement) +
                             " bits");
  if (!value.byteSize())
    return createStringError(
        text + " cannot be passed: expected less than 2^63 bytes" +
        (is_contained(value.isDynamic, true) ? " with dynamic dimensions of size " + Twine(dynamicSize) : Twine()));
  return value;
}

HostValue HostValue::like() const {
  HostValue value;
  value.elementType = elementType;
  value.shape = shape;
  value.isScalar = isScalar;
  value.isDynamic = isDynamic;
  return value;
}

Error HostValue::allocate() {
  std::optional<int64_t> size = byteSize();
  if (size && bytes.reset(*size))
    return Error::success();
  return createStringError("cannot allocate a value of " + Twine(size.value_or(-1)) + " bytes");
}

static APFloat toFloat(double value, const fltSemantics &semantics) {
  APFloat result(value);
  bool lossy;
  result.convert(semantics, APFloat::rmNearestTiesToEven, &lossy);
  return result;
}

void HostValue::fill(uint64_t seed, int64_t rank, int64_t argument) {
  constexpr auto mix = SplitMix64::mix;
  uint64_t base = mix(mix(mix(0, seed), rank), argument);
  int64_t width = elementBytes(), count = elements();
  auto floatType = dyn_cast<mlir::FloatType>(elementType);
  // One table of all values makes this fast for every format.
  constexpr int64_t values = 257, half = 128;
  std::vector<uint64_t> table(values);
  for (int64_t i = 0; i < values; ++i)
    table[i] = floatType
                   ? toFloat(double(i - half) / half, floatType.getFloatSemantics()).bitcastToAPInt().getZExtValue()
                   : uint64_t(elementType.isInteger(1) ? i & 1 : i & 7);
  auto fillAs = [&](auto zero) {
    using T = decltype(zero);
    auto *to = reinterpret_cast<T *>(bytes.data());
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(table[mix(base, i) % values]);
  };
  switch (width) {
  case 1:
    return fillAs(uint8_t());
  case 2:
    return fillAs(uint16_t());
  case 4:
    return fillAs(uint32_t());
  default:
    return fillAs(uint64_t());
  }
}

std::string HostValue::elementText(int64_t index) const {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * elementBytes(), elementBytes());
  if (auto type = dyn_cast<mlir::FloatType>(elementType)) {
    SmallString<32> text;
    APFloat(type.getFloatSemantics(), APInt(type.getWidth(), bits, false, true)).toString(text);
    return text.str().str();
  }
  unsigned width = elementType.isIndex() ? 64 : elementType.getIntOrFloatBitWidth();
  APInt value(width, bits, false, true);
  return toString(value, 10, !elementType.isUnsignedInteger() && width > 1);
}

std::string HostValue::text() const {
  constexpr int64_t shown = 16;
  std::string text = "[";
  for (int64_t i = 0; i < std::min(shown, elements()); ++i)
    text += (i ? ", " : "") + elementText(i);
  return text + (elements() > shown ? ", ...]" : "]");
}

//===- numpy ------------------------------------------------------------------------------------===//

/// numpy's name of the element type.
static std::string npyDescription(mlir::Type type) {
  int64_t width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  std::string size = std::to_string(std::max<int64_t>(1, width / 8));
  std::string order = width > 8 ? "<" : "|";
  if (type.isInteger(1))
    return "|b1";
  if (type.isF16() || type.isF32() || type.isF64())
    return order + "f" + size;
  return order + (isa<mlir::FloatType>(type) || type.isUnsignedInteger() ? "u" : "i") + size;
}

static std::string npyShape(ArrayRef<int64_t> shape) {
  std::string text = "(";
  for (int64_t size : shape)
    text += std::to_string(size) + ", ";
  if (shape.size() > 1)
    text.resize(text.size() - 2);
  else if (shape.size() == 1)
    text.pop_back();
  return text + ")";
}

static constexpr StringLiteral npyMagic = "\x93NUMPY";

/// Sets the dynamic dimensions of `value` to the sizes of the header, if the ranks are equal.
static void adoptShape(StringRef header, HostValue &value) {
  StringRef list = header.split("'shape': (").second.split(')').first;
  SmallVector<StringRef> parts;
  list.split(parts, ',', -1, /*KeepEmpty=*/false);
  erase_if(parts, [](StringRef part) { return part.trim().empty(); });
  if (parts.size() != value.shape.size())
    return;
  for (auto [part, size, isDynamic] : zip_equal(parts, value.shape, value.isDynamic))
    if (int64_t number; isDynamic && !part.trim().getAsInteger(10, number) && number >= 0)
      size = number;
}

Error commsched::readNpy(StringRef path, HostValue &value) {
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return createFileError(path, buffer.getError());
  StringRef content = (*buffer)->getBuffer();
  auto bad = [&](const Twine &why) { return createStringError("'" + path + "': " + why); };
  if (!content.consume_front(npyMagic) || content.size() < 6)
    return bad("expected a numpy file");
  size_t length = static_cast<uint8_t>(content[2]) | static_cast<uint8_t>(content[3]) << 8, begin = 4;
  if (content[0] >= 2) {
    length |= static_cast<size_t>(static_cast<uint8_t>(content[4])) << 16 |
              static_cast<size_t>(static_cast<uint8_t>(content[5])) << 24;
    begin = 6;
  }
  if (content.size() < begin + length)
    return bad("expected a header of " + Twine(length) + " bytes, got " + Twine(content.size() - begin));
  StringRef header = content.substr(begin, length), data = content.substr(begin + length);
  HostValue read = value.like();
  adoptShape(header, read);
  std::string description = npyDescription(read.elementType), shape = npyShape(read.shape);
  if (!header.contains("'descr': '" + description + "'"))
    return bad("expected elements of numpy type " + description);
  if (!header.contains("'fortran_order': False"))
    return bad("expected C order");
  if (!header.contains("'shape': " + shape))
    return bad("expected shape " + shape);
  std::optional<int64_t> bytes = read.byteSize();
  if (!bytes || static_cast<uint64_t>(*bytes) != data.size())
    return bad("expected " + (bytes ? Twine(*bytes) : Twine("at least 2^63")) + " bytes of data, got " +
               Twine(data.size()));
  if (Error error = read.allocate())
    return bad(toString(std::move(error)));
  std::memcpy(read.bytes.data(), data.data(), data.size());
  value = std::move(read);
  return Error::success();
}

Error commsched::writeNpy(StringRef path, const HostValue &value) {
  std::string header = "{'descr': '" + npyDescription(value.elementType) +
                       "', 'fortran_order': False, 'shape': " + npyShape(value.shape) + ", }";
  header.resize(alignTo(header.size() + 11, 64) - 11, ' ');
  header += '\n';
  return writeWhole(path, [&](raw_ostream &file) {
    file << npyMagic << '\1' << '\0' << char(header.size() & 255) << char(header.size() >> 8) << header
         << StringRef(value.bytes.data(), value.bytes.size());
    return Error::success();
  });
}
