// The quick reader against the general one: a header that only the general one takes (an escape in its metadata) must
// give the same tensors as the plain one, and be refused when it is.
#include "checkpoint/header_scan.h"

#include <random>

#include "checkpoint/safetensors_writer.h"
#include "test_util.h"

namespace sluice::ckpt {
namespace {

constexpr std::size_t kDataBytes = 40;
const std::string kPlain =
    R"({"a.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b": {"shape":[4], "data_offsets":[24,28],)"
    R"("dtype":"U8"},"none":{"dtype":"BF16","shape":[0,7],"data_offsets":[28,28]},)"
    R"("c":{"dtype":"I32","shape":[],"data_offsets":[28,32]},"d":{"dtype":"BF16","shape":[4,1],"data_offsets":[32,40]}})";

std::optional<DType> type_of(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "U8") return DType::u8;
  if (name == "I32") return DType::i32;
  if (name == "BF16") return DType::bf16;
  return std::nullopt;
}

std::string with_escape(const std::string& header) { return R"({"__metadata__":{"\u0061":"b"},)" + header.substr(1); }

// All there is to know of the tensors, or "refused".
std::string outcome(const std::string& header) {
  const std::string file = safetensors_bytes(header, std::string(kDataBytes, 'x'));
  std::string all = "tensors";
  try {
    const SafetensorsHeader h = parse_header(std::as_bytes(std::span(file)), file.size(), "f");
    for (const TensorEntry& t : h.tensors) {
      all += " " + t.name + ":" + std::string(safetensors_dtype_name(t.dtype));
      for (const std::int64_t n : t.shape) all += "," + std::to_string(n);
      all += "@" + std::to_string(t.offset_bytes - h.data_begin_bytes) + "+" + std::to_string(t.bytes);
    }
  } catch (const Error&) {
    return "refused";
  }
  return all;
}

TEST(HeaderScan, TakesPlainHeadersAndLeavesOthers) {
  SafetensorsHeader header;
  EXPECT_TRUE(scan_header(kPlain, kDataBytes, type_of, header));
  EXPECT_EQ(header.tensors.size(), 5u);
  EXPECT_FALSE(scan_header(with_escape(kPlain), kDataBytes, type_of, header));
  EXPECT_EQ(outcome(kPlain), outcome(with_escape(kPlain)));
  EXPECT_EQ(outcome(kPlain), "tensors a.weight:F32,2,3@0+24 b:U8,4@24+4 none:BF16,0,7@28+0 c:I32@28+4 d:BF16,4,1@32+8");
}

TEST(HeaderScan, AgreesWithTheGeneralReaderOnDamagedHeaders) {
  const std::string alphabet = "{}[],:\"0123456789 \n\\-.eabdtypeshapeFUBI_";
  std::mt19937 random(5);
  int taken = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string header = kPlain;
    for (int changes = 1 + static_cast<int>(random() % 2); changes > 0; --changes) {
      const std::size_t at = 1 + random() % (header.size() - 1);
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0:
          header[at] = c;
          break;
        case 1:
          header.insert(at, 1, c);
          break;
        default:
          header.erase(at, 1);
      }
    }
    const std::string general = outcome(with_escape(header));
    ASSERT_EQ(outcome(header), general) << header;
    ++(general == "refused" ? refused : taken);
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 100);
}

TEST(HeaderScan, NamesTwiceAreNotPlain) {
  SafetensorsHeader header;
  EXPECT_FALSE(scan_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                           2, type_of, header));
  WeightMap map;
  EXPECT_TRUE(
      scan_index(R"({"metadata":{"total_size":7},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})", map));
  EXPECT_EQ(map, (WeightMap{{"a", "1.safetensors"}, {"b", "2.safetensors"}}));
  map.clear();
  EXPECT_FALSE(scan_index(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})", map));
  map.clear();
  EXPECT_FALSE(scan_index(R"({"weight_map":{"a":"1"},"weight_map":{"b":"1"}})", map));
}

}  // namespace
}  // namespace sluice::ckpt
