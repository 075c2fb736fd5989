/* frames.c - prints what mrd_serial_take finds in the bytes of standard input, for the comparison with the host's decoder: a line for each
 * frame, and for each run of bytes with another result. With the argument "encode", the input has lines `KIND SESSION NUMBER HEX`, and the
 * output their bytes.
 */
#include "millrace_serial.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_frame(const mrd_serial_frame *frame) {
    printf("frame %u %lu %u ", frame->kind, (unsigned long)frame->session, frame->number);
    for (unsigned i = 0; i < frame->size; i++) printf("%02x", frame->data[i]);
    printf("\n");
}

static void decode(void) {
    mrd_serial_reader reader;
    mrd_serial_frame frame;
    memset(&reader, 0, sizeof reader);
    for (int byte; (byte = getchar()) != EOF;) {
        int result = mrd_serial_take(&reader, (uint8_t)byte, &frame);
        if (result == 1) print_frame(&frame);
        if (result == -1) printf("text %02x\n", (unsigned)byte);
        if (result == -2) printf("invalid\n");
    }
}

static void encode(void) {
    static char line[2 * MRD_SERIAL_DATA_MAX + 100];
    while (fgets(line, sizeof line, stdin)) {
        mrd_serial_frame frame;
        uint8_t bytes[MRD_SERIAL_FRAME_MAX];
        char *at = line;
        frame.kind = (uint8_t)strtoul(at, &at, 10);
        frame.session = (uint32_t)strtoul(at, &at, 10);
        frame.number = (uint16_t)strtoul(at, &at, 10);
        at += strspn(at, " ");
        size_t size = strspn(at, "0123456789abcdef") / 2;
        frame.size = (uint8_t)size;
        for (size_t i = 0; i < size; i++) {
            char pair[3] = {at[2 * i], at[2 * i + 1], 0};
            frame.data[i] = (uint8_t)strtoul(pair, NULL, 16);
        }
        fwrite(bytes, 1, mrd_serial_encode(&frame, bytes), stdout);
    }
}

int main(int count, char **words) {
    if (count == 2 && strcmp(words[1], "encode") == 0) encode();
    else decode();
    return 0;
}
