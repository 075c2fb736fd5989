//! CSPOT, the most similar system. Its figures are constants that we measured once, not in the same run: it needs its own source tree to
//! build and run.

/// Where they come from; goes into the note of every row that shows one.
pub const SOURCE: &str = "CSPOT's figures are not from this run: they are medians for elements of 1 KiB, measured in \
    2026-11 on the same kind of machine with its master branch of 2025-04, built natively.";

/// One put over the public interface, in µs: with the address set by hand, and as it comes.
pub const PUT_US: [f64; 2] = [24.0, 90.0];
/// Its append alone on an open handle, in µs: no checksum, no lock that survives its owner, holes after a crash.
pub const RAW_APPEND_US: [f64; 2] = [0.13, 0.25];
/// One get over the public interface, in µs.
pub const GET_US: f64 = 94.0;
/// From a put to the first instruction of its handler, in µs, for handlers that are linked in.
pub const HANDLER_US: f64 = 720.0;
/// Handlers per second.
pub const HANDLERS_PER_SECOND: f64 = 1000.0;

/// A record from an ESP8266 over the edge to the cloud, three copies, mean in ms; and the same with AWS Greengrass.
pub const PATH_MS: f64 = 298.0;
pub const GREENGRASS_MS: f64 = 4136.0;
/// Where these come from.
pub const PATH_SOURCE: &str = "The published figures are means of 100 runs over real networks, from table 4 of the paper on \
    CSPOT (2019): their delays differ from these.";
