//! `millrace device …`

use clap::{Args, Subcommand};
use millrace_wire::units;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// List the devices that have sent records, with their progress
    #[command(after_help = "\
Examples:
  millrace device ls
  millrace --json device ls | jq .lost_records")]
    Ls,
    /// Show one device in detail
    #[command(after_help = "\
Examples:
  millrace device show kitchen
  millrace --json device show kitchen")]
    Show(DeviceNameArgs),
    /// Remove a device from the list; its logs stay
    #[command(after_help = "\
The logs of the device keep their records and become logs like any other. If the device connects again, it is refused (MR6302) as long as \
these logs have records. The capability that `device provision` gave it is revoked, and commands that wait for it are not sent.

Examples:
  millrace device rm kitchen")]
    Rm(DeviceNameArgs),
    /// Make the identity of a new device, and a capability for it
    #[command(after_help = "\
The command writes a file with everything that the firmware needs to be this device: its name, the identity of its namespace, a key of its \
own, random bytes, a capability for this namespace (append and create on NAME/), and the address of the host. The file is secret: whoever has \
it can send records as this device. `millrace device flash-image` makes an image of it for the device's flash; then delete the file.

The namespace keeps a capability that was made with the device's key, with which its host may send commands, and not the key. `millrace device \
rm NAME` ends both. The command needs access to the files of the namespace; the host may run.

With --serial, the device gets the identity over its serial line, if its firmware accepts one (mrd_provision_begin): it writes the identity to \
its flash, reads it back, and starts again with it. Nothing is made if no device answers. If the line breaks, run the same command again: it goes \
on with the file. A device that has another identity keeps it (MR6353), unless its firmware sees a button or a jumper. The key goes over the line \
without encryption. End `device attach` at this port before.

Examples:
  millrace device provision kitchen --host 192.168.1.7:7070
  millrace device provision cellar --serial /dev/ttyUSB0
  millrace device provision cellar --out /media/usb/cellar.identity       # for a serial line: without an address
  millrace device flash-image kitchen.identity --out kitchen.img")]
    Provision(ProvisionArgs),
    /// Make an image of a device's flash with its identity
    #[command(after_help = "\
The image has the identity in two sectors, so that one is valid even if the other one is damaged, and behind them, with --journal-sectors, \
erased sectors for the journal. Write the two sectors to where the firmware reads the identity, with the programmer of your board. An emulator \
loads the image with its flash. Choose --sector-bytes as your flash erases at once.

Examples:
  millrace device flash-image kitchen.identity --out kitchen.img
  millrace device flash-image kitchen.identity --out kitchen.img --sector-bytes 2048 --journal-sectors 32
  esptool.py write_flash 0x3f0000 kitchen.img")]
    FlashImage(FlashImageArgs),
    /// Show what an image of a device's flash has
    #[command(after_help = "\
IMAGE is what was read from the flash of a device, or the file of a simulated one. The command prints the identity, without its secrets; the \
sectors of the journal, oldest first, with what is torn or damaged; and every event: starts, records with their numbers and times, and the \
ends of runs. It changes nothing, and needs no namespace and no host. Bytes that are torn were being written when power was lost; they have \
never taken effect.

Examples:
  millrace device dump kitchen.flash
  millrace device dump kitchen.flash --sectors
  millrace device dump kitchen.flash --log raw
  millrace --json device dump kitchen.flash | jq 'select(.kind == \"record\")'")]
    Dump(DumpArgs),
    /// Send a command to a device: a record for one of its logs
    #[command(after_help = "\
The device gets the record over the connection that it opens, once, and runs the functions that are bound to the log. A device that sleeps or \
is out of reach gets it when it connects next. The log must accept commands (MRD_COMMANDS in the firmware). The record of the device has the \
command as its cause, so `millrace trace` leads from the command to what came of it. A command that the device refuses becomes a record of the \
log dead/commands.

With --wait, it waits until the device has the record in its flash, and fails if the device refuses it. If the time is over before, the exit \
code is 75, and the device still gets the command when it connects: do not send it again.

Examples:
  millrace device send kitchen config 'every=60'
  millrace device send kitchen config 'every=60' --wait 30s
  millrace device send kitchen config < settings.txt
  millrace device send kitchen config 'every=60' --live        # now, or not at all
  millrace log tail dead/commands")]
    Send(DeviceSendArgs),
    /// Read records from a device that is connected now
    #[command(after_help = "\
The host asks the device over the connection that the device has opened, and the device answers from its flash; what it has in memory, it writes \
to the flash before. So the command shows what has not arrived yet, and what the namespace does not keep any more. `millrace log get NAME/LOG` shows \
what has arrived, and needs no device.

