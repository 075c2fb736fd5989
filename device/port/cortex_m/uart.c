#include "uart.h"

enum { BUFFER = 512, VECTORS = 17, TRIES = 100000 };

/* data, state (1: full to send, 2: received), control, interrupts, divider */
#define UART ((volatile uint32_t *)0x40004000)
#define VECTOR_TABLE (*(volatile uint32_t *)0xE000ED08)
#define ENABLE_INTERRUPTS (*(volatile uint32_t *)0xE000E100)
#define DISABLE_INTERRUPTS (*(volatile uint32_t *)0xE000E180)

static volatile uint8_t buffer[BUFFER];
static volatile uint32_t head, tail; /* written here, and read there; they overflow */
static uint32_t vectors[VECTORS] __attribute__((aligned(128)));

/* If there is no room, the byte stays in the port, and the emulator sends nothing more; uart_read takes it. A real board would lose it:
 * then the connection begins again. The interrupt is cleared first: cleared at the end, that of a byte which came meanwhile would be lost,
 * and with it all that the other side sends from then on. */
static void receive(void) {
    UART[3] = 2;
    while (UART[1] & 2) {
        if (head - tail == BUFFER) {
            DISABLE_INTERRUPTS = 1;
            return;
        }
        buffer[head % BUFFER] = (uint8_t)UART[0];
        head++;
    }
}

void uart_begin(uint32_t divider) {
    const volatile uint32_t *table = (const volatile uint32_t *)(uintptr_t)VECTOR_TABLE;
    for (unsigned i = 0; i < VECTORS - 1; i++) vectors[i] = table[i];
    vectors[VECTORS - 1] = (uint32_t)(uintptr_t)receive;
    VECTOR_TABLE = (uint32_t)(uintptr_t)vectors;
    UART[4] = divider;
    UART[2] = 1 | 2 | 8; /* sends, receives, and interrupts when it has received */
    ENABLE_INTERRUPTS = 1;
}

size_t uart_write(void *context, const void *bytes, size_t size) {
    size_t done = 0;
    (void)context;
    for (; done < size; done++) {
        unsigned tries = 0;
        while ((UART[1] & 1) && tries < TRIES) tries++;
        if (tries == TRIES) break;
        UART[0] = ((const uint8_t *)bytes)[done];
    }
    return done;
}

size_t uart_read(void *context, void *bytes, size_t size) {
    size_t done = 0;
    (void)context;
    for (; done < size && tail != head; done++, tail++) ((uint8_t *)bytes)[done] = buffer[tail % BUFFER];
    DISABLE_INTERRUPTS = 1;
    receive();
    ENABLE_INTERRUPTS = 1;
    return done;
}

bool uart_has_bytes(void) { return tail != head; }

void uart_print(const char *text) {
    for (; *text != 0; text++) uart_write(NULL, text, 1);
}
