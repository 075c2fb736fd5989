/* fault.c - texts of errors: the details, and the entry of the catalogue. */
#include "client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    int number;
    const char *cause, *remedy;
} entry;

static const entry entries[] = {
#include "errors.inc"
};

static const entry *find(const char *code) {
    size_t i;
    if (code == NULL || strncmp(code, "MR", 2) != 0 || strlen(code) != 6) return NULL;
    for (i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (atoi(code + 2) == entries[i].number) return &entries[i];
    }
    return NULL;
}

const char *mrc_cause(const char *code) {
    const entry *found = find(code);
    return found == NULL ? NULL : found->cause;
}

const char *mrc_remedy(const char *code) {
    const entry *found = find(code);
    return found == NULL ? NULL : found->remedy;
}

/* Makes a text safe for a terminal, and ends it where no character is cut. */
static void tidy(char *text, size_t size) {
    size_t i;
    for (i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        /* C2 80 to C2 9F are control characters too. */
        bool control = c < 0x20 || c == 0x7f || (c == 0xc2 && i + 1 < size && (unsigned char)text[i + 1] < 0xa0);
        if (control) text[i] = '.';
        if (control && c == 0xc2) text[i + 1] = '.';
    }
    while (size > 0 && !mrw_is_utf8((const uint8_t *)text, size)) size--;
    text[size] = 0;
}

static void note(mrc_error *error, int number, size_t size) {
    error->number = number;
    /* Nothing is known of what was under way; with a key it can be asked for again. */
    error->may_retry = number == MRC_CONNECT_FAILED || number == MRC_CONNECT_TIMEOUT || number == MRC_CONNECTION_LOST ||
                       number == MRC_REQUEST_TIMEOUT || number == MRC_PEER_SILENT || number == MRC_HOST_STOPPING;
    error->retry_after_ms = 0;
    snprintf(error->code, sizeof error->code, "MR%04u", (unsigned)-number % 10000u);
    tidy(error->detail, size);
}

int mrc_fail(mrc_client *client, int number, const char *format, ...) {
    char text[sizeof client->error.detail];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* The words may be those of the error before. */
    memcpy(client->error.detail, text, sizeof text);
    note(&client->error, number, strlen(text));
    return number;
}

int mrc_fail_as(mrc_client *client, mrw_bytes code, mrw_bytes detail, mrw_optional_u32 retry_after_ms) {
    const char *digits = (const char *)code.at + 2;
    size_t size = detail.size < sizeof client->error.detail ? detail.size : sizeof client->error.detail - 1;
    int number = 0, i;
    if (code.size != 6 || memcmp(code.at, "MR", 2) != 0) return 0;
    for (i = 0; i < 4; i++) {
        if (digits[i] < '0' || digits[i] > '9') return 0;
        number = number * 10 + (digits[i] - '0');
    }
    if (number == 0) return 0;
    memcpy(client->error.detail, detail.at, size);
    note(&client->error, -number, size);
    client->error.may_retry = retry_after_ms.given;
    client->error.retry_after_ms = retry_after_ms.value;
    return -number;
}
