//! Reads `[devices.MODEL]`: the logs of devices of a model, and the twins of their functions.
//!
//! ```text
//! [devices.thermo]                                  kitchen/raw  kitchen/mean  cellar/raw  cellar/mean      (logs)
//! units = ["kitchen", "cellar"]                ──>  thermo.mean, on kitchen/raw and cellar/raw              (a function)
//! logs = ["raw", "mean"]
//! functions.mean = { on = "raw", twin = "mean.wasm" }
//! ```

use super::super::{
    FunctionDeclaration, LOGS_MAX, LogDeclaration, entries, key_span, keys,
    problem::{Collector, shown},
    section::{Section, Span, parse},
};
use millrace_namespace::definition::{BOUND_LOGS_MAX, FunctionSpec, Runtime};
use millrace_wire::{HISTORY_DEFAULT, LogName, Name};
use std::path::Path;
use toml_edit::{Item, TableLike};

/// The most models of a file.
const MODELS_MAX: usize = 100;
/// The most logs and functions of a firmware.
const OF_FIRMWARE_MAX: usize = 32;

/// The devices of the file.
#[derive(Default)]
pub(in super::super) struct Devices {
    pub logs: Vec<LogDeclaration>,
    pub functions: Vec<FunctionDeclaration>,
}

/// A model, with what is right of it.
struct Model {
    name: Name,
    units: Vec<String>,
    logs: Vec<String>,
    history: u64,
    functions: Vec<Twin>,
}

struct Twin {
    name: String,
    on: String,
    handler: Option<String>,
    twin: String,
}

/// Reads the section; logs that the file declares by themselves are as it says there.
pub(in super::super) fn read(
    root: &dyn TableLike,
    (base, exists): (&Path, &dyn Fn(&Path) -> bool),
    declared: &[LogDeclaration],
    problems: &mut Collector<'_>,
) -> Devices {
    let mut devices = Devices::default();
    let models = entries(root, "devices", problems);
    if models.len() > MODELS_MAX {
        problems.add(None, format!("the file has {} models of devices; the limit is {MODELS_MAX}", models.len()));
        return devices;
    }
    for (name, item, span) in models {
        let Some(model) = read_model(name, item, span.clone(), (base, exists), problems) else { continue };
        for log in model.units.iter().flat_map(|unit| model.logs.iter().map(move |log| format!("{unit}/{log}"))) {
            match parse::<LogName>(&log) {
                Ok(log) if declared.iter().chain(&devices.logs).any(|known| known.name == log) => {}
                Ok(name) => {
                    let history = model.history;
                    devices.logs.push(LogDeclaration {
                        name,
                        history,
                        table: None,
                        amendable: None,
                        time: None,
                        from: None,
                    });
                }
                Err(message) => problems.add(span.clone(), message),
            }
            if devices.logs.len() > LOGS_MAX {
                problems.add(span, format!("the devices of the file have more than {LOGS_MAX} logs"));
                return Devices::default();
            }
        }
        for function in &model.functions {
            match declaration(&model, function, base) {
                Ok(declaration) => devices.functions.push(declaration),
                Err(message) => problems.add(span.clone(), message),
            }
        }
    }
    devices
}

/// The function of a model: bound to the logs of all its units, and with the rights to these units' logs only.
fn declaration(model: &Model, function: &Twin, base: &Path) -> Result<FunctionDeclaration, String> {
    let mut spec = FunctionSpec::new(parse(&format!("{}.{}", model.name, function.name))?, Runtime::Wasm);
    spec.at = Some(model.name.clone());
    spec.handler = function.handler.clone().unwrap_or(spec.handler);
    spec.on = model.units.iter().map(|unit| parse(&format!("{unit}/{}", function.on))).collect::<Result<_, _>>()?;
    let own = model.units.iter().map(|unit| parse(&format!("{unit}/"))).collect::<Result<Vec<_>, _>>()?;
    (spec.rights.reads, spec.rights.appends) = (Some(own.clone()), Some(own));
    Ok(FunctionDeclaration { spec, source: base.join(&function.twin), topics: Vec::new() })
}

