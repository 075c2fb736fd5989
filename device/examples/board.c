/* board.c - a thermometer on the board mps2-an385 in QEMU, without an operating system: it measures once an hour, here ten times a second,
 * computes means (mean.c), and sends everything to a host on its serial port, which boot messages share.
 *
 *     make -C device firmware
 *     qemu-system-arm -M mps2-an385 -display none -monitor none -serial unix:board.sock,server=on -kernel device/build/arm/board.elf
 *     millrace device attach board.sock
 *
 * With an identity, everything is encrypted, and only a host with the capability for the device may send commands. A board without one gets it
 * over the line, and starts again with it:
 *
 *     millrace device provision kitchen --serial board.sock
 *
 * Or it is in the flash from the beginning:
 *
 *     millrace device provision kitchen
 *     millrace device flash-image kitchen.identity --journal-sectors 16 --out kitchen.img
 *     qemu-system-arm ... -device loader,file=kitchen.img,addr=0x21000000,force-raw=on
 *
 * On its third day the sensor repeats one reading. After READINGS hours the board measures no more. Its flash is memory, so each start
 * of QEMU without such an image is that of a new device; IDENTITY tells them apart only if it is compiled in.
 */
#include "../port/cortex_m/board.h"
#include "../port/cortex_m/stack.h"
#include "../port/cortex_m/uart.h"
#include "millrace_provision.h"
#include "millrace_remote.h"
#define MILLRACE_DEVICE apply
#include "millrace.h"

#ifndef IDENTITY
#define IDENTITY 0x4B17C4E20385
#endif
#ifndef NAME
#define NAME "kitchen"
#endif
#ifndef READINGS
#define READINGS 96
#endif

enum { SECTORS = 16, SECTOR_BYTES = 4096, MEASURE_MS = 100, STUCK_FROM = 49, STUCK_TO = 72, TEXT = 8, CYCLES_OF_MS = 25000 };

/* As `flash-image` makes it: the identity in two sectors, and then the journal. */
#define FLASH ((uint8_t *)BOARD_KEPT)
#define AREA (FLASH + 2 * SECTOR_BYTES)
#define COUNTER (*(volatile uint32_t *)0xE000E018)

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int mean_handle(const struct mr_record *record);

static volatile uint32_t now;
static uint64_t stack[1536 / 8] __attribute__((aligned(32)));
static uint64_t memory[MRD_WORDS(4, 2, 512)];
static mrd device;
static mrd_serial serial;
static mrd_uplink uplink;
static uint32_t retained;
static mrd_identity identity;
static uint8_t identity_bytes[MRD_IDENTITY_MAX];
static mrd_provision provision;
static mrd_random source;

/* The context of both ports is where their flash begins. */
static int read_area(void *context, uint32_t at, void *bytes, uint32_t size) {
    memcpy(bytes, (const uint8_t *)context + at, size);
    return 0;
}

static int program_area(void *context, uint32_t at, const void *bytes, uint32_t size) {
    memcpy((uint8_t *)context + at, bytes, size);
    return 0;
}

static int erase_area(void *context, uint32_t at) {
    memset((uint8_t *)context + at, 0xFF, SECTOR_BYTES);
    return 0;
}

static uint32_t read_clock(void *context) {
    (void)context;
    return now;
}

/* This board has no source of random bytes: they come from the seed of the identity, and without one only from clocks. */
static int random_bytes(void *context, void *bytes, size_t size) {
    (void)context;
    mrd_random_fill(&source, bytes, size);
    return 0;
}

static void begin_random(void) {
    uint32_t start[4] = {device.epoch, device.serial, now, COUNTER};
    mrd_random_begin(&source, identity.seed, start, sizeof start);
}

/* What a device would do with its settings; here it says that it has them. */
int apply_handle(const mr_record *record) { return mr_append("applied", record->data, record->size); }

static const mrd_port identity_port = {.read = read_area, .program = program_area, .erase = erase_area, .context = FLASH,
                                       .sectors = 2, .sector_bytes = SECTOR_BYTES, .unit = 8, .torn_bytes = 8};
