/* boot.c - a boot loader for the board mps2-an385 in QEMU: it starts the firmware of a slot, and tries a new one once.
 *
 *     qemu-system-arm -M mps2-an385 -display none -monitor none -serial unix:board.sock,server=on -kernel device/build/arm/boot.elf
 *
 * An image is linked for one address (slot.ld), whichever slot it is in, and copied there: MCUboot calls this RAM load. An image is whole if
 * its size, in the seventh of the vectors, which the processor does not use, and the CRC-32C behind it are right (scripts/bootable.py); a
 * signature would be verified here, too. FACTORY is the file of the first firmware: it is written to slot 0 if there is no mark, or
 * no slot has a whole image. The watchdog runs when firmware starts.
 */
#include "../board.h"
#include "../uart.h"
#include "../../../src/internal.h"
#include "slots.h"

enum { SIZE_AT = 28, VECTORS_BYTES = 64 };

__asm__(".section .rodata.factory\n"
        ".balign 4\n"
        "factory: .incbin \"" FACTORY "\"\n"
        "factory_end:\n"
        ".balign 8\n"
        ".text\n");
extern const uint8_t factory[], factory_end[];

static mrd_boot boot;

/* The size of the image in a slot, or 0 if none is whole. */
static uint32_t whole(int slot) {
    const uint8_t *image = board_image(slot);
    uint32_t size = mrd_load4(image + SIZE_AT);
    bool fits = size >= VECTORS_BYTES && size <= BOARD_SLOT_BYTES - 4 && size % 4 == 0;
    return fits && mrd_crc(0, image, size) == mrd_load4(image + size) ? size : 0;
}

/* Power may be lost in this: the mark comes last. */
static int install_factory(void) {
    const mrd_port *port = board_slot(0);
    uint32_t size = mrd_align((uint32_t)(factory_end - factory), port->unit);
    for (uint32_t at = 0; at < size; at += port->sector_bytes) {
        uint32_t part = size - at < port->sector_bytes ? size - at : port->sector_bytes;
        if (port->erase(port->context, at) != 0 || port->program(port->context, at, factory + at, part) != 0) return MRD_BOOT_FAILED;
    }
    uart_print("boot: factory firmware\n");
    return mrd_boot_install(&boot) == 0 ? 0 : MRD_BOOT_FAILED;
}

static int choose(void) {
    int slot = mrd_boot_begin(&boot);
    if (slot >= 0 && whole(slot) == 0) {
        uart_print("boot: no whole image in the slot of the mark\n");
        slot = mrd_boot_skip(&boot);
    }
    bool installs = slot == MRD_BOOT_NEW || (slot >= 0 && whole(slot) == 0);
    return installs ? install_factory() : slot;
}

#define VECTOR_TABLE (*(volatile uint32_t *)0xE000ED08)

/* The first two vectors are the end of the main stack, and where the firmware begins. */
static void start(int slot) {
    uint32_t *loaded = (uint32_t *)BOARD_LOADED;
    memcpy(loaded, board_image(slot), whole(slot));
    VECTOR_TABLE = BOARD_LOADED;
    board_watch(BOARD_WATCH_CYCLES);
    __asm__ volatile("msr msp, %0\n bx %1" : : "r"(loaded[0]), "r"(loaded[1]) : "memory");
}

void board_fault(void) { board_reset(); }

int main(void) {
    BOARD_UART[4] = BOARD_HZ / 115200;
    BOARD_UART[2] = 1; /* it sends only: what comes is for the firmware */
    int slot = board_slots_open(&boot) == 0 ? choose() : MRD_BOOT_FAILED;
    if (slot < 0) {
        uart_print("boot: the flash of the marks failed\n");
        return 1;
    }
    uart_print(slot == 0 ? "boot: slot 0\n" : "boot: slot 1\n");
    start(slot);
    return 1;
}
