//! `millrace device …`

use clap::{Args, Subcommand};
use std::path::PathBuf;

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
these logs have records.

Examples:
  millrace device rm kitchen")]
    Rm(DeviceNameArgs),
    /// Run a simulated device on this computer
    #[command(after_help = "\
PROGRAM is a device that was compiled for this computer, such as device/build/station of Millrace's sources, which `make -C device` builds. \
Its flash is the file NAME.flash in the current directory, or the file that --flash names. It is started with the arguments FLASH, --host \
HOST, --name NAME, and those after '--', and ends by itself or with Ctrl-C. The device continues when it is started again.

Examples:
  millrace device sim device/build/station kitchen --host 127.0.0.1:7070
  millrace device sim device/build/station kitchen --host 127.0.0.1:7070 -- --records 1000 --every 100")]
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
pub struct DeviceNameArgs {
    /// The device's name
    pub name: String,
}

#[derive(Debug, Args)]
pub struct SimArgs {
    /// The program
    pub program: PathBuf,
    /// The device's name
    pub name: String,
    /// The host that the device sends its records to
    #[arg(long, value_name = "HOST:PORT")]
    pub host: String,
    /// The file with the contents of the device's flash [default: NAME.flash]
    #[arg(long, value_name = "FILE")]
    pub flash: Option<PathBuf>,
    /// More arguments of the program
    #[arg(last = true, value_name = "ARGUMENT")]
    pub more: Vec<String>,
}
