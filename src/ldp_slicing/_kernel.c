/* The compiled backend: the arithmetic of view.py and mask.py, byte for byte, for a strip of one image or for several
 * small images.
 *
 * It contains no probability and no cipher: the caller passes tables and keystream. A strip takes three calls:
 *   draw    turns keystream into masks, and writes the counter of every tie;
 *   settle  decides the ties with the encrypted counters;
 *   finish  computes rebuild(view(source) XOR mask).
 * The loops are plain C that compilers vectorise. On x86-64 they are compiled for several instruction sets, and the
 * module selects the fastest one when it is loaded. The table look-ups and the colour conversion also have AVX-512
 * versions written with intrinsics.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define X86 1
#include <immintrin.h>
#endif
#ifdef __GNUC__
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#define restrict __restrict
#endif

enum { BLOCK_PIXELS = 64, COLUMNS = 256, MAX_PLANES = 3, CHUNK = 256, MAX_BLOCK = 8, ROOM = CHUNK + 32 };

/* ---------------------------------------------------------------- masks */

typedef struct {
    const uint8_t *lanes;   /* [blocks][per_block][64] little-endian uint16 */
    const uint8_t *first;   /* [groups][256] */
    const uint64_t *rest;   /* [groups][256] */
    const uint8_t *outcome; /* [groups][2][planes][256] */
    const uint8_t *uniform; /* [groups] */
    Py_ssize_t groups, planes, blocks, per_block;
    uint64_t first_pixel;
    uint8_t *out;           /* [planes][stride] */
    Py_ssize_t stride;
    uint64_t empty[MAX_PLANES]; /* bit g is set if group g never changes this plane */
} Masks;

typedef struct {
    const uint8_t *first, *own, *other;
} Columns;

/* For each block: out[i] ^= (below the threshold ? own : other) & uniform byte.
 * Bit i of ties[b] is set if draw i equals the threshold. */
typedef struct {
    const uint8_t *lane, *uniform; /* of the first block; uniform is NULL for narrow slices */
    uint8_t *out;
    uint64_t *ties;
    Py_ssize_t blocks, step; /* step: bytes between the lanes of two blocks */
} Run;

typedef void (*Lookup)(Columns c, Run run);

/* Packs (threshold, own, other) of each column into one integer, so that a draw costs one load. */
INLINE void lookup_rows(Columns c, Run run) {
    uint32_t packed[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) packed[i] = c.first[i] | (uint32_t)c.own[i] << 8 | (uint32_t)c.other[i] << 16;
    for (Py_ssize_t b = 0; b < run.blocks; b++) {
        const uint8_t *lane = run.lane + b * run.step, *uniform = run.uniform ? run.uniform + b * run.step : NULL;
        uint8_t value[BLOCK_PIXELS], tie[BLOCK_PIXELS], *out = run.out + b * BLOCK_PIXELS;
        uint32_t entries[BLOCK_PIXELS];
        for (int i = 0; i < BLOCK_PIXELS; i++) entries[i] = packed[lane[2 * i + 1]];
        for (int i = 0; i < BLOCK_PIXELS; i++) {
            uint8_t threshold = (uint8_t)entries[i], low = lane[2 * i];
            uint8_t below = (uint8_t)-(low < threshold); /* 255 or 0: a branch would be mispredicted half of the time */
            value[i] = (uint8_t)(((uint8_t)(entries[i] >> 8) & below) | ((uint8_t)(entries[i] >> 16) & ~below));
            tie[i] = low == threshold;
        }
        if (uniform)
            for (int i = 0; i < BLOCK_PIXELS; i++) value[i] &= uniform[2 * i];
        for (int i = 0; i < BLOCK_PIXELS; i++) out[i] ^= value[i];
        uint64_t ties = 0;
        for (int i = 0; i < BLOCK_PIXELS; i += 8) { /* eight 0-or-1 bytes to eight bits */
            uint64_t eight = 0;
            for (int j = 0; j < 8; j++) eight |= (uint64_t)tie[i + j] << 8 * j;
            ties |= (eight * 0x0102040810204080u >> 56) << i;
        }
        run.ties[b] = ties;
    }
}

static void lookup_plain(Columns c, Run run) { lookup_rows(c, run); }

#ifdef X86
#define AVX2 __attribute__((target("avx2")))
#ifdef __clang__
#define WIDE ""
#else
#define WIDE ",prefer-vector-width=512"
#endif
#define VBMI __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi" WIDE)))

AVX2 static void lookup_avx2(Columns c, Run run) { lookup_rows(c, run); }

/* Byte permutations. They are filled when the module is loaded. */
static struct {
    uint8_t even[64], odd[64];                               /* of 128 bytes */
    uint8_t red_green[64], blue_green[64], red_blue[64];     /* 16 pixels of RGB to pairs of 16-bit numbers */
    uint8_t begin[64], end[64];                              /* 32 + 32 + 32 bytes to 32 pixels of RGB */
} shuffle;

