// Philox4x32-10: a counter-based random number generator, header only, no state.
// Does not: know Python, arrays or distributions. The module (module.cpp) binds it; a kernel may include it.
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 4.3.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace backend_sdk {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

// Multipliers and key increments of table 2 of the paper. The increments are the golden ratio and sqrt(3) - 1,
// as 32-bit fractions.
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxKeyStep0 = 0x9E3779B9u;
inline constexpr std::uint32_t kPhiloxKeyStep1 = 0xBB67AE85u;
// Ten rounds is the paper's recommendation: seven pass BigCrush, three more are its safety margin.
inline constexpr int kPhiloxRounds = 10;

inline PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) noexcept {
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
        const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(product0)};
        key = {key[0] + kPhiloxKeyStep0, key[1] + kPhiloxKeyStep1};
    }
    return counter;
}

// out[i] = word i % 4 of the block whose counter is (i / 4, stream), each 64 bits, low word first.
inline void philox_fill(std::uint32_t* out, std::size_t size, std::uint64_t seed, std::uint64_t stream) noexcept {
    const PhiloxKey key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    const auto block = [&](std::uint64_t index) noexcept {
        return philox4x32_10({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                              static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                             key);
    };
    const std::size_t whole_blocks = size / 4;
    for (std::size_t index = 0; index < whole_blocks; ++index) {
        const PhiloxCounter words = block(index);
        for (std::size_t word = 0; word < 4; ++word) {
            out[4 * index + word] = words[word];
        }
    }
    if (size % 4 != 0) {
        const PhiloxCounter words = block(whole_blocks);
        for (std::size_t word = 0; word < size % 4; ++word) {
            out[4 * whole_blocks + word] = words[word];
        }
    }
}

}  // namespace backend_sdk