A device that is not connected cannot be asked (MR6360, exit code 75); the error says when it is expected, if it connects regularly, or when it \
was connected. The firmware must call `mrd_remote_begin`, else the error is MR6361. A host must serve the namespace. Reading requires the right to \
read NAME/LOG. A device that was provisioned before it could be asked must be provisioned again: its capability for the host has no `read`.

Examples:
  millrace device get kitchen raw                 # the newest record
  millrace device get kitchen raw 17
  millrace device get kitchen raw --from 10 --count 5
  millrace device get kitchen raw --latest        # only the number of the newest
  millrace --json device get kitchen raw | jq .data")]
    Get(DeviceGetArgs),
    /// Send new firmware to a device
    #[command(after_help = "\
The namespace stores the image, and its host sends it to the device whenever that is connected, as records of the device's log `firmware`; \
the records take twice the bytes of the image in both directions. The device verifies the SHA-256 of the image and starts it for a trial. \
The new firmware has to reach a host once; otherwise the boot loader of the device goes back to the firmware before.

The command prints how far that is, and fails if the device refuses the image or goes back. It may be interrupted: the update goes on, and \
the same command, with the same image and version, follows it. Another image takes its place. The device needs firmware with \
millrace_update.h. The capability of a device protects against strangers, and the SHA-256 against damage; signatures are verified by the \
boot loader, if it does that.

Examples:
  millrace device update kitchen --image build/firmware.bin --version 1.4.0
  millrace device update kitchen --image build/firmware.bin --version 1.4.0 --no-wait
  millrace --json device update kitchen --image build/firmware.bin | jq .percent
  millrace device show kitchen")]
    Update(DeviceUpdateArgs),
    /// Compare what the firmware of a device computed with what its twin does
    #[command(after_help = "\
The twin of a device's function is the same source as WebAssembly, which `[devices.MODEL]` of millrace.toml or `function deploy --at` names. \
A correction at the edge replays the runs of the device with it, so it must do what the firmware does. The command replays the newest runs of \
the device with their own reads, and compares the records. It changes nothing. It fails (exit code 1) if they differ. A device with other \
firmware, or a function that is not portable (floating-point contraction, `sin`), shows itself here. It needs access to the files of the \
namespace; the host may run.

With LOG, --on and --twin, it compares what the device appended to NAME/LOG for each record of NAME/ON with what another function of this \
namespace, which is bound to NAME/ON, appended to TWIN, and names the first records that differ.

Examples:
  millrace device verify kitchen
  millrace --json device verify kitchen --last 1000 | jq .differs
  millrace device verify kitchen mean --on raw --twin mean")]
    Verify(DeviceVerifyArgs),
    /// Run a simulated device on this computer
    #[command(after_help = "\
PROGRAM is a device that was compiled for this computer, such as device/build/station of Millrace's sources, which `make -C device` builds. \
Its flash is the file NAME.flash in the current directory, or the file that --flash names. It is started with the arguments FLASH, --host \
HOST, --name NAME, and those after '--', and ends by itself or with Ctrl-C; with --identity, in place of the host and the name with \
--provisioned IDENTITY. The device continues when it is started again.

Examples:
  millrace device sim device/build/station kitchen --host 127.0.0.1:7070
  millrace device sim device/build/station kitchen --host 127.0.0.1:7070 -- --records 1000 --every 100
  millrace device sim device/build/station --identity kitchen.identity")]
    Sim(SimArgs),
    /// Connect a device at a serial port with a host
    #[command(after_help = "\
PORT is a serial port, such as /dev/ttyUSB0, or the Unix socket of an emulator (`qemu-system-arm -serial unix:board.sock,server=on`). The \
command forwards the device's connections to the host until Ctrl-C ends it, and prints text that the device writes on the same port. The \
device, the port and the host may go and come back meanwhile. Without a capability in the device, whoever can write on the port may do in \
the namespace what you may.

Examples:
  millrace device attach /dev/ttyUSB0
  millrace device attach /dev/ttyACM0 --baud 921600 --host 127.0.0.1:7070
  millrace device attach board.sock")]
    Attach(AttachArgs),
}

#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The serial port or Unix socket
    pub port: PathBuf,
    /// The host that gets the device's records [default: the one that serves the selected namespace]
    #[arg(long, value_name = "HOST:PORT")]
    pub host: Option<String>,
    /// The baud rate of the serial port
    #[arg(long, value_name = "N", default_value_t = 115_200, value_parser = clap::value_parser!(u32).range(50..=12_000_000))]
    pub baud: u32,
}

