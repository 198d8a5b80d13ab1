/* The floor: what a C program reaches that does the same work on the same format.
 *
 * Compiled by benchmarks/floor.py when a compiler is there (-O3 -march=native) and called through
 * ctypes. Items are the 40 bytes of the message schema (tierdex/indexfile/layout.py); slots, links,
 * pages, directory and filter are those of the format. No locks, no errors, no other schema: less
 * than the index does, which is what makes it a floor.
 *
 * x86-64 with SSE4.2 only: the checksum is the instruction, and nothing else would be a floor.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;
typedef int64_t i64;
typedef int32_t i32;

typedef struct __attribute__((packed)) {
    u64 hash;
    u32 link, tag;
    i64 time, offset;
    u32 size;
    i32 queue;
} item;

#define P1 0x9E3779B185EBCA87ULL
#define P2 0xC2B2AE3D27D4EB4FULL
#define P3 0x165667B19E3779F9ULL
#define P4 0x85EBCA77C2B2AE63ULL
#define P5 0x27D4EB2F165667C5ULL
#define ROTL(x, r) (((x) << (r)) | ((x) >> (64 - (r))))
#define RING 32
#define GROUP 64

static inline u64 load64(const void *p) { u64 v; memcpy(&v, p, 8); return v; }
static inline u32 load32(const void *p) { u32 v; memcpy(&v, p, 4); return v; }
static inline u16 load16(const void *p) { u16 v; memcpy(&v, p, 2); return v; }
static inline u64 high(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
static inline u64 round64(u64 lane, u64 word) { lane += word * P2; return ROTL(lane, 31) * P1; }
static inline u64 merge64(u64 state, u64 lane) { return (state ^ round64(0, lane)) * P1 + P4; }

static inline u64 xxh64(const u8 *p, i64 length, u64 seed) {
    const u8 *end = p + length;
    u64 h;
    if (length >= 32) {
        u64 a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; p + 32 <= end; p += 32) {
            a = round64(a, load64(p));
            b = round64(b, load64(p + 8));
            c = round64(c, load64(p + 16));
            d = round64(d, load64(p + 24));
        }
        h = ROTL(a, 1) + ROTL(b, 7) + ROTL(c, 12) + ROTL(d, 18);
        h = merge64(merge64(merge64(merge64(h, a), b), c), d);
    } else {
        h = seed + P5;
    }
    h += (u64)length;
    for (; p + 8 <= end; p += 8) { h ^= round64(0, load64(p)); h = ROTL(h, 27) * P1 + P4; }
    if (p + 4 <= end) { h ^= load32(p) * P1; h = ROTL(h, 23) * P2 + P3; p += 4; }
    for (; p < end; p++) { h ^= *p * P5; h = ROTL(h, 11) * P1; }
    h = (h ^ (h >> 33)) * P2;
    h = (h ^ (h >> 29)) * P3;
    return h ^ (h >> 32);
}

/* Hash `count` keys and insert them as rows first_row ..: the kernel of an append.
 * `state` holds crc, least time, greatest time; `ends` the greatest end offset of each of 8 queues. */
void floor_put(u32 *slots, u64 slot_count, item *rows, i64 first_row, i64 count,
               const i32 *offsets, const u8 *data, u64 seed, u32 tag,
               const i64 *time, const i64 *offset, const u32 *size, const i32 *queue,
               i64 *state, i64 *ends) {
    u64 ring[RING];
    u64 crc = (u32)state[0] ^ 0xFFFFFFFFu;
    i64 low = state[1], top = state[2];
    i64 ahead = count < RING ? count : RING;
    for (i64 i = 0; i < ahead; i++) {
        ring[i] = xxh64(data + offsets[i], offsets[i + 1] - offsets[i], seed);
        __builtin_prefetch(slots + high(ring[i], slot_count), 1);
    }
    item *target = rows + first_row - 1;
    for (i64 i = 0; i < count; i++, target++) {
        u64 hash = ring[i % RING];
        if (i + RING < count) {
            u64 next = xxh64(data + offsets[i + RING], offsets[i + RING + 1] - offsets[i + RING], seed);
            ring[i % RING] = next;
            __builtin_prefetch(slots + high(next, slot_count), 1);
        }
        u32 *slot = slots + high(hash, slot_count);
        item made = {hash, *slot, tag, time[i], offset[i], size[i], queue[i]};
        memcpy(target, &made, sizeof made);
        *slot = (u32)(first_row + i);
        const u8 *bytes = (const u8 *)&made;
        for (int k = 0; k < 40; k += 8) crc = _mm_crc32_u64(crc, load64(bytes + k));
        low = made.time < low ? made.time : low;
        top = made.time > top ? made.time : top;
        i64 end = made.offset + made.size;
        i64 *place = ends + (made.queue & 7);
        *place = end > *place ? end : *place;
    }
    state[0] = (u32)crc ^ 0xFFFFFFFFu;
    state[1] = low;
    state[2] = top;
}