static mrd_port port = {.read = read_area, .program = program_area, .erase = erase_area, .ms = read_clock, .context = AREA, .mapped = AREA,
                        .sectors = SECTORS, .sector_bytes = SECTOR_BYTES, .unit = 8, .torn_bytes = 8, .namespace_id = IDENTITY,
                        .retained = &retained};
static const mrd_log logs[] = {{"raw", 2000, 0}, {"mean", 500, 0}, {"config", 1, MRD_KEEP | MRD_COMMANDS}, {"applied", 100, 0}};
static const mrd_function functions[] = {{"mean", mean_handle, "raw", 3, NULL, 100}, {"apply", apply_handle, "config", 3, NULL, 100}};
static const mrd_uart uart = {uart_write, uart_read, random_bytes, NULL, NULL};

void board_tick(void) {
    now++;
    mrd_stack_tick();
}

void board_fault(void) {
    if (!mrd_stack_fault()) board_reset();
}

/* The temperature of an hour, in hundredths of a degree: from 18 at midnight to 24 at noon, and a little more each day. */
static uint32_t temperature(uint32_t hour) {
    uint32_t of_day = hour % 24, from_midnight = of_day < 12 ? of_day : 24 - of_day;
    return 1800 + 50 * from_midnight + 7 * (hour / 24) + hour * hour % 11;
}

static size_t measure(char text[TEXT], uint32_t seqno) {
    uint32_t hour = seqno >= STUCK_FROM && seqno <= STUCK_TO ? STUCK_FROM : seqno, value = temperature(hour - 1);
    text[0] = (char)('0' + value / 1000);
    text[1] = (char)('0' + value / 100 % 10);
    text[2] = '.';
    text[3] = (char)('0' + value / 10 % 10);
    text[4] = (char)('0' + value % 10);
    return 5;
}

static void sleep(uint32_t ms) {
    for (uint32_t begun = now; now - begun < ms && !uart_has_bytes();) __asm__ volatile("wfi");
}

static int open_journal(void) { return mrd_open(&device, &port, logs, 4, functions, 2, memory, sizeof memory); }

int main(void) {
    uart_begin(16);
    board_start_ticks(CYCLES_OF_MS);
    uart_print("thermometer " NAME " on mps2-an385\n");
    const char *name = NAME;
    mrd_provision_begin(&provision, &uart, &identity_port, NULL, NULL);
    if (mrd_identity_load(&identity, &identity_port, identity_bytes) == 0) {
        name = identity.name;
        port.namespace_id = identity.namespace_id;
        uart_print("identity in flash\n");
    } else {
        memset(AREA, 0xFF, SECTORS * SECTOR_BYTES);
    }
    mrd_stack_begin(&port, stack, sizeof stack);
    int opened = open_journal();
    if (opened == MRD_OTHER_NAMESPACE) {
        /* It was provisioned since the last start. What the device measured before belongs to no host. */
        mrd_erase(&port);
        opened = open_journal();
    }
    if (opened < 0) {
        uart_print(device.why);
        return 1;
    }
    begin_random();
    mrd_serial_begin(&serial, &provision.uart);
    mrd_uplink_begin(&uplink, &device, &serial.line, name, identity.token, identity.token_bytes);
    if (identity.guard.key_count > 0) mrd_uplink_guard(&uplink, &identity.guard);
    mrd_remote_begin(&uplink);
    uint32_t measured = now;
    for (;;) {
        uint32_t newest = (uint32_t)mrd_latest(&device, "raw"), wait = MRD_IDLE_MS;
        if (newest < READINGS && now - measured >= MEASURE_MS) {
            char text[TEXT];
            measured += MEASURE_MS;
            if (mrd_append(&device, "raw", text, measure(text, newest + 1), NULL) < 0) return 1;
            if (newest + 1 == READINGS) uart_print("measured everything\n");
        }
        int64_t step = mrd_step(&device);
        uint32_t send = mrd_uplink_step(&uplink);
        if (mrd_provision_step(&provision) == MRD_PROVISIONED) board_reset();
        if (step < 0) return 1;
        if (newest < READINGS) wait = MEASURE_MS / 2;
        if (step < wait) wait = (uint32_t)step;
        sleep(send < wait ? send : wait);
    }
}