#[derive(Debug, Args)]
pub struct ProvisionArgs {
    /// The device's name, one segment of a log's name: its logs will be NAME/LOG
    pub name: String,
    /// The address at which the device reaches this namespace's host [default: none, for a serial line]
    #[arg(long, value_name = "HOST:PORT")]
    pub host: Option<String>,
    /// The file for the identity, which must not exist; with --serial, one that does is used [default: NAME.identity]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The serial port, or Unix socket, of the device that gets the identity
    #[arg(long, value_name = "PORT")]
    pub serial: Option<PathBuf>,
    /// The baud rate of the serial port
    #[arg(long, value_name = "N", requires = "serial", default_value_t = 115_200, value_parser = clap::value_parser!(u32).range(50..=12_000_000))]
    pub baud: u32,
}

#[derive(Debug, Args)]
pub struct FlashImageArgs {
    /// The identity that `device provision` wrote
    pub identity: PathBuf,
    /// The file for the image, which must not exist
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// What the flash erases at once: a power of two, 1024 to 262144
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub sector_bytes: usize,
    /// How many erased sectors for the journal follow
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub journal_sectors: usize,
}

#[derive(Debug, Args)]
pub struct DumpArgs {
    /// The image
    pub image: PathBuf,
    /// Only the records of this log of the device
    #[arg(long, value_name = "LOG", conflicts_with = "sectors")]
    pub log: Option<String>,
    /// Only the identity and the sectors
    #[arg(long)]
    pub sectors: bool,
}

#[derive(Debug, Args)]
pub struct DeviceSendArgs {
    /// The device's name
    pub name: String,
    /// The log of the device, without the device's name
    pub log: String,
    /// The record, at most 256 bytes [default: standard input]
    pub record: Option<String>,
    /// How long to wait until the device has it
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub wait: Option<Duration>,
    /// Deliver it to the device now, and print its number there; if the device is not connected, fail (MR6360) and send nothing
    #[arg(long, conflicts_with = "wait")]
    pub live: bool,
}

#[derive(Debug, Args)]
pub struct DeviceGetArgs {
    /// The device's name
    pub name: String,
    /// The log of the device, without the device's name
    pub log: String,
    /// The record's sequence number [default: the newest]
    #[arg(conflicts_with_all = ["from", "latest"], allow_negative_numbers = true)]
    pub seqno: Option<String>,
    /// The first record of a range
    #[arg(long, value_name = "SEQNO", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// Print at most this many records of the range
    #[arg(long, value_name = "RECORDS", requires = "from", default_value_t = 100, value_parser = units::parse_count)]
    pub count: u64,
    /// Print only the sequence number of the newest record, 0 if there is none
    #[arg(long, conflicts_with_all = ["from", "raw"])]
    pub latest: bool,
    /// Print the bytes of the record unchanged; in a range, a newline follows each record
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct DeviceUpdateArgs {
    /// The device's name
    pub name: String,
    /// The image, as the boot loader of the device starts it, at most 16 MiB
    #[arg(long, value_name = "FILE")]
    pub image: PathBuf,
    /// The version of the firmware, at most 24 characters [default: the first 12 digits of the SHA-256]
    #[arg(long, value_name = "TEXT")]
    pub version: Option<String>,
    /// How long to wait until the new firmware has reached a host; then the exit code is 75 [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, conflicts_with = "no_wait")]
    pub wait: Option<Duration>,
    /// Do not wait until the device has the image
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
pub struct DeviceVerifyArgs {
    /// The device's name
    pub name: String,
    /// The log of the device that its function appends to, without the device's name [default: replay runs with their twins]
    #[arg(requires_all = ["on", "twin"])]
    pub log: Option<String>,
    /// The log of the device whose records run the function
    #[arg(long, value_name = "LOG", requires = "log")]
    pub on: Option<String>,
    /// The log that another function appends to
    #[arg(long, value_name = "LOG", requires = "log")]
    pub twin: Option<String>,
    /// How many of the newest runs of each function, or records of each log, are compared
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub last: u64,
}

#[derive(Debug, Args)]
pub struct DeviceNameArgs {
    /// The device's name
    pub name: String,
}

#[derive(Debug, Args)]
pub struct SimArgs {
    /// The program
    pub program: PathBuf,
    /// The device's name
    #[arg(required_unless_present = "identity")]
    pub name: Option<String>,
    /// The host that the device sends its records to
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "identity")]
    pub host: Option<String>,
    /// The identity that `device provision` made, with a name and a host
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// The file with the contents of the device's flash [default: NAME.flash]
    #[arg(long, value_name = "FILE")]
    pub flash: Option<PathBuf>,
    /// More arguments of the program
    #[arg(last = true, value_name = "ARGUMENT")]
    pub more: Vec<String>,
}