/* Keys in, columns out, 64 chains walked side by side; returns the lookups found. */
i64 floor_get(const u32 *slots, u64 slot_count, const item *rows, i64 count,
              const i32 *offsets, const u8 *data, u64 seed, u32 tag,
              i64 *lookup, i32 *topic, i64 *time, i64 *offset, u32 *size, i32 *queue) {
    i64 found = 0;
    for (i64 start = 0; start < count; start += GROUP) {
        i64 n = count - start < GROUP ? count - start : GROUP;
        u64 hash[GROUP];
        u32 row[GROUP], hit[GROUP];
        int active[GROUP], running = 0;
        for (i64 j = 0; j < n; j++) {
            i64 i = start + j;
            hash[j] = xxh64(data + offsets[i], offsets[i + 1] - offsets[i], seed);
            __builtin_prefetch(slots + high(hash[j], slot_count));
        }
        for (i64 j = 0; j < n; j++) {
            row[j] = slots[high(hash[j], slot_count)];
            hit[j] = 0;
            if (row[j]) {
                __builtin_prefetch(rows + row[j] - 1);
                __builtin_prefetch((const u8 *)(rows + row[j] - 1) + 39);
                active[running++] = (int)j;
            }
        }
        while (running) {
            int still = 0;
            for (int a = 0; a < running; a++) {
                int j = active[a];
                const item *at = rows + row[j] - 1;
                if (at->hash == hash[j] && at->tag == tag) {
                    hit[j] = row[j];
                } else if (at->link) {
                    row[j] = at->link;
                    __builtin_prefetch(rows + row[j] - 1);
                    __builtin_prefetch((const u8 *)(rows + row[j] - 1) + 39);
                    active[still++] = j;
                }
            }
            running = still;
        }
        for (i64 j = 0; j < n; j++) {
            if (!hit[j]) continue;
            const item *at = rows + hit[j] - 1;
            lookup[found] = start + j;
            topic[found] = (i32)(at->tag & 0x7FFFFFFF);
            time[found] = at->time;
            offset[found] = at->offset;
            size[found] = at->size;
            queue[found] = at->queue;
            found++;
        }
    }
    return found;
}

/* Compaction to plain rows: slots in order, 64 chains side by side, each short chain sorted by hash. */
i64 floor_compact(const u32 *slots, i64 slot_count, const item *rows, item *out) {
    enum { DEEP = 64 };
    static u32 chain[GROUP][DEEP];
    i64 written = 0;
    for (i64 start = 0; start < slot_count; start += GROUP) {
        i64 n = slot_count - start < GROUP ? slot_count - start : GROUP;
        int length[GROUP], active[GROUP], running = 0;
        u32 row[GROUP];
        for (i64 j = 0; j < n; j++) {
            length[j] = 0;
            row[j] = slots[start + j];
            if (row[j]) { __builtin_prefetch(rows + row[j] - 1); active[running++] = (int)j; }
        }
        while (running) {
            int still = 0;
            for (int a = 0; a < running; a++) {
                int j = active[a];
                const item *at = rows + row[j] - 1;
                if (length[j] < DEEP) chain[j][length[j]++] = row[j];
                if ((row[j] = at->link)) { __builtin_prefetch(rows + row[j] - 1); active[still++] = j; }
            }
            running = still;
        }
        for (i64 j = 0; j < n; j++) {
            for (int a = 1; a < length[j]; a++) {  /* stable: newest first among equals */
                u32 moving = chain[j][a];
                int b = a;
                while (b > 0 && rows[chain[j][b - 1] - 1].hash > rows[moving - 1].hash) {
                    chain[j][b] = chain[j][b - 1];
                    b--;
                }
                chain[j][b] = moving;
            }
            for (int a = 0; a < length[j]; a++) {
                u32 number = chain[j][a];
                memcpy(out + written++, rows + number - 1, sizeof(item));
            }
        }
    }
    return written;
}