static void fill_shuffle(void) {
    for (int i = 0; i < 64; i++) {
        int pixel = i / 4, second = i % 4 >= 2;
        shuffle.even[i] = (uint8_t)(2 * i);
        shuffle.odd[i] = (uint8_t)(2 * i + 1);
        shuffle.red_green[i] = (uint8_t)(3 * pixel + (second ? 1 : 0));
        shuffle.blue_green[i] = (uint8_t)(3 * pixel + (second ? 1 : 2));
        shuffle.red_blue[i] = (uint8_t)(3 * pixel + (second ? 2 : 0));
        shuffle.begin[i] = (uint8_t)(i % 3 * 32 + i / 3);
        shuffle.end[i] = (uint8_t)((i + 64) % 3 * 32 + (i + 64) / 3 % 32);
    }
}

typedef struct {
    __m512i quarter[4];
} Table256;

VBMI INLINE Table256 load_table(const uint8_t *table) {
    return (Table256){{_mm512_loadu_si512(table), _mm512_loadu_si512(table + 64), _mm512_loadu_si512(table + 128),
        _mm512_loadu_si512(table + 192)}};
}

VBMI INLINE __m512i look_up(Table256 t, __m512i index) {
    __m512i low = _mm512_permutex2var_epi8(t.quarter[0], index, t.quarter[1]);
    __m512i high = _mm512_permutex2var_epi8(t.quarter[2], index, t.quarter[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
}

VBMI static void lookup_vbmi(Columns c, Run run) {
    Table256 first = load_table(c.first), own = load_table(c.own), other = load_table(c.other);
    __m512i even = _mm512_loadu_si512(shuffle.even), odd = _mm512_loadu_si512(shuffle.odd);
    for (Py_ssize_t b = 0; b < run.blocks; b++) {
        const uint8_t *lane = run.lane + b * run.step;
        uint8_t *out = run.out + b * BLOCK_PIXELS;
        __m512i one = _mm512_loadu_si512(lane), two = _mm512_loadu_si512(lane + 64);
        __m512i low = _mm512_permutex2var_epi8(one, even, two), column = _mm512_permutex2var_epi8(one, odd, two);
        __m512i threshold = look_up(first, column);
        __mmask64 below = _mm512_cmplt_epu8_mask(low, threshold);
        __m512i value = _mm512_mask_blend_epi8(below, look_up(other, column), look_up(own, column));
        if (run.uniform) { /* every second byte belongs to the plane; the last byte may lie outside and is not read */
            const uint8_t *uniform = run.uniform + b * run.step;
            __m512i end = _mm512_maskz_loadu_epi8(~(__mmask64)0 >> 1, uniform + 64);
            value = _mm512_and_si512(value, _mm512_permutex2var_epi8(_mm512_loadu_si512(uniform), even, end));
        }
        _mm512_storeu_si512(out, _mm512_xor_si512(_mm512_loadu_si512(out), value));
        run.ties[b] = _mm512_cmpeq_epi8_mask(low, threshold);
    }
}
#endif

INLINE Columns columns_of(const Masks *m, Py_ssize_t group, Py_ssize_t plane) {
    const uint8_t *outcome = m->outcome + group * 2 * m->planes * COLUMNS;
    return (Columns){m->first + group * COLUMNS, outcome + plane * COLUMNS, outcome + (m->planes + plane) * COLUMNS};
}

/* The uniform bytes of plane p: the low or high bytes of the uniform lanes, which follow the draws of the group. */
INLINE const uint8_t *uniform_of(const Masks *m, const uint8_t *lane, Py_ssize_t group, Py_ssize_t plane) {
    return m->uniform[group] ? lane + 2 * BLOCK_PIXELS * (1 + plane / 2) + plane % 2 : NULL;
}

INLINE Py_ssize_t lanes_of(const Masks *m, Py_ssize_t group) {
    return m->uniform[group] ? 1 + (m->planes + 1) / 2 : 1;
}

INLINE int is_empty(const Masks *m, Py_ssize_t group, Py_ssize_t plane) {
    Columns c = columns_of(m, group, plane);
    uint8_t any = 0;
    for (int i = 0; i < COLUMNS; i++) any |= c.own[i] | c.other[i];
    return !any;
}

INLINE int lowest_bit(uint64_t bits) {
#ifdef __GNUC__
    return __builtin_ctzll(bits);
#else
    int at = 0;
    while (!(bits >> at & 1)) at++;
    return at;
#endif
}

INLINE void store_big_endian(uint8_t *bytes, uint64_t value) {
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> (56 - 8 * i));
}

INLINE uint64_t load_big_endian(const uint8_t *b) {
    return (uint64_t)b[0] << 56 | (uint64_t)b[1] << 48 | (uint64_t)b[2] << 40 | (uint64_t)b[3] << 32
        | (uint64_t)b[4] << 24 | (uint64_t)b[5] << 16 |
           (uint64_t)b[6] << 8 | b[7];
}

INLINE uint64_t load_48_bits(const uint8_t *b) {
    return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24 | (uint64_t)b[4] << 32
        | (uint64_t)b[5] << 40;
}

/* Returns the number of ties, and writes as many of their counters as fit. */
static Py_ssize_t draw_masks(const Masks *m, Lookup lookup, uint8_t *counters, Py_ssize_t room) {
    enum { RUN = 64 }; /* blocks per call, whose ties are kept on the stack */
    uint64_t ties[RUN];
    Py_ssize_t found = 0, step = m->per_block * 2 * BLOCK_PIXELS;
    const uint8_t *lanes = m->lanes;
    for (Py_ssize_t p = 0; p < m->planes; p++) memset(m->out + p * m->stride, 0, (size_t)(m->blocks * BLOCK_PIXELS));
    for (Py_ssize_t g = 0; g < m->groups; lanes += lanes_of(m, g) * 2 * BLOCK_PIXELS, g++) {
        for (Py_ssize_t at = 0; at < m->blocks; at += RUN) {
            const uint8_t *lane = lanes + at * step;
            Py_ssize_t blocks = m->blocks - at < RUN ? m->blocks - at : RUN;
            for (Py_ssize_t p = 0; p < m->planes; p++)
                if (!(m->empty[p] >> g & 1))
                    lookup(columns_of(m, g, p), (Run){lane, uniform_of(m, lane, g, p),
                        m->out + p * m->stride + at * BLOCK_PIXELS, ties, blocks, step});
            for (Py_ssize_t b = 0; b < blocks; b++) /* all planes of a group have the same ties */
                for (uint64_t left = ties[b]; left; left &= left - 1) {
                    uint64_t pixel = m->first_pixel + (uint64_t)((at + b) * BLOCK_PIXELS + lowest_bit(left));
                    if (found < room) { /* the second counter range: 2^64 + index */
                        store_big_endian(counters + 16 * found, 1);
                        store_big_endian(counters + 16 * found + 8, pixel * (uint64_t)m->groups + (uint64_t)g);
                    }
                    found++;
                }
        }
    }
    return found;
}

/* draw_masks took the other outcome at every tie. This changes it to the column's own where the other 48 bits say so.
 * Returns 0 at a counter that belongs to another pixel. */
static int settle_ties(const Masks *m, const uint8_t *counters, const uint8_t *blocks, Py_ssize_t ties) {
    Py_ssize_t lane_index[64] = {0};
    for (Py_ssize_t g = 1; g < m->groups; g++) lane_index[g] = lane_index[g - 1] + lanes_of(m, g - 1);
    for (Py_ssize_t t = 0; t < ties; t++) {
        uint64_t index = load_big_endian(counters + 16 * t + 8);
        Py_ssize_t g = (Py_ssize_t)(index % (uint64_t)m->groups);
        uint64_t from_first = index / (uint64_t)m->groups - m->first_pixel; /* wraps around for earlier pixels */
        if (from_first >= (uint64_t)(m->blocks * BLOCK_PIXELS)) return 0;
        Py_ssize_t at = (Py_ssize_t)from_first;
        const uint8_t *lane = m->lanes + (at / BLOCK_PIXELS * m->per_block + lane_index[g]) * 2 * BLOCK_PIXELS;
        Py_ssize_t i = at % BLOCK_PIXELS;
        uint8_t column = lane[2 * i + 1];
        if (load_48_bits(blocks + 16 * t) >= m->rest[g * COLUMNS + column]) continue;
        for (Py_ssize_t p = 0; p < m->planes; p++) {
            Columns c = columns_of(m, g, p);
            const uint8_t *uniform = uniform_of(m, lane, g, p);
            m->out[p * m->stride + at] ^= (c.own[column] ^ c.other[column]) & (uniform ? uniform[2 * i] : 255);
        }
    }
    return 1;
}

/* ---------------------------------------------------------------- view, XOR, rebuild */

typedef struct {
    const void *source;
    void *release;
    const uint8_t *masks; /* [planes][stride] */
    Py_ssize_t stride, height, width;
    int block, gain, bits, to_rgb;
    uint32_t keep, drop;
} Strip;

INLINE int clamp(int value, int top) { return value < 0 ? 0 : value > top ? top : value; }

/* Removes the block means from up to 8 rows of one channel, in place. Rows and columns beyond the edge repeat the last.
 * int16_t is enough for 8-bit channels, and twice as many values fit into a vector. */
#define DEFINE_PRUNE(NAME, T)                                                                                         \
    INLINE void NAME(T x[][ROOM], Py_ssize_t rows, Py_ssize_t columns, int block, int gain, int bits) {               \
        T down[ROOM], sums[ROOM];                                                                                     \
        int area = block * block, shift = block == 2 ? 2 : 6;                                                         \
        T add = (T)((area << (bits - 1)) + area / 2), top = (T)((1 << bits) - 1);                                     \
        Py_ssize_t padded = (columns + block - 1) / block * block;                                                    \
        for (Py_ssize_t r = 0; r < rows; r++)                                                                         \
            for (Py_ssize_t i = columns; i < padded; i++) x[r][i] = x[r][columns - 1];                                \
        if (block == 2)                                                                                               \
            for (Py_ssize_t i = 0; i < padded; i++) down[i] = (T)(x[0][i] + x[rows - 1][i]);                          \
        else {                                                                                                        \
            for (Py_ssize_t i = 0; i < padded; i++) down[i] = (T)(x[rows - 1][i] * (T)(block - rows));                \
            for (Py_ssize_t r = 0; r < rows; r++)                                                                     \
                for (Py_ssize_t i = 0; i < padded; i++) down[i] = (T)(down[i] + x[r][i]);                             \
        }                                                                                                             \
        for (Py_ssize_t i = 0; i < padded; i += block) {                                                              \
            T sum = 0;                                                                                                \
            for (int j = 0; j < block; j++) sum = (T)(sum + down[i + j]);                                             \
            for (int j = 0; j < block; j++) sums[i + j] = sum;                                                        \
        }                                                                                                             \
        for (Py_ssize_t r = 0; r < rows; r++)                                                                         \
            for (Py_ssize_t i = 0; i < padded; i++) {                                                                 \
                T y = (T)((T)((T)(area * x[r][i] - sums[i]) * (T)gain + add) >> shift);                               \
                x[r][i] = y < 0 ? 0 : y > top ? top : y;                                                              \
            }                                                                                                         \
    }
DEFINE_PRUNE(prune8, int16_t)
DEFINE_PRUNE(prune16, int32_t)

/* Splitting RGB into planes and the arithmetic are separate loops, because compilers vectorise only those. */
INLINE void load_colour(const uint8_t *restrict rgb, Py_ssize_t n, int16_t *restrict y, int16_t *restrict cb,
    int16_t *restrict cr) {
    uint8_t red[CHUNK], green[CHUNK], blue[CHUNK];
    for (Py_ssize_t i = 0; i < n; i++) {
        red[i] = rgb[3 * i];
        green[i] = rgb[3 * i + 1];
        blue[i] = rgb[3 * i + 2];
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        int r = red[i], g = green[i], b = blue[i];
        y[i] = (int16_t)((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
        cb[i] = (int16_t)((-11059 * r - 21709 * g + (b << 15) + (128 << 16) + 32767) >> 16);
        cr[i] = (int16_t)(((r << 15) - 27439 * g - 5329 * b + (128 << 16) + 32767) >> 16);
    }
}

INLINE void randomise(int16_t *restrict x, const uint8_t *restrict mask, int16_t keep, int16_t drop, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) x[i] = (int16_t)(((x[i] ^ mask[i]) & keep) | drop);
}

INLINE void interleave(uint8_t *restrict out, Py_ssize_t n, const uint8_t *restrict a, const uint8_t *restrict b,
    const uint8_t *restrict c) {
    for (Py_ssize_t i = 0; i < n; i++) {
        out[3 * i] = a[i];
        out[3 * i + 1] = b[i];
        out[3 * i + 2] = c[i];
    }
}

/* The coefficients of view.py without their multiples of 65536, which the shift preserves. All factors then fit into
 * 16 bits. */
INLINE void store_colour(uint8_t *restrict out, Py_ssize_t n, const int16_t *restrict y, const int16_t *restrict cb,
    const int16_t *restrict cr, int to_rgb) {
    uint8_t one[CHUNK], two[CHUNK], three[CHUNK];
    if (to_rgb)
        for (Py_ssize_t i = 0; i < n; i++) {
            int16_t b = (int16_t)(cb[i] - 128), r = (int16_t)(cr[i] - 128);
            int16_t red = (int16_t)(y[i] + r + ((26345 * r + 32768) >> 16));
            int16_t green = (int16_t)(y[i] - r + ((-22554 * b + 18734 * r + 32768) >> 16));
            int16_t blue = (int16_t)(y[i] + 2 * b + ((-14942 * b + 32768) >> 16));
            one[i] = (uint8_t)clamp(red, 255);
            two[i] = (uint8_t)clamp(green, 255);
            three[i] = (uint8_t)clamp(blue, 255);
        }
    else
        for (Py_ssize_t i = 0; i < n; i++) {
            one[i] = (uint8_t)y[i];
            two[i] = (uint8_t)cb[i];
            three[i] = (uint8_t)cr[i];
        }
    interleave(out, n, one, two, three);
}

typedef void (*LoadColour)(const uint8_t *rgb, Py_ssize_t n, int16_t *y, int16_t *cb, int16_t *cr);
typedef void (*StoreColour)(uint8_t *out, Py_ssize_t n, const int16_t *y, const int16_t *cb, const int16_t *cr,
    int to_rgb);

static void load_plain(const uint8_t *rgb, Py_ssize_t n, int16_t *y, int16_t *cb, int16_t *cr) {
    load_colour(rgb, n, y, cb, cr);
}
static void store_plain(uint8_t *out, Py_ssize_t n, const int16_t *y, const int16_t *cb, const int16_t *cr,
    int to_rgb) {
    store_colour(out, n, y, cb, cr, to_rgb);
}

#ifdef X86
AVX2 static void load_avx2(const uint8_t *rgb, Py_ssize_t n, int16_t *y, int16_t *cb, int16_t *cr) {
    load_colour(rgb, n, y, cb, cr);
}
AVX2 static void store_avx2(uint8_t *out, Py_ssize_t n, const int16_t *y, const int16_t *cb, const int16_t *cr,
    int to_rgb) {
    store_colour(out, n, y, cb, cr, to_rgb);
}

VBMI INLINE __m512i pair(int low, int high) { return _mm512_set1_epi32((int)((uint32_t)high << 16 | (uint16_t)low)); }

/* (a . x + b . y + add) >> 16 for 16 pixels whose channels are pairs of 16-bit values */
VBMI INLINE __m512i weigh(__m512i x, __m512i a, __m512i y, __m512i b, int add) {
    __m512i sum = _mm512_add_epi32(_mm512_madd_epi16(x, a), _mm512_madd_epi16(y, b));
    return _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(add)), 16);
}

