//! `millrace device provision` and `millrace device flash-image`: a new device, as a file, over its serial line, and as an image of its flash.

use super::{
    check_host,
    dump::{identity_object, read},
    line::ProvisionLine,
};
use crate::{
    args::{FlashImageArgs, Global, ProvisionArgs},
    out::Out,
    place,
    report::Outcome,
    show,
};
use millrace_device::Identity;
use millrace_node::{Code, Namespace, Result, devices};
use serde_json::json;
use std::{
    fs::{File, OpenOptions, remove_file},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

fn create(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|error| Code::FileNotWritten.error(format!("cannot write {}: {error}", path.display())))
}

fn write(path: &Path, mut file: File, bytes: &[u8]) -> Result<()> {
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(|error| Code::FileNotWritten.error(format!("cannot write {}: {error}", path.display())))
}

/// Removes a file that this command has created and could not fill.
fn undo(path: &Path) {
    let _ = remove_file(path);
}

pub fn run(args: &ProvisionArgs, global: &Global, out: &mut Out) -> Outcome {
    args.host.as_deref().map_or(Ok(()), check_host)?;
    devices::check_name(&args.name)?; // it is part of the name of the file
    let namespace = place::open(global)?;
    let path = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.identity", args.name.replace('/', "-"))));
    let Some(port) = &args.serial else {
        let made = make(&namespace, args, &path)?;
        return report(&made, &path, "wrote", None, out);
    };
    let mut line = ProvisionLine::open(port, args.baud)?;
    let is_known = path.exists();
    let identity = match is_known {
        true => kept(&namespace, args, &path)?,
        false => {
            line.ask()?; // before the name is taken
            make(&namespace, args, &path)?
        }
    };
    line.give(&identity).map_err(|error| {
        let again = format!("{} has the identity: the same command goes on with it", path.display());
        error.code().error(format!("{}; {again}", error.detail()))
    })?;
    report(&identity, &path, if is_known { "used" } else { "wrote" }, Some(port), out)
}

/// Makes the identity of a new device, and writes it to a file.
fn make(namespace: &Namespace, args: &ProvisionArgs, path: &Path) -> Result<Identity> {
    // First: an identity that cannot be kept would have to be taken back.
    let file = create(path)?;
    let made = devices::provision(namespace, &args.name, args.host.as_deref()).inspect_err(|_| undo(path))?;
    let written = made.encode().and_then(|bytes| write(path, file, &Zeroizing::new(bytes)));
    written.inspect_err(|_| {
        undo(path);
        // Nobody has it. If it cannot be taken back, the same command says that the name is taken.
        let _ = devices::remove(namespace, &args.name);
    })?;
    Ok(made)
}

/// The identity that an earlier command made, whose device did not get it.
fn kept(namespace: &Namespace, args: &ProvisionArgs, path: &Path) -> Result<Identity> {
    let shown = path.display();
    let identity = Identity::decode(&Zeroizing::new(read(path)?)).map_err(|error| error.within(&shown))?;
    if identity.name != args.name {
        let detail = format!("{shown} is the identity of device '{}', not of '{}'", identity.name, args.name);
        return Err(Code::ValueInvalid.error(detail));
    }
    if args.host.is_some() && args.host != identity.host {
        let host = identity.host.as_deref().unwrap_or("none");
        return Err(Code::ValueInvalid.error(format!("{shown} has another address of the host: {host}")));
    }
    let known = devices::all(namespace)?.into_iter().find(|device| device.name == args.name).ok_or_else(|| {
        let name = &args.name;
        Code::DeviceNotFound.error(format!(
            "this namespace does not know the device '{name}' any more; delete {shown}, and the command makes another identity"
        ))
    })?;
    if known.state.namespace != identity.namespace.get() {
        let detail = format!("{shown} was not made for the device '{}' that this namespace knows", args.name);
        return Err(Code::DeviceIdentityInvalid.error(detail));
    }
    Ok(identity)
}

fn report(identity: &Identity, path: &Path, did: &str, port: Option<&PathBuf>, out: &mut Out) -> Outcome {
    let bytes = Zeroizing::new(identity.encode()?).len();
    if out.json() {
        let mut object = identity_object(identity);
        (object["file"], object["bytes"], object["serial"]) = (json!(path), json!(bytes), json!(port));
        return Ok(out.object(&object)?);
    }
    let (shown, name) = (path.display(), &identity.name);
    out.line(format!("{did} {shown}: device {name}, namespace {}, {bytes} bytes; it is secret", identity.namespace))?;
    let Some(port) = port else {
        return Ok(out.line(format!(
            "next: `millrace device flash-image {shown} --out {name}.img`, and write that to the device"
        ))?);
    };
    out.line(format!("the device at {} has this identity in its flash", port.display()))?;
    let next = match identity.host {
        Some(_) => String::new(),
        None => format!("next: `millrace device attach {}`; ", port.display()),
    };
    Ok(out.line(format!("{next}delete {shown} when the device has connected"))?)
}

pub fn flash_image(args: &FlashImageArgs, out: &mut Out) -> Outcome {
    let identity = Identity::decode(&Zeroizing::new(read(&args.identity)?));
    let identity = identity.map_err(|error| error.within(args.identity.display()))?;
    let image = Zeroizing::new(identity.flash_image(args.sector_bytes, args.journal_sectors)?);
    let file = create(&args.out)?;
    write(&args.out, file, &image).inspect_err(|_| undo(&args.out))?;
    let (sector, journal) = (args.sector_bytes, 2 * args.sector_bytes);
    if out.json() {
        return Ok(out.object(&json!({
            "device": identity.name, "file": args.out, "bytes": image.len(), "copies": [0, sector], "sector_bytes": sector,
            "journal_at": journal, "journal_sectors": args.journal_sectors,
        }))?);
    }
    let shown = args.out.display();
    let bytes = show::grouped(image.len() as u64);
    out.line(format!(
        "wrote {shown}: {bytes} bytes, the identity of {} at 0x0 and 0x{sector:x}; it is secret",
        identity.name
    ))?;
    match args.journal_sectors {
        0 => Ok(out.line("the journal has sectors of its own, which are erased: `--journal-sectors` adds them")?),
        sectors => Ok(out.line(format!("the journal has {sectors} sectors from 0x{journal:x} on"))?),
    }
}