/* ---- compacted form ------------------------------------------------------------------------------ */

/* The i64 words of tierdex/indexfile/kernels: a file, its filter, its plan. */
enum { F_PLAN, F_PAGES, F_DIRECTORY, F_PAGE_COUNT, F_FILTER = 7 };
enum { B_PARTITIONS, B_PARTITION_COUNT, B_FINGERPRINTS };
enum { PLAN_COLUMNS, PLAN_QUEUE_LEAST = 4, PLAN_QUEUE_SPAN, PLAN_BASES };
enum { PLAN_WORDS = 16, COLUMN_WORDS = 8 };
enum { C_POSITION, C_BYTES, C_SIGNED, C_FRAME, C_WIDTH, C_BASE, C_ROTATED, C_RELATIVE };

static inline u64 packed(const u8 *column, i64 index, int width) {
    if (width == 64) return load64(column + 8 * index);
    u64 bit = (u64)index * width;
    return (load64(column + (bit >> 3)) >> (bit & 7)) & (((u64)1 << width) - 1);
}

static inline u64 mix(u64 hash, u64 seed) {
    u64 v = hash + seed;
    v = (v ^ (v >> 33)) * 0xFF51AFD7ED558CCDULL;
    v = (v ^ (v >> 33)) * 0xC4CEB9FE1A85EC53ULL;
    return v ^ (v >> 33);
}

/* Set the mixed hash and the places of its four fingerprints, of 1 << wide bytes, and ask for them. */
static inline void fingerprints_of(const i64 *filter, const u8 *entry, u64 hash, int wide,
                                   u64 *mixed, const u8 **prints) {
    u64 value = mix(hash, load64(entry + 8)), length = load32(entry + 16);
    u64 first = high(value, length * load32(entry + 20));
    const u8 *begin = (const u8 *)filter[B_FINGERPRINTS] + load64(entry);
    prints[0] = begin + (first << wide);
    prints[1] = begin + (((first + length) ^ ((value >> 36) & (length - 1))) << wide);
    prints[2] = begin + (((first + 2 * length) ^ ((value >> 18) & (length - 1))) << wide);
    prints[3] = begin + (((first + 3 * length) ^ (value & (length - 1))) << wide);
    for (int k = 0; k < 4; k++) __builtin_prefetch(prints[k]);
    *mixed = value;
}

static inline u64 hash_at(const u8 *page, const u8 *column, i64 row, int width) {
    return load64(page + 8) + (u64)row * load64(page + 16) + packed(column, row, width);
}

static inline i64 page_below(const u8 *directory, i64 pages, u64 hash) {
    i64 at = (i64)high(hash, (u64)pages);  /* even spread names the page within a few */
    while (at > 0 && load64(directory + 32 * at) >= hash) at--;
    while (at + 1 < pages && load64(directory + 32 * (at + 1)) < hash) at++;
    return at;
}

static void decode(const u8 *page, const i64 *plan, i64 row, item *out) {
    i64 count = load16(page + 4);
    const u8 *head = page + 24, *at = head + 13 * page[7] + ((count * page[6] + 7) >> 3);
    i64 offset = 0;
    int relative = 0;
    for (i64 c = 0; c < plan[PLAN_COLUMNS]; c++) {
        const i64 *column = plan + PLAN_WORDS + COLUMN_WORDS * c;
        int width = (int)column[C_WIDTH];
        u64 base = (u64)column[C_BASE], scale = 1;
        if (column[C_FRAME] == 2) {
            base = load64(head);
            scale = load32(head + 8);
            width = head[12];
            head += 13;
        }
        u64 value = base + scale * packed(at, row, width);
        if (column[C_ROTATED]) value = (value >> 1) | ((value & 1) << 31);
        at += (count * width + 7) >> 3;
        memcpy((u8 *)out + column[C_POSITION], &value, (size_t)column[C_BYTES]);
        if (column[C_RELATIVE]) { relative = 1; offset = (i64)value; }
    }
    if (relative) {
        i64 place = (out->tag & 0x7FFFFFFF) * plan[PLAN_QUEUE_SPAN] + out->queue - plan[PLAN_QUEUE_LEAST];
        out->offset = offset + ((const i64 *)plan[PLAN_BASES])[place];
    }
}