/* Coefficients of more than 16 bits are split over two pairs: 38470 = 2 * 19235, 32768 = 2 * 16384. */
VBMI static void load_vbmi(const uint8_t *rgb, Py_ssize_t n, int16_t *y, int16_t *cb, int16_t *cr) {
    const __mmask64 words = 0x5555555555555555;
    __m512i red_green = _mm512_loadu_si512(shuffle.red_green), blue_green = _mm512_loadu_si512(shuffle.blue_green);
    __m512i red_blue = _mm512_loadu_si512(shuffle.red_blue);
    for (Py_ssize_t i = 0; i < n; i += 16) {
        __mmask64 there = n - i < 16 ? ((__mmask64)1 << 3 * (n - i)) - 1 : ((__mmask64)1 << 48) - 1;
        __m512i pixels = _mm512_maskz_loadu_epi8(there, rgb + 3 * i);
        __m512i rg = _mm512_maskz_permutexvar_epi8(words, red_green, pixels);
        __m512i bg = _mm512_maskz_permutexvar_epi8(words, blue_green, pixels);
        __m512i rb = _mm512_maskz_permutexvar_epi8(words, red_blue, pixels);
        __m512i luma = weigh(rg, pair(19595, 19235), bg, pair(7471, 19235), 32768);
        __m512i blue = weigh(bg, pair(16384, -21709), rb, pair(-11059, 16384), (128 << 16) + 32767);
        __m512i red = weigh(rg, pair(16384, -27439), rb, pair(16384, -5329), (128 << 16) + 32767);
        _mm256_storeu_si256((__m256i *)(y + i), _mm512_cvtepi32_epi16(luma));
        _mm256_storeu_si256((__m256i *)(cb + i), _mm512_cvtepi32_epi16(blue));
        _mm256_storeu_si256((__m256i *)(cr + i), _mm512_cvtepi32_epi16(red));
    }
}

