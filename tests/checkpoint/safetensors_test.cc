#include "checkpoint/safetensors.h"

#include <cstring>

#include "checkpoint/safetensors_writer.h"
#include "test_util.h"

namespace sluice::ckpt {
namespace {

SafetensorsHeader parse(const std::string& file) {
  return parse_header(std::as_bytes(std::span(file)), file.size(), "f.safetensors");
}

// The error of a file with this header and `data_bytes` bytes of data.
std::string refusal(std::string_view header, std::size_t data_bytes) {
  return message_of([&] { parse(safetensors_bytes(header, std::string(data_bytes, 'x'))); });
}

template <class T>
std::vector<T> values_of(const TensorEntry& tensor) {
  std::vector<T> out(tensor.bytes / sizeof(T));
  std::memcpy(out.data(), tensor.data, tensor.bytes);
  return out;
}

TEST(Safetensors, ReadsTensorsInDataOrderWithMetadata) {
  const SafetensorsHeader h = parse(
      safetensors_bytes(R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"format":"pt"},)"
                        R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                        std::string(16, 'x')));
  ASSERT_EQ(h.tensors.size(), 2u);
  EXPECT_EQ(h.tensors[0].name, "a");
  EXPECT_EQ(h.tensors[0].dtype, DType::f32);
  EXPECT_TRUE(h.tensors[0].shape.empty());
  EXPECT_EQ(h.tensors[0].bytes, 4u);
  EXPECT_EQ(h.tensors[1].name, "b");
  EXPECT_EQ(h.tensors[1].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(h.tensors[1].offset_bytes, h.data_begin_bytes + 4);
  ASSERT_EQ(h.metadata.size(), 1u);
  EXPECT_EQ(h.metadata[0].second, "pt");
}

TEST(Safetensors, KnowsEveryTypeAndItsWidth) {
  // Widths of one element times two, in bytes, of the format's types.
  const std::vector<std::pair<std::string, std::size_t>> types = {
      {"F64", 16},    {"F32", 8}, {"F16", 4},  {"BF16", 4}, {"F8_E4M3", 2}, {"F8_E5M2", 2},
      {"F8_E8M0", 2}, {"F4", 1},  {"U8", 2},   {"I8", 2},   {"I16", 4},     {"U16", 4},
      {"I32", 8},     {"U32", 8}, {"I64", 16}, {"U64", 16}, {"BOOL", 2}};
  for (const auto& [name, bytes] : types) {
    const std::string header =
        R"({"t":{"dtype":")" + name + R"(","shape":[2],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
    const SafetensorsHeader h = parse(safetensors_bytes(header, std::string(bytes, 'x')));
    EXPECT_EQ(safetensors_dtype_name(h.tensors.at(0).dtype), name);
  }
}

TEST(Safetensors, EmptyTensorsAndEmptyFileOfTensorsAreLegal) {
  EXPECT_TRUE(parse(safetensors_bytes("{}", "")).tensors.empty());
  const SafetensorsHeader h = parse(safetensors_bytes(
      R"({"full":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"none":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]}})",
      "x"));
  ASSERT_EQ(h.tensors.size(), 2u);
  EXPECT_EQ(h.tensors[0].name, "none");
}

TEST(Safetensors, RefusesBadLengths) {
  expect_contains(message_of([] { parse(""); }), "the file has 0 bytes");
  expect_contains(message_of([] { parse("1234567"); }), "the file has 7 bytes");
  std::string huge(16, '\0');
  huge[7] = '\x80';  // a header of 2^63 bytes
  expect_contains(message_of([&] { parse(huge); }), "header length: found 9223372036854775808 bytes");
  std::string beyond = safetensors_bytes("{}", "");
  beyond[0] = 3;
  expect_contains(message_of([&] { parse(beyond); }), "found 3 bytes in a file of 10");
  expect_contains(message_of([] { parse("version https://git-lfs.github.com/spec/v1"); }), "git lfs pull");
  const std::string empty(8, '\0');
  expect_contains(message_of([&] { parse(empty); }), "does not begin with '{'");
}

TEST(Safetensors, RefusesHeadShorterThanTheHeaderClaims) {
  const std::string file = safetensors_bytes(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  const auto head = std::as_bytes(std::span(file)).first(20);
  expect_contains(message_of([&] { parse_header(head, file.size(), "f"); }), "header length");
}

TEST(Safetensors, RefusesBadHeaderText) {
  expect_contains(refusal("[1]", 0), "does not begin with '{'");
  expect_contains(refusal("{\"a\"", 0), "not valid JSON");
  expect_contains(
      refusal(
          R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})",
          2),
      "duplicate key \"a\"");
  expect_contains(refusal(R"({"a":7})", 0), "tensor \"a\": found integer; expected an object");
  expect_contains(refusal(R"({"__metadata__":{"k":1}})", 0), "__metadata__: k: found integer; expected a string");
  expect_contains(refusal(R"({"__metadata__":[]})", 0), "__metadata__: found array");
}

