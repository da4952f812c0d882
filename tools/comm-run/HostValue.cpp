//===- HostValue.cpp - Arguments and results of a run --------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// Filling, printing, reading and writing of dense host tensors.
//
//===--------------------------------------------------------------------------------------------===//

#include "HostValue.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>

using namespace llvm;
using namespace commsched;

int64_t HostValue::elements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

int64_t HostValue::elementBytes() const {
  if (elementType.isIndex())
    return 8;
  return PowerOf2Ceil(divideCeil(elementType.getIntOrFloatBitWidth(), 8));
}

Expected<HostValue> HostValue::zeros(mlir::Type type, int64_t dynamicSize) {
  HostValue value;
  value.elementType = type;
  value.isScalar = true;
  std::string text;
  raw_string_ostream(text) << type;
  if (auto shaped = dyn_cast<mlir::ShapedType>(type)) {
    if (!shaped.hasRank())
      return createStringError("a value of type " + text + " cannot be passed: its rank is not known");
    value.elementType = shaped.getElementType();
    for (int64_t size : shaped.getShape()) {
      value.isDynamic.push_back(mlir::ShapedType::isDynamic(size));
      value.shape.push_back(value.isDynamic.back() ? dynamicSize : size);
    }
    value.isScalar = false;
  }
  if (!value.elementType.isIntOrIndexOrFloat())
    return createStringError("a value of type " + text + " cannot be passed");
  int64_t bytes;
  if (MulOverflow(value.elements(), value.elementBytes(), bytes))
    return createStringError("a " + text + " is too large");
  value.bytes.resize(bytes);
  return value;
}

/// The finaliser of splitmix64.
static uint64_t mix(uint64_t hash, uint64_t value) {
  uint64_t x = hash * 0x9e3779b97f4a7c15ull + value + 0x632be59bd9b4e019ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

static APFloat toFloat(double value, const fltSemantics &semantics) {
  APFloat result(value);
  bool lossy;
  result.convert(semantics, APFloat::rmNearestTiesToEven, &lossy);
  return result;
}

void HostValue::fill(uint64_t seed, int64_t rank, int64_t argument) {
  uint64_t base = mix(mix(mix(0, seed), rank), argument);
  int64_t width = elementBytes(), count = elements();
  auto floatType = dyn_cast<mlir::FloatType>(elementType);
  // One table of all values that occur keeps this fast for every format.
  constexpr int64_t values = 257, half = 128;
  std::vector<uint64_t> table(values);
  for (int64_t i = 0; i < values; ++i)
    table[i] = floatType
                   ? toFloat(double(i - half) / half, floatType.getFloatSemantics()).bitcastToAPInt().getZExtValue()
                   : uint64_t(elementType.isInteger(1) ? i & 1 : i & 7);
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(bytes.data() + i * width, &table[mix(base, i) % values], width);
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

/// Gives the dynamic dimensions of `value` the sizes that the header has, if it has as many dimensions.
static void adoptShape(StringRef header, size_t dataBytes, HostValue &value) {
  StringRef list = header.split("'shape': (").second.split(')').first;
  SmallVector<StringRef> parts;
  list.split(parts, ',', -1, /*KeepEmpty=*/false);
  erase_if(parts, [](StringRef part) { return part.trim().empty(); });
  if (parts.size() != value.shape.size())
    return;
  for (auto [part, size, isDynamic] : zip_equal(parts, value.shape, value.isDynamic))
    if (int64_t number; isDynamic && !part.trim().getAsInteger(10, number) && number >= 0)
      size = number;
  // A header that promises more than the file holds is refused below.
  if (int64_t bytes;
      !MulOverflow(value.elements(), value.elementBytes(), bytes) && static_cast<uint64_t>(bytes) == dataBytes)
    value.bytes.resize(bytes);
}

Error commsched::readNpy(StringRef path, HostValue &value) {
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return createFileError(path, buffer.getError());
  StringRef content = (*buffer)->getBuffer();
  auto bad = [&](const Twine &why) { return createStringError("'" + path + "': " + why); };
  if (!content.consume_front(npyMagic) || content.size() < 6)
    return bad("not a numpy file");
  size_t length = static_cast<uint8_t>(content[2]) | static_cast<uint8_t>(content[3]) << 8, begin = 4;
  if (content[0] >= 2) {
    length |= static_cast<size_t>(static_cast<uint8_t>(content[4])) << 16 |
              static_cast<size_t>(static_cast<uint8_t>(content[5])) << 24;
    begin = 6;
  }
  if (content.size() < begin + length)
    return bad("the header is cut off");
  StringRef header = content.substr(begin, length), data = content.substr(begin + length);
  adoptShape(header, data.size(), value);
  std::string description = npyDescription(value.elementType), shape = npyShape(value.shape);
  if (!header.contains("'descr': '" + description + "'"))
    return bad("expected elements of numpy type " + description);
  if (!header.contains("'fortran_order': False"))
    return bad("expected C order");
  if (!header.contains("'shape': " + shape))
    return bad("expected shape " + shape);
  if (data.size() != value.bytes.size())
    return bad("expected " + Twine(value.bytes.size()) + " bytes of data, found " + Twine(data.size()));
  std::memcpy(value.bytes.data(), data.data(), data.size());
  return Error::success();
}

Error commsched::writeNpy(StringRef path, const HostValue &value) {
  std::string header = "{'descr': '" + npyDescription(value.elementType) +
                       "', 'fortran_order': False, 'shape': " + npyShape(value.shape) + ", }";
  header.resize(alignTo(header.size() + 11, 64) - 11, ' ');
  header += '\n';
  std::error_code code;
  raw_fd_ostream file(path, code);
  if (code)
    return createFileError(path, code);
  file << npyMagic << '\1' << '\0' << char(header.size() & 255) << char(header.size() >> 8) << header
       << StringRef(value.bytes.data(), value.bytes.size());
  file.close();
  if (file.has_error()) {
    code = file.error();
    file.clear_error();
    return createFileError(path, code);
  }
  return Error::success();
}