fn read_model(
    name: &str,
    item: &Item,
    span: Span,
    (base, exists): (&Path, &dyn Fn(&Path) -> bool),
    problems: &mut Collector<'_>,
) -> Option<Model> {
    let parsed = parse::<Name>(name).map_err(|message| problems.add(span.clone(), message)).ok();
    let label = format!("[devices.{}]", shown(name));
    let section = Section::open(item, span.clone(), label, keys::DEVICES, problems)?;
    let units = names(&section, "units", BOUND_LOGS_MAX, problems);
    if units.is_empty() && !section.has("units") {
        problems.add(span, format!("{} lacks 'units': the names of the devices", section.label()));
    }
    let mut logs = names(&section, "logs", OF_FIRMWARE_MAX, problems);
    let history = section.history("history", problems).unwrap_or(HISTORY_DEFAULT);
    let table = item.as_table_like().and_then(|table| table.get("functions"));
    let twins = table.and_then(Item::as_table_like);
    if table.is_some() && twins.is_none() {
        let message = "functions.NAME is a table such as { on = \"raw\", twin = \"mean.wasm\" }";
        problems.add(section.place_of("functions"), format!("functions in {}: {message}", section.label()));
    }
    let mut functions = Vec::new();
    for (name, item) in twins.into_iter().flat_map(TableLike::iter) {
        let span = twins.and_then(|table| key_span(table, name)).or_else(|| item.span());
        if functions.len() == OF_FIRMWARE_MAX {
            problems.add(span, format!("{} has more than {OF_FIRMWARE_MAX} functions", section.label()));
            break;
        }
        let label = format!("functions.{} in {}", shown(name), section.label());
        functions.extend(read_twin(name, item, span, label, (base, exists), problems));
    }
    for function in &functions {
        if !logs.contains(&function.on) {
            logs.push(function.on.clone());
        }
    }
    Some(Model { name: parsed?, units, logs, history, functions })
}

fn read_twin(
    name: &str,
    item: &Item,
    span: Span,
    label: String,
    (base, exists): (&Path, &dyn Fn(&Path) -> bool),
    problems: &mut Collector<'_>,
) -> Option<Twin> {
    let section = Section::open(item, span.clone(), label, keys::DEVICE_FUNCTION, problems)?;
    let mut text = |key: &str, example: &str| {
        if !section.has(key) {
            problems.add(span.clone(), format!("{} lacks '{key}'; for example: {example}", section.label()));
        }
        section.text(key, problems)
    };
    let (on, twin) = (text("on", "on = \"raw\""), text("twin", "twin = \"functions/mean.wasm\""));
    let handler = section.text("handler", problems).map(|placed| placed.value.to_owned());
    let (on, twin) = (on?, twin?);
    let path = base.join(twin.value);
    if twin.value.is_empty() || !exists(&path) {
        problems.add(twin.span, format!("twin in {}: there is no file '{}'", section.label(), path.display()));
        return None;
    }
    if let Err(message) = parse::<LogName>(on.value) {
        problems.add(on.span, format!("on in {}: {message}", section.label()));
        return None;
    }
    Some(Twin { name: name.to_owned(), on: on.value.to_owned(), handler, twin: twin.value.to_owned() })
}

/// A list of names: of devices, which are one segment, or of logs.
fn names(section: &Section<'_>, key: &str, most: usize, problems: &mut Collector<'_>) -> Vec<String> {
    let texts = section.texts(key, problems).map(|list| list.value).unwrap_or_default();
    if texts.len() > most {
        let message = format!("{key} in {}: {} are listed; the limit is {most}", section.label(), texts.len());
        problems.add(section.place_of(key), message);
        return Vec::new();
    }
    let mut names: Vec<String> = Vec::new();
    for text in texts {
        let parsed = if key == "units" {
            parse::<Name>(text.value).map(|name| name.to_string())
        } else {
            parse::<LogName>(text.value).map(|name| name.to_string())
        };
        match parsed {
            Ok(name) if LogName::is_internal(&name) => {
                problems.add(text.span, format!("{key} in {}: '{}' begins with '_'", section.label(), shown(&name)));
            }
            Ok(name) if names.contains(&name) => {
                problems.add(text.span, format!("{key} in {}: '{}' is listed twice", section.label(), shown(&name)));
            }
            Ok(name) => names.push(name),
            Err(message) => problems.add(text.span, format!("{key} in {}: {message}", section.label())),
        }
    }
    names
}
