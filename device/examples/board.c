/* board.c - a thermometer on a board in QEMU, without an operating system: it measures once an hour, here ten times a second,
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
 * With -DSLOTS, it takes updates of its firmware (millrace_update.h): BOARD_VERSION is the version of this one, and port/cortex_m/boot/boot.c the boot
 * loader that starts it. TRIAL_MS is how long it tries to reach a host. That board gets its identity over the line.
 *
 * On its third day the sensor repeats one reading. After READINGS hours the board measures no more. Its flash is memory, so each start
 * of QEMU without such an image is that of a new device; IDENTITY tells them apart only if it is compiled in.
 */
#include "../port/cortex_m/area.h"
#include "../port/cortex_m/board.h"
#include "../port/cortex_m/stack.h"
#include "../port/cortex_m/uart.h"
#include "millrace_provision.h"
#include "millrace_remote.h"
#ifdef SLOTS
#include "../port/cortex_m/boot/slots.h"
#endif
#define MILLRACE_DEVICE apply
#include "millrace.h"

#ifndef IDENTITY
#define IDENTITY 0x4B17C4E20385
#endif
#ifndef DEVICE_NAME
#define DEVICE_NAME "kitchen"
#endif
#ifndef READINGS
#define READINGS 96
#endif
#ifndef BOARD_VERSION
#define BOARD_VERSION "1"
#endif
#ifndef TRIAL_MS
#define TRIAL_MS MRD_TRIAL_MS
#endif
#ifndef MEASURE_MS
#define MEASURE_MS 100
#endif
#ifndef ON_FULL
#define ON_FULL MRD_DROP
#endif

/* As `flash-image` makes it: the identity in two sectors, and then the journal. */
enum { IDENTITY_SECTORS = 2, SECTORS = BOARD_SECTORS - IDENTITY_SECTORS };
enum { STUCK_FROM = 49, STUCK_TO = 72, TEXT = 8, WATCH_MS = 500 };

#define FLASH ((uint8_t *)BOARD_KEPT)
#define JOURNAL (FLASH + IDENTITY_SECTORS * BOARD_SECTOR_BYTES)
#define COUNTER (*(volatile uint32_t *)0xE000E018)

int mean_handle(const struct mr_record *record);

#ifdef SLOTS
enum { LOGS = 6, FUNCTIONS = 3, STACK_BYTES = 2048 };
#else
enum { LOGS = 4, FUNCTIONS = 2, STACK_BYTES = 1536 };
#endif

static volatile uint32_t now;
static uint64_t stack[STACK_BYTES / 8] __attribute__((aligned(32)));
static uint64_t memory[MRD_WORDS(LOGS, FUNCTIONS, 512)];
static mrd device;
static mrd_serial serial;
static mrd_uplink uplink;
static uint32_t retained;
static mrd_identity identity;
static uint8_t identity_bytes[MRD_IDENTITY_MAX];
static mrd_provision provision;
static mrd_random source;

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

static area identity_area = {FLASH, BOARD_SECTOR_BYTES}, journal_area = {JOURNAL, BOARD_SECTOR_BYTES};
static const mrd_port identity_port = {.read = area_read, .program = area_program, .erase = area_erase, .context = &identity_area,
                                       .sectors = IDENTITY_SECTORS, .sector_bytes = BOARD_SECTOR_BYTES, .unit = 8, .torn_bytes = 8};
static mrd_port port = {.read = area_read, .program = area_program, .erase = area_erase, .ms = read_clock, .context = &journal_area,
                        .mapped = JOURNAL, .sectors = SECTORS, .sector_bytes = BOARD_SECTOR_BYTES, .unit = 8, .torn_bytes = 8,
                        .namespace_id = IDENTITY, .retained = &retained};
static const mrd_log logs[LOGS] = {{"raw", 2000, 0}, {"mean", 500, 0}, {"config", 1, MRD_KEEP | MRD_COMMANDS}, {"applied", 100, 0},
#ifdef SLOTS
                                   MRD_UPDATE_LOGS
#endif
};
static const mrd_function functions[FUNCTIONS] = {{"mean", mean_handle, "raw", 3, NULL, 100}, {"apply", apply_handle, "config", 3, NULL, 100},
#ifdef SLOTS
                                                  MRD_UPDATE_FUNCTION
#endif
};
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

static int open_journal(void) { return mrd_open(&device, &port, logs, LOGS, functions, FUNCTIONS, memory, sizeof memory); }

#ifdef SLOTS
static mrd_boot boot;
static mrd_update update;

static int begin_updates(void) {
    int result = board_slots_open(&boot);
    if (result == 0) result = mrd_update_begin(&update, &device, &boot.slots, BOARD_VERSION);
    update.trial_ms = TRIAL_MS;
    return result;
}

static uint32_t step_updates(void) {
    uint32_t wait = mrd_update_step(&update, &uplink);
    board_watch(BOARD_WATCH_CYCLES);
    return wait < WATCH_MS ? wait : WATCH_MS;
}
#else
static int begin_updates(void) { return 0; }
static uint32_t step_updates(void) { return MRD_IDLE_MS; }
#endif

int main(void) {
    uart_begin(115200);
    board_start_ticks(BOARD_HZ / 1000);
    uart_print("thermometer " DEVICE_NAME " on " BOARD_NAME ", version " BOARD_VERSION "\n");
    const char *name = DEVICE_NAME;
    mrd_provision_begin(&provision, &uart, &identity_port, NULL, NULL);
    if (mrd_identity_load(&identity, &identity_port, identity_bytes) == 0) {
        name = identity.name;
        port.namespace_id = identity.namespace_id;
        uart_print("identity in flash\n");
    }
    mrd_stack_begin(&port, stack, sizeof stack);
    int opened = open_journal();
    if (opened == MRD_OTHER_NAMESPACE || opened == MRD_NOT_A_NAMESPACE) {
        /* It was provisioned since the last start, and what the device measured before belongs to no host; or it was just switched on, and
         * this memory is no flash that was erased. */
        mrd_erase(&port);
        opened = open_journal();
    }
    if (opened == 0) opened = begin_updates();
    if (opened < 0) {
        uart_print(device.why);
        return 1;
    }
    device.on_full = ON_FULL;
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
            int64_t appended = mrd_append(&device, "raw", text, measure(text, newest + 1), NULL);
            if (appended < 0 && appended != MRD_FULL) return 1;
            if (appended == READINGS) uart_print("measured everything\n");
        }
        int64_t step = mrd_step(&device);
        uint32_t send = mrd_uplink_step(&uplink), rest = step_updates();
        if (mrd_provision_step(&provision) == MRD_PROVISIONED) board_reset();
        if (step < 0) return 1;
        if (newest < READINGS) wait = MEASURE_MS / 2;
        if (step < wait) wait = (uint32_t)step;
        if (rest < wait) wait = rest;
        sleep(send < wait ? send : wait);
    }
}
