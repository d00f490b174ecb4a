// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A model that the tests write: layers l0, l1, … with the weights "up" (bf16, 1024 × 1024, 2 MiB) and "down" (bf16, 512 × 1024, 1 MiB).

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { layers = 8, up_bytes = 2 << 20, down_bytes = 1 << 20, model_bytes = layers * (up_bytes + down_bytes) };

/// Byte `i` of weight `number`, which is 2 × layer for "up" and one more for "down".
static unsigned char expected_byte(uint32_t number, uint64_t i) {
    return (unsigned char)(i * 31 + (i >> 8) * 7 + (i >> 16) * 3 + number * 101 + 1);
}

/// Writes it as a safetensors file. Ends the program where it cannot.
static void write_model(const char* path) {
    char header[4096];
    size_t length = 0;
    uint64_t at = 0;
    uint32_t number = 0;
    uint64_t i = 0;
    FILE* const file = fopen(path, "wb");
    for (number = 0; number < 2 * layers; ++number) {
        const uint64_t end = at + (number % 2 == 0 ? up_bytes : down_bytes);
        length += (size_t)sprintf(header + length,
                                  "%s\"l%" PRIu32
                                  ".%s\":{\"dtype\":\"BF16\",\"shape\":[%d,1024],"
                                  "\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                                  number == 0 ? "{" : ",", number / 2, number % 2 == 0 ? "up" : "down",
                                  number % 2 == 0 ? 1024 : 512, at, end);
        at = end;
    }
    header[length++] = '}';
    while (length % 8 != 0) { header[length++] = ' '; }
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    for (i = 0; i < 8; ++i) { fputc((int)((uint64_t)length >> (8 * i) & 0xFF), file); }
    fwrite(header, 1, length, file);
    for (number = 0; number < 2 * layers; ++number) {
        const uint64_t bytes = number % 2 == 0 ? up_bytes : down_bytes;
        for (i = 0; i < bytes; ++i) { fputc(expected_byte(number, i), file); }
    }
    if (ferror(file) != 0 || fclose(file) != 0) {
        perror(path);
        exit(2);
    }
}