TEST(Safetensors, RefusesBadFields) {
  expect_contains(refusal(R"({"a":{"shape":[],"data_offsets":[0,1]}})", 1), "tensor \"a\": dtype: missing");
  expect_contains(refusal(R"({"a":{"dtype":3,"shape":[],"data_offsets":[0,1]}})", 1), "dtype: found integer");
  expect_contains(refusal(R"({"a":{"dtype":"C64","shape":[],"data_offsets":[0,8]}})", 8),
                  "dtype: found \"C64\"; expected one of F64 F32");
  expect_contains(refusal(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1), "shape: missing");
  expect_contains(refusal(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1), "shape: found -1");
  expect_contains(refusal(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1), "shape: found 1.0");
  expect_contains(refusal(R"({"a":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})", 1), "shape: found string");
  expect_contains(refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,1]}})", 1),
                  "overflows 64 bits");
  expect_contains(refusal(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2), "ends inside a byte");
  expect_contains(refusal(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "data_offsets: missing");
  expect_contains(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1),
                  "data_offsets: found 1 numbers");
  expect_contains(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1), "data_offsets: found -1");
}

TEST(Safetensors, RefusesBadOffsets) {
  expect_contains(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1), "expected begin <= end");
  expect_contains(refusal(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 8), "within the 8 bytes of data");
  expect_contains(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
                  "span 4 bytes; expected 8 for F32 [2]");
  expect_contains(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2),
                  "leaves a hole after the start of the data; expected begin 0");
  const std::string two =
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":)";
  expect_contains(refusal(two + "[1,3]}}", 3),
                  "tensor \"b\": data_offsets: begin 1 overlaps tensor \"a\"; expected begin 2");
  expect_contains(refusal(two + "[3,5]}}", 5), "tensor \"b\": data_offsets: begin 3 leaves a hole after tensor \"a\"");
  expect_contains(refusal(two + "[2,4]}}", 6), "2 bytes after the last tensor");
}

TEST(SafetensorsFile, RefusesWhatIsNoFile) {
  const TempFolder folder;
  expect_contains(message_of([&] { SafetensorsFile{folder.path()}; }), "is a directory");
  expect_contains(message_of([&] { SafetensorsFile{folder.file("absent")}; }), "cannot open");
  const std::string empty = folder.write("empty.safetensors", "");
  expect_contains(message_of([&] { SafetensorsFile{empty}; }), "the file has 0 bytes");
}

TEST(SafetensorsFile, WriterAndReaderAgree) {
  const TempFolder folder;
  const std::vector<float> floats = {1.5f, -2.0f, 3.25f};
  const std::vector<std::int64_t> ints = {-7, std::int64_t{1} << 40};
  const std::vector<std::uint8_t> codes = {0x21, 0x43};
  SafetensorsWriter writer;
  writer.add("codes \"e2m1\"\n", DType::e2m1, {1, 4}, codes);
  writer.add("z.float", DType::f32, {3, 1}, floats);
  writer.add("int", DType::i64, {2}, ints);
  writer.set_metadata("format", "pt");
  writer.write(folder.file("out.safetensors"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "a temporary file was left";

  SafetensorsFile file(folder.file("out.safetensors"));
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().at(0), (std::pair<std::string, std::string>("format", "pt")));
  const TensorEntry* z = file.find("z.float");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->shape, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(values_of<float>(*z), floats);
  EXPECT_EQ(values_of<std::int64_t>(*file.find("int")), ints);
  EXPECT_EQ(file.find("codes \"e2m1\"\n")->dtype, DType::e2m1);
  EXPECT_EQ(file.find("absent"), nullptr);
  for (const TensorEntry& t : file.tensors()) EXPECT_TRUE(t.is_aligned()) << t.name;

  const SafetensorsFile moved = std::move(file);
  EXPECT_EQ(values_of<float>(*moved.find("z.float")), floats);
}

TEST(SafetensorsFile, MisalignedDataIsReadableAndMarked) {
  const TempFolder folder;
  const std::string header = R"({"t":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_TRUE(SafetensorsFile(folder.write("a", safetensors_bytes(padded, "xy"))).tensors().at(0).is_aligned());
  const std::string odd = header.size() % 2 == 1 ? header : header + " ";
  EXPECT_FALSE(SafetensorsFile(folder.write("b", safetensors_bytes(odd, "xy"))).tensors().at(0).is_aligned());
}

TEST(SafetensorsWriter, RefusesMistakesOfTheCaller) {
  SafetensorsWriter writer;
  const std::vector<float> two(2);
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
    return message_of([&] { writer.add(name, DType::f32, shape, two); }, ErrorCode::usage);
  };
  expect_contains(add("a", {3}), "8 bytes for F32 [3]; expected 12 bytes");
  expect_contains(add("a", {-2}), "expected a shape of whole bytes");
  EXPECT_EQ(add("a", {2}), "no error");
  expect_contains(add("a", {2}), "used twice");
  expect_contains(add("__metadata__", {2}), "reserved");
}

TEST(SafetensorsWriter, LeavesNothingBehindWhenTheDestinationIsRefused) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.file("taken"));
  folder.write("taken/file", "x");
  const SafetensorsWriter writer;
  expect_contains(message_of([&] { writer.write(folder.file("taken")); }, ErrorCode::resources), "cannot create");
  expect_contains(message_of([&] { writer.write(folder.file("no/such/folder")); }, ErrorCode::resources),
                  "cannot create");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace sluice::ckpt
