/* AES-256 of single blocks, for ties only: WebCrypto encrypts ranges of counters, and the counters of ties are scattered.
 *
 * It runs in constant time: the S-box is read by 16 shuffles of registers, so that no address depends on the key. Tests
 * compare it with WebCrypto.
 */
#include <stdint.h>
#include <wasm_simd128.h>

enum { AES_ROUNDS = 14, AES_BLOCK = 16, AES_KEY = 32 };

static const uint8_t aes_sbox[256] = {
    99, 124, 119, 123, 242, 107, 111, 197, 48, 1, 103, 43, 254, 215, 171, 118, 202, 130, 201, 125, 250, 89, 71, 240, 173, 212, 162, 175, 156, 164, 114, 192,
    183, 253, 147, 38, 54, 63, 247, 204, 52, 165, 229, 241, 113, 216, 49, 21, 4, 199, 35, 195, 24, 150, 5, 154, 7, 18, 128, 226, 235, 39, 178, 117,
    9, 131, 44, 26, 27, 110, 90, 160, 82, 59, 214, 179, 41, 227, 47, 132, 83, 209, 0, 237, 32, 252, 177, 91, 106, 203, 190, 57, 74, 76, 88, 207,
    208, 239, 170, 251, 67, 77, 51, 133, 69, 249, 2, 127, 80, 60, 159, 168, 81, 163, 64, 143, 146, 157, 56, 245, 188, 182, 218, 33, 16, 255, 243, 210,
    205, 12, 19, 236, 95, 151, 68, 23, 196, 167, 126, 61, 100, 93, 25, 115, 96, 129, 79, 220, 34, 42, 144, 136, 70, 238, 184, 20, 222, 94, 11, 219,
    224, 50, 58, 10, 73, 6, 36, 92, 194, 211, 172, 98, 145, 149, 228, 121, 231, 200, 55, 109, 141, 213, 78, 169, 108, 86, 244, 234, 101, 122, 174, 8,
    186, 120, 37, 46, 28, 166, 180, 198, 232, 221, 116, 31, 75, 189, 139, 138, 112, 62, 181, 102, 72, 3, 246, 14, 97, 53, 87, 185, 134, 193, 29, 158,
    225, 248, 152, 17, 105, 217, 142, 148, 155, 30, 135, 233, 206, 85, 40, 223, 140, 161, 137, 13, 191, 230, 66, 104, 65, 153, 45, 15, 176, 84, 187, 22,
};

/* A swizzle gives 0 for indices above 15, so each byte gets its value from exactly one of the 16 rows. */
static inline v128_t aes_substitute(v128_t x) {
    v128_t out = wasm_i8x16_const_splat(0);
    for (int row = 0; row < 16; row++) {
        v128_t index = wasm_i8x16_sub(x, wasm_i8x16_splat((int8_t)(16 * row)));
        out = wasm_v128_or(out, wasm_i8x16_swizzle(wasm_v128_load(aes_sbox + 16 * row), index));
    }
    return out;
}

static inline v128_t aes_double(v128_t x) {
    v128_t carry = wasm_v128_and(wasm_i8x16_shr(x, 7), wasm_i8x16_const_splat(0x1b));
    return wasm_v128_xor(wasm_i8x16_shl(x, 1), carry);
}

#define TURN(x, a, b, c, d)                                                                                           \
    wasm_i8x16_shuffle(x, x, a, b, c, d, a + 4, b + 4, c + 4, d + 4, a + 8, b + 8, c + 8, d + 8, a + 12, b + 12,      \
        c + 12, d + 12)

static inline v128_t aes_mix(v128_t x) {
    v128_t doubled = aes_double(x), tripled = wasm_v128_xor(doubled, x);
    v128_t sum = wasm_v128_xor(doubled, TURN(tripled, 1, 2, 3, 0));
    return wasm_v128_xor(sum, wasm_v128_xor(TURN(x, 2, 3, 0, 1), TURN(x, 3, 0, 1, 2)));
}

/* Writes the 15 round keys. `keys` holds the 32 bytes of the key at its start. */
static void aes_expand(uint8_t *keys) {
    uint8_t constant = 1;
    for (int at = AES_KEY; at < AES_BLOCK * (AES_ROUNDS + 1); at += 4) {
        uint32_t last = wasm_i32x4_extract_lane(wasm_v128_load32_splat(keys + at - 4), 0);
        if (at % AES_KEY == 0) last = last >> 8 | last << 24;
        if (at % AES_BLOCK == 0) last = (uint32_t)wasm_i32x4_extract_lane(aes_substitute(wasm_i32x4_splat((int)last)), 0);
        if (at % AES_KEY == 0) last ^= constant, constant = (uint8_t)(constant << 1);
        for (int i = 0; i < 4; i++) keys[at + i] = (uint8_t)(keys[at - AES_KEY + i] ^ last >> 8 * i);
    }
}

/* Encrypts blocks in place. */
static void aes_encrypt(const uint8_t *keys, uint8_t *blocks, int count) {
    for (; count > 0; count--, blocks += AES_BLOCK) {
        v128_t x = wasm_v128_xor(wasm_v128_load(blocks), wasm_v128_load(keys));
        for (int round = 1; round <= AES_ROUNDS; round++) {
            x = aes_substitute(x);
            x = wasm_i8x16_shuffle(x, x, 0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11); /* shifts the rows */
            if (round < AES_ROUNDS) x = aes_mix(x);
            x = wasm_v128_xor(x, wasm_v128_load(keys + AES_BLOCK * round));
        }
        wasm_v128_store(blocks, x);
    }
}