/* (a * b + c * r + 32768) >> 16 for 32 pixels: `low` and `high` hold the pairs (b, r) */
VBMI INLINE __m512i turn(__m512i low, __m512i high, int a, int c) {
    __m512i half = _mm512_set1_epi32(32768), by = pair(a, c);
    __m512i one = _mm512_srai_epi32(_mm512_add_epi32(_mm512_madd_epi16(low, by), half), 16);
    __m512i two = _mm512_srai_epi32(_mm512_add_epi32(_mm512_madd_epi16(high, by), half), 16);
    return _mm512_packs_epi32(one, two);
}

VBMI INLINE __m256i to_bytes(__m512i x) { return _mm512_cvtusepi16_epi8(_mm512_max_epi16(x, _mm512_setzero_si512())); }

VBMI static void store_vbmi(uint8_t *out, Py_ssize_t n, const int16_t *y, const int16_t *cb, const int16_t *cr,
    int to_rgb) {
    __m512i middle = _mm512_set1_epi16(128), begin = _mm512_loadu_si512(shuffle.begin),
        end = _mm512_loadu_si512(shuffle.end);
    for (Py_ssize_t i = 0; i < n; i += 32) {
        __m512i one = _mm512_loadu_si512(y + i), two = _mm512_loadu_si512(cb + i), three = _mm512_loadu_si512(cr + i);
        if (to_rgb) {
            __m512i luma = one, b = _mm512_sub_epi16(two, middle), r = _mm512_sub_epi16(three, middle);
            __m512i low = _mm512_unpacklo_epi16(b, r), high = _mm512_unpackhi_epi16(b, r);
            one = _mm512_add_epi16(_mm512_add_epi16(luma, r), turn(low, high, 0, 26345));
            two = _mm512_add_epi16(_mm512_sub_epi16(luma, r), turn(low, high, -22554, 18734));
            three = _mm512_add_epi16(_mm512_add_epi16(luma, _mm512_add_epi16(b, b)), turn(low, high, -14942, 0));
        }
        __m512i first = _mm512_inserti64x4(_mm512_castsi256_si512(to_bytes(one)), to_bytes(two), 1);
        __m512i last = _mm512_castsi256_si512(to_bytes(three));
        Py_ssize_t bytes = 3 * (n - i < 32 ? n - i : 32);
        __mmask64 head = bytes < 64 ? ((__mmask64)1 << bytes) - 1 : ~(__mmask64)0;
        __mmask64 tail = bytes > 64 ? ((__mmask64)1 << (bytes - 64)) - 1 : 0;
        _mm512_mask_storeu_epi8(out + 3 * i, head, _mm512_permutex2var_epi8(first, begin, last));
        _mm512_mask_storeu_epi8(out + 3 * i + 64, tail, _mm512_permutex2var_epi8(first, end, last));
    }
}
#endif

