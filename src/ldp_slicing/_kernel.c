/* The fused fast path: the arithmetic of view.py and mask.py, byte for byte, on strips of one image.
 *
 * It holds no probability and no cipher: tables and keystream are handed in. Three calls make a strip:
 *   draw    keystream -> masks; writes the counter of every tie;
 *   settle  the encrypted counters decide the ties;
 *   finish  rebuild(view(source) XOR mask).
 * The loops are plain C that compilers vectorise; on x86-64 they are compiled for several instruction sets, and the best
 * one that the processor has is picked when the module is loaded. Only the look-up in 256-byte tables has a hand-written variant.
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

enum { BLOCK_PIXELS = 64, COLUMNS = 256, MAX_PLANES = 3, CHUNK = 256, MAX_BLOCK = 8 };

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
} Masks;

typedef struct {
    const uint8_t *first, *own, *other;
} Columns;

/* For each block: out[i] ^= (below the threshold ? own : other) & uniform byte; ties[b] gets bit i where the draw equals it. */
typedef struct {
    const uint8_t *lane, *uniform; /* of the first block; uniform is NULL for a narrow group */
    uint8_t *out;
    uint64_t *ties;
    Py_ssize_t blocks, step; /* step: bytes from one block's lane to the next's */
} Run;

typedef void (*Lookup)(Columns c, Run run);

/* One table of (threshold, own, other) per column, so that a draw costs one load. */
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
            uint8_t below = (uint8_t)-(low < threshold); /* all ones or none: a branch here would be a coin toss */
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
#define VBMI __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,prefer-vector-width=512")))

AVX2 static void lookup_avx2(Columns c, Run run) { lookup_rows(c, run); }

typedef struct {
    __m512i quarter[4];
} Table256;

VBMI INLINE Table256 load_table(const uint8_t *table) {
    return (Table256){{_mm512_loadu_si512(table), _mm512_loadu_si512(table + 64), _mm512_loadu_si512(table + 128), _mm512_loadu_si512(table + 192)}};
}