/* Say of each hash whether a filter of 16 or 8 bit may hold it; verifies nothing. */
void floor_contains(const i64 *filter, i64 bits, const u64 *hashes, i64 count, u8 *answers) {
    const u8 *partitions = (const u8 *)filter[B_PARTITIONS];
    for (i64 start = 0; start < count; start += GROUP) {
        i64 n = count - start < GROUP ? count - start : GROUP;
        const u8 *prints[GROUP][4];
        u64 mixed[GROUP];
        for (i64 j = 0; j < n; j++) {
            u64 hash = hashes[start + j];
            const u8 *entry = partitions + 32 * high(hash, (u64)filter[B_PARTITION_COUNT]);
            fingerprints_of(filter, entry, hash, bits == 16, &mixed[j], prints[j]);
        }
        for (i64 j = 0; j < n; j++) {
            u16 print = (u16)(mixed[j] ^ (mixed[j] >> 32));
            if (bits == 16) {
                for (int k = 0; k < 4; k++) print ^= load16(prints[j][k]);
            } else {
                for (int k = 0; k < 4; k++) print ^= *prints[j][k];
                print &= 0xFF;
            }
            answers[start + j] = print == 0;
        }
    }
}

/* Take the checksum of one page, and unpack it to rows; returns the checksum, which nobody compares. */
i64 floor_unpack(const i64 *file, const u8 *page, i64 length, item *out) {
    const u8 *column = page + 24 + 13 * page[7];
    i64 count = load16(page + 4);
    u64 crc = 0;
    for (i64 at = 0; at + 8 <= length; at += 8) crc = _mm_crc32_u64(crc, load64(page + at));
    const i64 *plan = (const i64 *)file[F_PLAN];
    const u8 *head = page + 24, *at = column + ((count * page[6] + 7) >> 3);
    int relative = 0;
    for (i64 row = 0; row < count; row++) out[row].hash = hash_at(page, column, row, page[6]);
    for (i64 row = 0; row < count; row++) out[row].link = 0;
    for (i64 c = 0; c < plan[PLAN_COLUMNS]; c++) {
        const i64 *words = plan + PLAN_WORDS + COLUMN_WORDS * c;
        int width = (int)words[C_WIDTH];
        u64 base = (u64)words[C_BASE], scale = 1;
        if (words[C_FRAME] == 2) {
            base = load64(head);
            scale = load32(head + 8);
            width = head[12];
            head += 13;
        }
        u8 *target = (u8 *)out + words[C_POSITION];
        for (i64 row = 0; row < count; row++, target += sizeof(item)) {
            u64 value = base + scale * packed(at, row, width);
            if (words[C_ROTATED]) value = (value >> 1) | ((value & 1) << 31);
            if (words[C_BYTES] == 8) memcpy(target, &value, 8);
            else memcpy(target, &value, 4);  /* the message schema has no other width */
        }
        relative |= words[C_RELATIVE] != 0;
        at += (count * width + 7) >> 3;
    }
    for (i64 row = 0; relative && row < count; row++) {
        i64 place = (out[row].tag & 0x7FFFFFFF) * plan[PLAN_QUEUE_SPAN] + out[row].queue - plan[PLAN_QUEUE_LEAST];
        out[row].offset += ((const i64 *)plan[PLAN_BASES])[place];
    }
    return (i64)crc;
}