INLINE void colour_rows(const Strip *s, int block, LoadColour load, StoreColour store) {
    int16_t channel[3][MAX_BLOCK][ROOM];
    for (Py_ssize_t top = 0; top < s->height; top += block) {
        Py_ssize_t rows = s->height - top < block ? s->height - top : block;
        for (Py_ssize_t left = 0; left < s->width; left += CHUNK) {
            Py_ssize_t n = s->width - left < CHUNK ? s->width - left : CHUNK;
            for (Py_ssize_t r = 0; r < rows; r++)
                load((const uint8_t *)s->source + 3 * ((top + r) * s->width + left), n, channel[0][r], channel[1][r],
                    channel[2][r]);
            for (int c = 0; c < 3; c++) {
                int plane = 2 - c; /* plane 0 is the lowest byte of the word, Cr */
                int16_t keep = s->keep >> 8 * plane & 255, drop = s->drop >> 8 * plane & 255;
                if (block > 1) prune8(channel[c], rows, n, block, s->gain, 8);
                for (Py_ssize_t r = 0; r < rows; r++)
                    randomise(channel[c][r], s->masks + plane * s->stride + (top + r) * s->width + left, keep, drop, n);
            }
            for (Py_ssize_t r = 0; r < rows; r++)
                store((uint8_t *)s->release + 3 * ((top + r) * s->width + left), n, channel[0][r], channel[1][r],
                    channel[2][r], s->to_rgb);
        }
    }
}

