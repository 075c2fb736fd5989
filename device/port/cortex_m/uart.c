#include "uart.h"

#include "registers.h"

enum { BUFFER = 512, VECTORS = 16 + BOARD_UART_INTERRUPT + 1, TRIES = 100000 };

#define VECTOR_TABLE (*(volatile uint32_t *)0xE000ED08)
#define ENABLE_INTERRUPTS (*(volatile uint32_t *)0xE000E100)
#define DISABLE_INTERRUPTS (*(volatile uint32_t *)0xE000E180)
#define INTERRUPT (1u << BOARD_UART_INTERRUPT)

static volatile uint8_t buffer[BUFFER];
static volatile uint32_t head, tail; /* written here, and read there; they overflow */
static uint32_t vectors[VECTORS] __attribute__((aligned(128)));

/* If there is no room, the byte stays in the port, and the emulator sends nothing more; uart_read takes it. A real board would lose it:
 * then the connection begins again. The interrupt is cleared first: cleared at the end, that of a byte which came meanwhile would be lost,
 * and with it all that the other side sends from then on. */
static void receive(void) {
    board_uart_clear_interrupt();
    while (board_uart_has_received()) {
        if (head - tail == BUFFER) {
            DISABLE_INTERRUPTS = INTERRUPT;
            return;
        }
        buffer[head % BUFFER] = (uint8_t)BOARD_UART[0];
        head++;
    }
}

void uart_begin(uint32_t baud) {
    const volatile uint32_t *table = (const volatile uint32_t *)(uintptr_t)VECTOR_TABLE;
    for (unsigned i = 0; i < 16; i++) vectors[i] = table[i];
    vectors[VECTORS - 1] = (uint32_t)(uintptr_t)receive;
    VECTOR_TABLE = (uint32_t)(uintptr_t)vectors;
    board_uart_begin(baud);
    ENABLE_INTERRUPTS = INTERRUPT;
}

size_t uart_write(void *context, const void *bytes, size_t size) {
    size_t done = 0;
    (void)context;
    for (; done < size; done++) {
        unsigned tries = 0;
        while (board_uart_is_full() && tries < TRIES) tries++;
        if (tries == TRIES) break;
        BOARD_UART[0] = ((const uint8_t *)bytes)[done];
    }
    return done;
}

size_t uart_read(void *context, void *bytes, size_t size) {
    size_t done = 0;
    (void)context;
    for (; done < size && tail != head; done++, tail++) ((uint8_t *)bytes)[done] = buffer[tail % BUFFER];
    DISABLE_INTERRUPTS = INTERRUPT;
    receive();
    ENABLE_INTERRUPTS = INTERRUPT;
    return done;
}

bool uart_has_bytes(void) { return tail != head; }

void uart_print(const char *text) {
    for (; *text != 0; text++) uart_write(NULL, text, 1);
}