/* Keys in, columns out, over a mapped compacted file with a 16-bit filter; one item a key. */
i64 floor_get_compacted(const i64 *file, i64 count, const i32 *offsets, const u8 *data, u64 seed, u32 tag,
                        i64 *lookup, i32 *topic, i64 *time, i64 *offset, u32 *size, i32 *queue) {
    const i64 *plan = (const i64 *)file[F_PLAN], *filter = (const i64 *)file[F_FILTER];
    const u8 *pages = (const u8 *)file[F_PAGES], *directory = (const u8 *)file[F_DIRECTORY];
    const u8 *partitions = (const u8 *)filter[B_PARTITIONS];
    i64 found = 0, page_count = file[F_PAGE_COUNT];
    for (i64 start = 0; start < count; start += GROUP) {
        i64 n = count - start < GROUP ? count - start : GROUP;
        u64 hash[GROUP], mixed[GROUP];
        const u8 *prints[GROUP][4], *page[GROUP], *column[GROUP];
        i64 number[GROUP], low[GROUP], top[GROUP];
        int wanted[GROUP];
        for (i64 j = 0; j < n; j++) {
            i64 i = start + j;
            hash[j] = xxh64(data + offsets[i], offsets[i + 1] - offsets[i], seed);
            const u8 *entry = partitions + 32 * high(hash[j], (u64)filter[B_PARTITION_COUNT]);
            fingerprints_of(filter, entry, hash[j], 1, &mixed[j], prints[j]);
            __builtin_prefetch(directory + 32 * high(hash[j], (u64)page_count));
        }
        for (i64 j = 0; j < n; j++) {
            u16 print = load16(prints[j][0]) ^ load16(prints[j][1]) ^ load16(prints[j][2]) ^ load16(prints[j][3]);
            wanted[j] = (u16)(mixed[j] ^ (mixed[j] >> 32)) == print;
            if (!wanted[j]) continue;
            number[j] = page_below(directory, page_count, hash[j]);
            page[j] = pages + load64(directory + 32 * number[j] + 8);
            __builtin_prefetch(page[j]);
        }
        for (i64 j = 0; j < n; j++) {
            if (!wanted[j]) continue;
            i64 items = load16(page[j] + 4);
            int width = page[j][6];
            u64 slope = load64(page[j] + 16), distance = hash[j] - load64(page[j] + 8);
            column[j] = page[j] + 24 + 13 * page[j][7];
            low[j] = 0;
            top[j] = items;
            if (slope && width < 56) {
                u64 reach = (u64)1 << width, end = distance / slope + 1;
                u64 begin = distance >= reach ? (distance - reach) / slope + 1 : 0;
                low[j] = begin < (u64)items ? (i64)begin : items;
                top[j] = end < (u64)items ? (i64)end : items;
            }
            __builtin_prefetch(column[j] + (((low[j] + top[j]) / 2 * width) >> 3));
            i64 middle = (low[j] + top[j]) / 2;
            const u8 *head = page[j] + 24, *at = column[j] + ((items * width + 7) >> 3);
            for (i64 c = 0; c < plan[PLAN_COLUMNS]; c++) {
                const i64 *words = plan + PLAN_WORDS + COLUMN_WORDS * c;
                int bits = (int)words[C_WIDTH];
                if (words[C_FRAME] == 2) { bits = head[12]; head += 13; }
                __builtin_prefetch(at + ((middle * bits) >> 3));
                at += (items * bits + 7) >> 3;
            }
        }
        for (i64 j = 0; j < n; j++) {
            if (!wanted[j]) continue;
            i64 items = load16(page[j] + 4), row = low[j], end = top[j];
            int width = page[j][6];
            while (row < end) {
                i64 middle = (row + end) >> 1;
                if (hash_at(page[j], column[j], middle, width) < hash[j]) row = middle + 1;
                else end = middle;
            }
            if (row == items) {  /* the run begins in the next page */
                if (number[j] + 1 >= page_count) continue;
                page[j] = pages + load64(directory + 32 * (number[j] + 1) + 8);
                column[j] = page[j] + 24 + 13 * page[j][7];
                width = page[j][6];
                row = 0;
            }
            if (hash_at(page[j], column[j], row, width) != hash[j]) continue;
            item out = {0};
            decode(page[j], plan, row, &out);
            if (out.tag != tag) continue;
            lookup[found] = start + j;
            topic[found] = (i32)(out.tag & 0x7FFFFFFF);
            time[found] = out.time;
            offset[found] = out.offset;
            size[found] = out.size;
            queue[found] = out.queue;
            found++;
        }
    }
    return found;
}