INLINE void grey_rows(const Strip *s, int block) {
    int16_t x[MAX_BLOCK][ROOM];
    for (Py_ssize_t top = 0; top < s->height; top += block) {
        Py_ssize_t rows = s->height - top < block ? s->height - top : block;
        for (Py_ssize_t left = 0; left < s->width; left += CHUNK) {
            Py_ssize_t n = s->width - left < CHUNK ? s->width - left : CHUNK;
            for (Py_ssize_t r = 0; r < rows; r++) {
                const uint8_t *source = (const uint8_t *)s->source + (top + r) * s->width + left;
                for (Py_ssize_t i = 0; i < n; i++) x[r][i] = source[i];
            }
            if (block > 1) prune8(x, rows, n, block, s->gain, s->bits);
            for (Py_ssize_t r = 0; r < rows; r++) {
                Py_ssize_t at = (top + r) * s->width + left;
                uint8_t *release = (uint8_t *)s->release + at;
                randomise(x[r], s->masks + at, (int16_t)s->keep, (int16_t)s->drop, n);
                for (Py_ssize_t i = 0; i < n; i++) release[i] = (uint8_t)x[r][i];
            }
        }
    }
}

INLINE void deep_grey_rows(const Strip *s, int block) {
    int32_t x[MAX_BLOCK][ROOM];
    for (Py_ssize_t top = 0; top < s->height; top += block) {
        Py_ssize_t rows = s->height - top < block ? s->height - top : block;
        for (Py_ssize_t left = 0; left < s->width; left += CHUNK) {
            Py_ssize_t n = s->width - left < CHUNK ? s->width - left : CHUNK;
            for (Py_ssize_t r = 0; r < rows; r++) {
                const uint16_t *source = (const uint16_t *)s->source + (top + r) * s->width + left;
                for (Py_ssize_t i = 0; i < n; i++) x[r][i] = source[i];
            }
            if (block > 1) prune16(x, rows, n, block, s->gain, s->bits);
            for (Py_ssize_t r = 0; r < rows; r++) {
                Py_ssize_t at = (top + r) * s->width + left;
                const uint8_t *low = s->masks + at, *high = low + s->stride;
                uint16_t *release = (uint16_t *)s->release + at;
                for (Py_ssize_t i = 0; i < n; i++)
                    release[i] = (uint16_t)(((x[r][i] ^ (low[i] | high[i] << 8)) & s->keep) | s->drop);
            }
        }
    }
}

/* The block size is a constant here, so that each case is compiled separately for each instruction set. */
#define DEFINE_FINISH(NAME, TARGET, LOAD, STORE)                                                                      \
    TARGET static void NAME(const Strip *s, int channels) {                                                           \
        if (channels == 3) {                                                                                          \
            if (s->block == 1) colour_rows(s, 1, LOAD, STORE);                                                        \
            else if (s->block == 2) colour_rows(s, 2, LOAD, STORE);                                                   \
            else colour_rows(s, 8, LOAD, STORE);                                                                      \
        } else if (s->bits <= 8) {                                                                                    \
            if (s->block == 1) grey_rows(s, 1);                                                                       \
            else if (s->block == 2) grey_rows(s, 2);                                                                  \
            else grey_rows(s, 8);                                                                                     \
        } else {                                                                                                      \
            if (s->block == 1) deep_grey_rows(s, 1);                                                                  \
            else if (s->block == 2) deep_grey_rows(s, 2);                                                             \
            else deep_grey_rows(s, 8);                                                                                \
        }                                                                                                             \
    }

