/* boot.c - the marks of a boot loader in two sectors, and the slots that they are about.
 *
 *     a mark: number (4), format 1, confirmed, trial or 0xFF, whether the trial has begun, CRC-32C of these 8 bytes
 *
 * The mark with the higher number counts. It is written to one sector and then to the other one.
 */
#include "millrace_boot.h"
#include "../src/internal.h"

enum { MARK = 12, CHECKED = 8, FORMAT = 1, NO_TRIAL = 0xFF };

/* ---- the rules ---- */

bool mrd_boot_next(mrd_boot_state *state) {
    if (state->trial < 0) return false;
    state->started = !state->started;
    if (!state->started) state->trial = -1;
    return true;
}

int mrd_boot_running(const mrd_boot_state *state) { return state->trial >= 0 && state->started ? state->trial : state->confirmed; }

/* ---- marks ---- */

static bool read_mark(const mrd_boot *boot, uint32_t sector, mrd_boot_state *state, uint32_t *number) {
    const mrd_port *port = boot->marks;
    uint8_t mark[MARK];
    if (port->read(port->context, sector * port->sector_bytes, mark, MARK) != 0) return false;
    if (mark[4] != FORMAT || mark[5] > 1 || (mark[6] > 1 && mark[6] != NO_TRIAL)) return false;
    if (mrd_load4(mark + CHECKED) != mrd_crc(0, mark, CHECKED)) return false;
    *number = mrd_load4(mark);
    *state = (mrd_boot_state){mark[5], mark[6] == NO_TRIAL ? -1 : mark[6], mark[7]};
    return true;
}

static bool write_mark(const mrd_boot *boot, uint32_t sector, const mrd_boot_state *state, uint32_t number) {
    const mrd_port *port = boot->marks;
    uint8_t mark[MRD_SLOT_UNIT_MAX];
    memset(mark, 0xFF, sizeof mark);
    mrd_store4(mark, number);
    mark[4] = FORMAT;
    mark[5] = (uint8_t)state->confirmed;
    mark[6] = state->trial < 0 ? NO_TRIAL : (uint8_t)state->trial;
    mark[7] = state->started != 0;
    mrd_store4(mark + CHECKED, mrd_crc(0, mark, CHECKED));
    uint32_t at = sector * port->sector_bytes;
    return port->erase(port->context, at) == 0 && port->program(port->context, at, mark, mrd_align(MARK, port->unit)) == 0;
}

/* Until the first sector has the new mark, the other one has that before. */
static int set_state(mrd_boot *boot, mrd_boot_state state) {
    uint32_t number = boot->number + 1;
    uint8_t first = boot->next;
    boot->twice = false;
    if (!write_mark(boot, first, &state, number)) return MRD_BOOT_FAILED;
    boot->state = state;
    boot->number = number;
    boot->known = true;
    boot->next = 1 - first;
    boot->twice = write_mark(boot, boot->next, &state, number); /* if not, the next start does it */
    return 0;
}

static void find_mark(mrd_boot *boot) {
    mrd_boot_state state[2];
    uint32_t number[2];
    bool valid[2];
    for (uint32_t i = 0; i < 2; i++) valid[i] = read_mark(boot, i, &state[i], &number[i]);
    unsigned newest = valid[1] && (!valid[0] || (int32_t)(number[1] - number[0]) > 0);
    boot->known = valid[newest];
    boot->next = (uint8_t)(1 - newest);
    boot->twice = valid[0] && valid[1] && number[0] == number[1];
    if (!boot->known) return;
    boot->state = state[newest];
    boot->number = number[newest];
}

/* ---- slots ---- */

static const mrd_port *slot_of(const mrd_boot *boot, int slot) {
    int running = mrd_boot_running(&boot->state);
    return boot->slot[slot == MRD_SLOT_RUNNING ? running : 1 - running];
}

static int read_slot(void *context, int slot, uint32_t at, void *bytes, uint32_t size) {
    const mrd_port *port = slot_of((const mrd_boot *)context, slot);
    return port->read(port->context, at, bytes, size);
}

static int erase_slot(void *context, uint32_t at) {
    const mrd_port *port = slot_of((const mrd_boot *)context, MRD_SLOT_OTHER);
    return port->erase(port->context, at);
}

static int program_slot(void *context, uint32_t at, const void *bytes, uint32_t size) {
    const mrd_port *port = slot_of((const mrd_boot *)context, MRD_SLOT_OTHER);
    return port->program(port->context, at, bytes, size);
}

static int start_slot(void *context) {
    mrd_boot *boot = (mrd_boot *)context;
    int running = mrd_boot_running(&boot->state);
    return set_state(boot, (mrd_boot_state){running, 1 - running, 0});
}

static bool on_trial(void *context) {
    const mrd_boot_state *state = &((const mrd_boot *)context)->state;
    return state->trial >= 0 && state->started;
}

static int confirm_slot(void *context) {
    mrd_boot *boot = (mrd_boot *)context;
    return set_state(boot, (mrd_boot_state){mrd_boot_running(&boot->state), -1, 0});
}

/* ---- the boot loader ---- */

int mrd_boot_begin(mrd_boot *boot) {
    if (!boot->known) return MRD_BOOT_NEW;
    mrd_boot_state state = boot->state;
    if (mrd_boot_next(&state)) {
        if (set_state(boot, state) != 0) return MRD_BOOT_FAILED;
    } else if (!boot->twice) {
        /* Power was lost between the two sectors, or one is damaged: it gets the mark again. */
        (void)set_state(boot, state);
    }
    return mrd_boot_running(&boot->state);
}

int mrd_boot_skip(mrd_boot *boot) {
    int other = 1 - mrd_boot_running(&boot->state);
    return set_state(boot, (mrd_boot_state){other, -1, 0}) == 0 ? other : MRD_BOOT_FAILED;
}

int mrd_boot_install(mrd_boot *boot) { return set_state(boot, (mrd_boot_state){0, -1, 0}); }

int mrd_boot_open(mrd_boot *boot, const mrd_port *slot_0, const mrd_port *slot_1, const mrd_port *marks) {
    bool alike = slot_0->sectors == slot_1->sectors && slot_0->sector_bytes == slot_1->sector_bytes && slot_0->unit == slot_1->unit;
    memset(boot, 0, sizeof *boot);
    if (!alike || marks->sectors < 2 || marks->unit > MRD_SLOT_UNIT_MAX || slot_0->unit > MRD_SLOT_UNIT_MAX) return MRD_SETTING_INVALID;
    boot->slot[0] = slot_0;
    boot->slot[1] = slot_1;
    boot->marks = marks;
    boot->state.trial = -1;
    boot->slots = (mrd_slots){read_slot, erase_slot, program_slot, start_slot, on_trial, confirm_slot, NULL, boot,
                              slot_0->sectors * slot_0->sector_bytes, slot_0->sector_bytes, slot_0->unit};
    find_mark(boot);
    return 0;
}