VBMI INLINE __m512i look_up(Table256 t, __m512i index) {
    __m512i low = _mm512_permutex2var_epi8(t.quarter[0], index, t.quarter[1]);
    __m512i high = _mm512_permutex2var_epi8(t.quarter[2], index, t.quarter[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
}

VBMI static void lookup_vbmi(Columns c, Run run) {
    Table256 first = load_table(c.first), own = load_table(c.own), other = load_table(c.other);
    uint8_t even_bytes[64];
    for (int i = 0; i < 64; i++) even_bytes[i] = (uint8_t)(2 * i);
    __m512i even = _mm512_loadu_si512(even_bytes), odd = _mm512_or_si512(even, _mm512_set1_epi8(1));
    for (Py_ssize_t b = 0; b < run.blocks; b++) {
        const uint8_t *lane = run.lane + b * run.step;
        uint8_t *out = run.out + b * BLOCK_PIXELS;
        __m512i one = _mm512_loadu_si512(lane), two = _mm512_loadu_si512(lane + 64);
        __m512i low = _mm512_permutex2var_epi8(one, even, two), column = _mm512_permutex2var_epi8(one, odd, two);
        __m512i threshold = look_up(first, column);
        __mmask64 below = _mm512_cmplt_epu8_mask(low, threshold);
        __m512i value = _mm512_mask_blend_epi8(below, look_up(other, column), look_up(own, column));
        if (run.uniform) { /* a plane's bytes are every other byte from here; the last one is not read, it may lie outside */
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

/* Uniform bytes of plane p: low or high bytes of the group's uniform lanes, which follow its draws. */
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

INLINE void store_counter(uint8_t *counter, uint64_t index) {
    memset(counter, 0, 8);
    counter[7] = 1; /* the second counter range: 2^64 + index, big-endian */
    for (int i = 0; i < 8; i++) counter[15 - i] = (uint8_t)(index >> 8 * i);
}

INLINE uint64_t load_counter(const uint8_t *counter) {
    uint64_t index = 0;
    for (int i = 8; i < 16; i++) index = index << 8 | counter[i];
    return index;
}

/* Returns the number of ties; the counters of those that fit are written. */
static Py_ssize_t draw_masks(const Masks *m, Lookup lookup, uint8_t *counters, Py_ssize_t room) {
    enum { RUN = 64 }; /* blocks at a time: their ties wait on the stack */
    uint64_t ties[RUN];
    Py_ssize_t found = 0, step = m->per_block * 2 * BLOCK_PIXELS;
    const uint8_t *lanes = m->lanes;
    for (Py_ssize_t p = 0; p < m->planes; p++) memset(m->out + p * m->stride, 0, (size_t)(m->blocks * BLOCK_PIXELS));
    for (Py_ssize_t g = 0; g < m->groups; lanes += lanes_of(m, g) * 2 * BLOCK_PIXELS, g++) {
        int empty[MAX_PLANES];
        for (Py_ssize_t p = 0; p < m->planes; p++) empty[p] = is_empty(m, g, p);
        for (Py_ssize_t at = 0; at < m->blocks; at += RUN) {
            const uint8_t *lane = lanes + at * step;
            Py_ssize_t blocks = m->blocks - at < RUN ? m->blocks - at : RUN;
            for (Py_ssize_t p = 0; p < m->planes; p++)
                if (!empty[p])
                    lookup(columns_of(m, g, p), (Run){lane, uniform_of(m, lane, g, p), m->out + p * m->stride + at * BLOCK_PIXELS, ties, blocks, step});
            for (Py_ssize_t b = 0; b < blocks; b++) /* every plane of a group has the same ties */
                for (uint64_t left = ties[b]; left; left &= left - 1) {
                    uint64_t pixel = m->first_pixel + (uint64_t)((at + b) * BLOCK_PIXELS + lowest_bit(left));
                    if (found < room) store_counter(counters + 16 * found, pixel * (uint64_t)m->groups + (uint64_t)g);
                    found++;
                }
        }
    }
    return found;
}

/* draw_masks took the other outcome wherever there was a tie; where the remaining 48 bits say so, change it to the own one. */
static void settle_ties(const Masks *m, const uint8_t *counters, const uint8_t *blocks, Py_ssize_t ties) {
    Py_ssize_t lane_index[64] = {0};
    for (Py_ssize_t g = 1; g < m->groups; g++) lane_index[g] = lane_index[g - 1] + lanes_of(m, g - 1);
    for (Py_ssize_t t = 0; t < ties; t++) {
        uint64_t index = load_counter(counters + 16 * t), more = 0;
        Py_ssize_t g = (Py_ssize_t)(index % (uint64_t)m->groups);
        Py_ssize_t at = (Py_ssize_t)(index / (uint64_t)m->groups - m->first_pixel);
        const uint8_t *lane = m->lanes + (at / BLOCK_PIXELS * m->per_block + lane_index[g]) * 2 * BLOCK_PIXELS;
        Py_ssize_t i = at % BLOCK_PIXELS;
        uint8_t column = lane[2 * i + 1];
        for (int k = 5; k >= 0; k--) more = more << 8 | blocks[16 * t + k];
        if (more >= m->rest[g * COLUMNS + column]) continue;
        for (Py_ssize_t p = 0; p < m->planes; p++) {
            Columns c = columns_of(m, g, p);
            const uint8_t *uniform = uniform_of(m, lane, g, p);
            m->out[p * m->stride + at] ^= (c.own[column] ^ c.other[column]) & (uniform ? uniform[2 * i] : 255);
        }
    }
}

/* ---------------------------------------------------------------- view, XOR, rebuild */

typedef struct {
    const void *source;
    void *release;
    const uint8_t *masks; /* [planes][stride] */
    Py_ssize_t stride, height, width;
    int block, bits, to_rgb;
    uint32_t keep, drop;
} Strip;

INLINE int clamp(int value, int top) { return value < 0 ? 0 : value > top ? top : value; }

/* Takes the block means out of up to 8 rows of one channel, in place. Rows and columns beyond the edge repeat the last.
 * 16-bit numbers are enough for 8-bit channels, and twice as many fit into a vector. */
#define DEFINE_PRUNE(NAME, T)                                                                                       \
    INLINE void NAME(T x[][CHUNK + MAX_BLOCK], Py_ssize_t rows, Py_ssize_t columns, int block, int bits) {          \
        T down[CHUNK + MAX_BLOCK], sums[CHUNK + MAX_BLOCK];                                                         \
        int area = block * block, shift = block == 2 ? 2 : 6;                                                       \
        T add = (T)((area << (bits - 1)) + area / 2), top = (T)((1 << bits) - 1);                                   \
        Py_ssize_t padded = (columns + block - 1) / block * block;                                                  \
        for (Py_ssize_t r = 0; r < rows; r++)                                                                       \
            for (Py_ssize_t i = columns; i < padded; i++) x[r][i] = x[r][columns - 1];                              \
        if (block == 2)                                                                                             \
            for (Py_ssize_t i = 0; i < padded; i++) down[i] = (T)(x[0][i] + x[rows - 1][i]);                        \
        else {                                                                                                      \
            for (Py_ssize_t i = 0; i < padded; i++) down[i] = (T)(x[rows - 1][i] * (T)(block - rows));              \
            for (Py_ssize_t r = 0; r < rows; r++)                                                                   \
                for (Py_ssize_t i = 0; i < padded; i++) down[i] = (T)(down[i] + x[r][i]);                           \
        }                                                                                                           \
        for (Py_ssize_t i = 0; i < padded; i += block) {                                                            \
            T sum = 0;                                                                                              \
            for (int j = 0; j < block; j++) sum = (T)(sum + down[i + j]);                                           \
            for (int j = 0; j < block; j++) sums[i + j] = sum;                                                      \
        }                                                                                                           \
        for (Py_ssize_t r = 0; r < rows; r++)                                                                       \
            for (Py_ssize_t i = 0; i < padded; i++) {                                                               \
                T y = (T)((T)(area * x[r][i] - sums[i] + add) >> shift);                                            \
                x[r][i] = y < 0 ? 0 : y > top ? top : y;                                                            \
            }                                                                                                       \
    }
DEFINE_PRUNE(prune8, int16_t)
DEFINE_PRUNE(prune16, int32_t)

/* Splitting RGB into planes and the arithmetic are separate loops: each vectorises well, together they do not. */
INLINE void load_colour(const uint8_t *restrict rgb, Py_ssize_t n, int16_t *restrict y, int16_t *restrict cb, int16_t *restrict cr) {
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

INLINE void interleave(uint8_t *restrict out, Py_ssize_t n, const uint8_t *restrict a, const uint8_t *restrict b, const uint8_t *restrict c) {
    for (Py_ssize_t i = 0; i < n; i++) {
        out[3 * i] = a[i];
        out[3 * i + 1] = b[i];
        out[3 * i + 2] = c[i];
    }
}

/* The coefficients of view.py without their multiples of 65536, which pass the shift unchanged: the products then have 16-bit factors. */
INLINE void store_colour(uint8_t *restrict out, Py_ssize_t n, const int16_t *restrict y, const int16_t *restrict cb, const int16_t *restrict cr, int to_rgb) {
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

INLINE void colour_rows(const Strip *s, int block) {
    int16_t channel[3][MAX_BLOCK][CHUNK + MAX_BLOCK];
    for (Py_ssize_t top = 0; top < s->height; top += block) {
        Py_ssize_t rows = s->height - top < block ? s->height - top : block;
        for (Py_ssize_t left = 0; left < s->width; left += CHUNK) {
            Py_ssize_t n = s->width - left < CHUNK ? s->width - left : CHUNK;
            for (Py_ssize_t r = 0; r < rows; r++)
                load_colour((const uint8_t *)s->source + 3 * ((top + r) * s->width + left), n, channel[0][r], channel[1][r], channel[2][r]);
            for (int c = 0; c < 3; c++) {
                int plane = 2 - c; /* plane 0 is the lowest byte of the word, Cr */
                int16_t keep = s->keep >> 8 * plane & 255, drop = s->drop >> 8 * plane & 255;
                if (block > 1) prune8(channel[c], rows, n, block, 8);
                for (Py_ssize_t r = 0; r < rows; r++)
                    randomise(channel[c][r], s->masks + plane * s->stride + (top + r) * s->width + left, keep, drop, n);
            }
            for (Py_ssize_t r = 0; r < rows; r++)
                store_colour((uint8_t *)s->release + 3 * ((top + r) * s->width + left), n, channel[0][r], channel[1][r], channel[2][r], s->to_rgb);
        }
    }
}

INLINE void grey_rows(const Strip *s, int block) {
    int16_t x[MAX_BLOCK][CHUNK + MAX_BLOCK];
    for (Py_ssize_t top = 0; top < s->height; top += block) {
        Py_ssize_t rows = s->height - top < block ? s->height - top : block;
        for (Py_ssize_t left = 0; left < s->width; left += CHUNK) {
            Py_ssize_t n = s->width - left < CHUNK ? s->width - left : CHUNK;
            for (Py_ssize_t r = 0; r < rows; r++) {
                const uint8_t *source = (const uint8_t *)s->source + (top + r) * s->width + left;
                for (Py_ssize_t i = 0; i < n; i++) x[r][i] = source[i];
            }
            if (block > 1) prune8(x, rows, n, block, s->bits);
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
    int32_t x[MAX_BLOCK][CHUNK + MAX_BLOCK];
    for (Py_ssize_t top = 0; top < s->height; top += block) {
        Py_ssize_t rows = s->height - top < block ? s->height - top : block;
        for (Py_ssize_t left = 0; left < s->width; left += CHUNK) {
            Py_ssize_t n = s->width - left < CHUNK ? s->width - left : CHUNK;
            for (Py_ssize_t r = 0; r < rows; r++) {
                const uint16_t *source = (const uint16_t *)s->source + (top + r) * s->width + left;
                for (Py_ssize_t i = 0; i < n; i++) x[r][i] = source[i];
            }
            if (block > 1) prune16(x, rows, n, block, s->bits);
            for (Py_ssize_t r = 0; r < rows; r++) {
                Py_ssize_t at = (top + r) * s->width + left;
                const uint8_t *low = s->masks + at, *high = low + s->stride;
                uint16_t *release = (uint16_t *)s->release + at;
                for (Py_ssize_t i = 0; i < n; i++) release[i] = (uint16_t)(((x[r][i] ^ (low[i] | high[i] << 8)) & s->keep) | s->drop);
            }
        }
    }
}

/* The side of a block as a constant, so that each case is compiled on its own, for each instruction set. */
#define DEFINE_FINISH(NAME, TARGET)                              \
    TARGET static void NAME(const Strip *s, int channels) {      \
        if (channels == 3) {                                     \
            if (s->block == 1) colour_rows(s, 1);                \
            else if (s->block == 2) colour_rows(s, 2);           \
            else colour_rows(s, 8);                              \
        } else if (s->bits <= 8) {                               \
            if (s->block == 1) grey_rows(s, 1);                  \
            else if (s->block == 2) grey_rows(s, 2);             \
            else grey_rows(s, 8);                                \
        } else {                                                 \
            if (s->block == 1) deep_grey_rows(s, 1);             \
            else if (s->block == 2) deep_grey_rows(s, 2);        \
            else deep_grey_rows(s, 8);                           \
        }                                                        \
    }

typedef struct {
    const char *name;
    Lookup lookup;
    void (*finish)(const Strip *s, int channels);
} Variant;

DEFINE_FINISH(finish_plain, )
#ifdef X86
DEFINE_FINISH(finish_avx2, AVX2)
DEFINE_FINISH(finish_vbmi, VBMI)
static const Variant variants[] = {
    {"portable", lookup_plain, finish_plain}, {"avx2", lookup_avx2, finish_avx2}, {"avx512vbmi", lookup_vbmi, finish_vbmi}};
static int supported(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) return 1;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") ? 3 : 2;
}
#else
static const Variant variants[] = {{"portable", lookup_plain, finish_plain}};
static int supported(void) { return 1; }
#endif

/* ---------------------------------------------------------------- Python */

typedef struct {
    Py_buffer lanes, first, rest, outcome, uniform, out;
    Masks m;
} MaskArguments;

static void release_arguments(MaskArguments *a) {
    Py_buffer *all[] = {&a->lanes, &a->first, &a->rest, &a->outcome, &a->uniform, &a->out};
    for (int i = 0; i < 6; i++) PyBuffer_Release(all[i]);
}

static int check_variant(int variant) {
    if (variant >= 0 && variant < supported()) return 1;
    PyErr_Format(PyExc_ValueError, "this processor does not have variant %d of the kernel", variant);
    return 0;
}

/* Sizes are checked against each other, so that no call from Python can read or write outside a buffer. */
static int check_arguments(MaskArguments *a, Py_ssize_t offset) {
    Masks *m = &a->m;
    m->groups = a->uniform.len;
    if (m->groups < 1 || m->groups > 64 || m->planes < 1 || m->planes > MAX_PLANES) goto wrong;
    if (a->first.len != m->groups * COLUMNS || a->rest.len != a->first.len * 8 || a->outcome.len != m->groups * 2 * m->planes * COLUMNS) goto wrong;
    m->uniform = a->uniform.buf;
    m->per_block = 0;
    for (Py_ssize_t g = 0; g < m->groups; g++) m->per_block += lanes_of(m, g);
    Py_ssize_t block_bytes = m->per_block * 2 * BLOCK_PIXELS;
    m->blocks = a->lanes.len / block_bytes;
    m->stride = a->out.len / m->planes;
    if (a->lanes.len % block_bytes || a->out.len % m->planes || offset < 0 || offset + m->blocks * BLOCK_PIXELS > m->stride) goto wrong;
    m->lanes = a->lanes.buf;
    m->first = a->first.buf;
    m->rest = a->rest.buf;
    m->outcome = a->outcome.buf;
    m->out = (uint8_t *)a->out.buf + offset;
    return 1;
wrong:
    PyErr_SetString(PyExc_ValueError, "the sizes of lanes, tables and masks do not belong together");
    return 0;
}

#define TABLE_FORMAT "y*y*y*y*y*nKw*n"
#define TABLE_TARGETS(a, first_pixel, offset) \
    &a.lanes, &a.first, &a.rest, &a.outcome, &a.uniform, &a.m.planes, &first_pixel, &a.out, &offset

static PyObject *py_draw(PyObject *self, PyObject *args) {
    (void)self;
    MaskArguments a;
    Py_buffer counters;
    unsigned long long first_pixel;
    Py_ssize_t offset, ties = -1;
    int variant;
    if (!PyArg_ParseTuple(args, "i" TABLE_FORMAT "w*", &variant, TABLE_TARGETS(a, first_pixel, offset), &counters)) return NULL;
    a.m.first_pixel = first_pixel;
    if (check_arguments(&a, offset) && check_variant(variant)) {
        Py_BEGIN_ALLOW_THREADS
        ties = draw_masks(&a.m, variants[variant].lookup, counters.buf, counters.len / 16);
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
    if (!PyArg_ParseTuple(args, TABLE_FORMAT "y*y*", TABLE_TARGETS(a, first_pixel, offset), &counters, &blocks)) return NULL;
    a.m.first_pixel = first_pixel;
    if (check_arguments(&a, offset)) {
        uint64_t begin = a.m.first_pixel * (uint64_t)a.m.groups, end = begin + (uint64_t)(a.m.blocks * BLOCK_PIXELS * a.m.groups);
        ok = counters.len == blocks.len && counters.len % 16 == 0;
        for (Py_ssize_t t = 0; ok && t < counters.len / 16; t++) {
            uint64_t index = load_counter((const uint8_t *)counters.buf + 16 * t);
            ok = index >= begin && index < end;
        }
        if (ok) {
            Py_BEGIN_ALLOW_THREADS
            settle_ties(&a.m, counters.buf, blocks.buf, counters.len / 16);
            Py_END_ALLOW_THREADS
        } else
            PyErr_SetString(PyExc_ValueError, "the counters are not those of these pixels");
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
    int variant, channels, item, planes;
    unsigned int keep, drop;
    if (!PyArg_ParseTuple(args, "iy*w*y*nniiiIIi", &variant, &source, &release, &masks, &s.height, &s.width, &channels, &s.bits, &s.block, &keep, &drop, &s.to_rgb))
        return NULL;
    item = s.bits > 8 ? 2 : 1;
    planes = channels == 3 ? 3 : item;
    int ok = (channels == 3 ? s.bits == 8 : channels == 1 && s.bits >= 1 && s.bits <= 16) && (s.block == 1 || s.block == 2 || s.block == 8) &&
             s.height >= 0 && s.width >= 0 && source.len == s.height * s.width * channels * item && release.len == source.len &&
             masks.len % planes == 0 && masks.len / planes >= s.height * s.width;
    if (ok && (ok = check_variant(variant))) {
        s.source = source.buf;
        s.release = release.buf;
        s.masks = masks.buf;
        s.stride = masks.len / planes;
        s.keep = keep;
        s.drop = drop;
        Py_BEGIN_ALLOW_THREADS
        variants[variant].finish(&s, channels);
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
    {"draw", py_draw, METH_VARARGS, "draw(variant, lanes, first, rest, outcome, uniform, planes, first_pixel, out, offset, counters) -> ties"},
    {"settle", py_settle, METH_VARARGS, "settle(lanes, first, rest, outcome, uniform, planes, first_pixel, out, offset, counters, blocks)"},
    {"finish", py_finish, METH_VARARGS, "finish(variant, source, release, masks, height, width, channels, bits, block, keep, drop, to_rgb)"},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module) {
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
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", "Masks and views on strips of an image.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&module); }