typedef struct {
    const char *name;
    Lookup lookup;
    void (*finish)(const Strip *s, int channels);
} Variant;

DEFINE_FINISH(finish_plain, , load_plain, store_plain)
#ifdef X86
DEFINE_FINISH(finish_avx2, AVX2, load_avx2, store_avx2)
DEFINE_FINISH(finish_vbmi, VBMI, load_vbmi, store_vbmi)
static const Variant variants[] = {
    {"portable", lookup_plain, finish_plain},
    {"avx2", lookup_avx2, finish_avx2},
    {"avx512vbmi", lookup_vbmi, finish_vbmi}};
static int supported(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) return 1;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") ? 3 : 2;
}
#else
static const Variant variants[] = {{"portable", lookup_plain, finish_plain}};
static int supported(void) { return 1; }
#endif

/* ---------------------------------------------------------------- Python */

typedef struct {
    Py_buffer lanes, first, rest, outcome, uniform, out, ties; /* lanes, out and ties begin with an axis of images */
    Py_ssize_t images;
    Masks m; /* of the first image */
} MaskArguments;

static void release_arguments(MaskArguments *a) {
    Py_buffer *all[] = {&a->lanes, &a->first, &a->rest, &a->outcome, &a->uniform, &a->out, &a->ties};
    for (int i = 0; i < 7; i++) PyBuffer_Release(all[i]);
}

static int check_variant(int variant) {
    if (variant >= 0 && variant < supported()) return 1;
    PyErr_Format(PyExc_ValueError, "this processor does not have variant %d of the kernel", variant);
    return 0;
}

/* The product of two sizes, or -1 if one is negative or the product overflows. */
static Py_ssize_t product(Py_ssize_t a, Py_ssize_t b) {
    return a < 0 || b < 0 || (b > 0 && a > PY_SSIZE_T_MAX / b) ? -1 : a * b;
}

/* Checks all sizes against each other, so that no call from Python can read or write outside a buffer. */
static int check_arguments(MaskArguments *a, Py_ssize_t offset) {
    Masks *m = &a->m;
    Py_ssize_t images = a->ties.len / (Py_ssize_t)sizeof(int64_t);
    m->groups = a->uniform.len;
    if (images < 1 || a->ties.len % (Py_ssize_t)sizeof(int64_t)) goto wrong;
    if (m->groups < 1 || m->groups > 64 || m->planes < 1 || m->planes > MAX_PLANES) goto wrong;
    if (a->first.len != m->groups * COLUMNS || a->rest.len != a->first.len * 8 ||
        a->outcome.len != m->groups * 2 * m->planes * COLUMNS) goto wrong;
    m->uniform = a->uniform.buf;
    m->per_block = 0;
    for (Py_ssize_t g = 0; g < m->groups; g++) m->per_block += lanes_of(m, g);
    Py_ssize_t block_bytes = m->per_block * 2 * BLOCK_PIXELS;
    m->blocks = a->lanes.len / block_bytes / images;
    m->stride = a->out.len / m->planes / images;
    if (a->lanes.len != images * m->blocks * block_bytes || a->out.len != images * m->planes * m->stride ||
        offset < 0 || offset > m->stride || m->blocks > (m->stride - offset) / BLOCK_PIXELS) goto wrong;
    m->lanes = a->lanes.buf;
    m->first = a->first.buf;
    m->rest = a->rest.buf;
    m->outcome = a->outcome.buf;
    m->out = (uint8_t *)a->out.buf + offset;
    a->images = images;
    return 1;
wrong:
    PyErr_SetString(PyExc_ValueError, "the sizes of lanes, tables and masks do not belong together");
    return 0;
}

static void to_next_image(Masks *m) {
    m->lanes += m->blocks * m->per_block * 2 * BLOCK_PIXELS;
    m->out += m->planes * m->stride;
}

#define TABLE_FORMAT "y*y*y*y*y*nKw*nw*"
#define TABLE_TARGETS(a, first_pixel, offset)                                                                         \
    &a.lanes, &a.first, &a.rest, &a.outcome, &a.uniform, &a.m.planes, &first_pixel, &a.out, &offset, &a.ties

static PyObject *py_draw(PyObject *self, PyObject *args) {
    (void)self;
    MaskArguments a;
    Py_buffer counters;
    unsigned long long first_pixel;
    Py_ssize_t offset, ties = -1;
    int variant;
    if (!PyArg_ParseTuple(args, "i" TABLE_FORMAT "w*", &variant, TABLE_TARGETS(a, first_pixel, offset),
        &counters)) return NULL;
    a.m.first_pixel = first_pixel;
    if (check_arguments(&a, offset) && check_variant(variant)) {
        Masks m = a.m;
        int64_t *found = a.ties.buf;
        Py_ssize_t room = counters.len / 16;
        Py_BEGIN_ALLOW_THREADS
        ties = 0;
        for (Py_ssize_t p = 0; p < m.planes; p++) {
            m.empty[p] = 0;
            for (Py_ssize_t g = 0; g < m.groups; g++) m.empty[p] |= (uint64_t)is_empty(&m, g, p) << g;
        }
        for (Py_ssize_t i = 0; i < a.images; i++, to_next_image(&m)) {
            Py_ssize_t used = ties < room ? ties : room;
            found[i] = draw_masks(&m, variants[variant].lookup, (uint8_t *)counters.buf + 16 * used, room - used);
            ties += (Py_ssize_t)found[i];
        }
        Py_END_ALLOW_THREADS
    }
    release_arguments(&a);
    PyBuffer_Release(&counters);
    return ties < 0 ? NULL : PyLong_FromSsize_t(ties);
}

static PyObject *py_settle(PyObject *self, PyObject *args) {
    (void)self;
    MaskArguments a;
    Py_buffer counters, blocks;
    unsigned long long first_pixel;
    Py_ssize_t offset;
    int ok = 0;
    if (!PyArg_ParseTuple(args, TABLE_FORMAT "y*y*", TABLE_TARGETS(a, first_pixel, offset), &counters,
        &blocks)) return NULL;
    a.m.first_pixel = first_pixel;
    if (check_arguments(&a, offset)) {
        Masks m = a.m;
        const int64_t *ties = a.ties.buf;
        Py_ssize_t at = 0, end = counters.len / 16;
        ok = counters.len == blocks.len && counters.len % 16 == 0;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; ok && i < a.images; i++, to_next_image(&m)) {
            Py_ssize_t count = ties[i] >= 0 && ties[i] <= end - at ? (Py_ssize_t)ties[i] : -1;
            ok = count >= 0 && settle_ties(&m, (uint8_t *)counters.buf + 16 * at, (uint8_t *)blocks.buf + 16 * at,
                count);
            at += count;
        }
        ok = ok && at == end;
        Py_END_ALLOW_THREADS
        if (!ok) PyErr_SetString(PyExc_ValueError, "the counters are not those of these pixels");
    }
    release_arguments(&a);
    PyBuffer_Release(&counters);
    PyBuffer_Release(&blocks);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_finish(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer source, release, masks;
    Strip s;
    Py_ssize_t images;
    int variant, channels, item, planes;
    unsigned int keep, drop;
    if (!PyArg_ParseTuple(args, "iy*w*y*nnniiiiIIi", &variant, &source, &release, &masks, &images, &s.height, &s.width,
        &channels, &s.bits, &s.block, &s.gain, &keep, &drop, &s.to_rgb))
        return NULL;
    item = s.bits > 8 ? 2 : 1;
    planes = channels == 3 ? 3 : item;
    int ok = (channels == 3 ? s.bits == 8 : channels == 1 && s.bits >= 1 && s.bits <= 16) &&
             (s.block == 1 || s.block == 2 || s.block == 8) &&
             (s.gain == 1 || (s.block == 2 && s.gain >= 1 && s.gain <= 8)) &&
             images >= 1 && s.height >= 0 && s.width >= 0 &&
             source.len == product(product(images, product(s.height, s.width)), channels * item) &&
             release.len == source.len && product(images, planes) > 0 && masks.len % product(images, planes) == 0 &&
             masks.len / planes / images >= product(s.height, s.width);
    if (ok && (ok = check_variant(variant))) {
        s.source = source.buf;
        s.release = release.buf;
        s.masks = masks.buf;
        s.stride = masks.len / planes / images;
        s.keep = keep;
        s.drop = drop;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < images && source.len > 0; i++) {
            variants[variant].finish(&s, channels);
            s.source = (const uint8_t *)s.source + source.len / images;
            s.release = (uint8_t *)s.release + source.len / images;
            s.masks += planes * s.stride;
        }
        Py_END_ALLOW_THREADS
    } else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the sizes of source, release and masks do not belong together");
    PyBuffer_Release(&source);
    PyBuffer_Release(&release);
    PyBuffer_Release(&masks);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"draw", py_draw, METH_VARARGS,
     "draw(variant, lanes, first, rest, outcome, uniform, planes, first_pixel, out, offset, ties, counters) "
     "-> number of ties"},
    {"settle", py_settle, METH_VARARGS,
     "settle(lanes, first, rest, outcome, uniform, planes, first_pixel, out, offset, ties, counters, blocks)"},
    {"finish", py_finish, METH_VARARGS,
     "finish(variant, source, release, masks, images, height, width, channels, bits, "
     "block, gain, keep, drop, to_rgb)"},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module) {
#ifdef X86
    fill_shuffle();
#endif
    PyObject *names = PyTuple_New(supported());
    for (int i = 0; names && i < supported(); i++) {
        PyObject *name = PyUnicode_FromString(variants[i].name);
        if (!name || PyTuple_SetItem(names, i, name) < 0) Py_CLEAR(names);
    }
    int failed = !names || PyModule_AddObjectRef(module, "variants", names) < 0;
    Py_XDECREF(names);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel",
    "Draw masks and apply views to strips of images.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&module); }
