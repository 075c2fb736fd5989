//! The readings of the demo: the temperatures of three airports for each hour of 2013, in tenths of a degree Celsius.

use std::ops::RangeInclusive;

/// `examples/thermometer/data/pack.py` made it from the readings there.
const PACKED: &[u8] = include_bytes!("temperatures.bin");
/// Kennedy, LaGuardia and Newark.
pub const STATIONS: [&str; 3] = ["jfk", "lga", "ewr"];
/// How many hours there are of each.
pub const HOURS: u64 = 8730;
/// The time of the first hour, in seconds since 1970.
const BEGIN_S: u64 = 1_357_020_000;
const HOUR_S: u64 = 3600;

/// The readings of each station.
pub struct Readings([Vec<i16>; 3]);

impl Readings {
    pub fn unpack() -> Self {
        let size = PACKED.len() / STATIONS.len();
        Self(std::array::from_fn(|station| {
            let packed = &PACKED[station * size..(station + 1) * size];
            let mut now = i16::from_le_bytes([packed[0], packed[1]]);
            let steps = packed[2..].iter().map(|step| {
                now += i16::from(step.cast_signed());
                now
            });
            std::iter::once(i16::from_le_bytes([packed[0], packed[1]])).chain(steps).collect()
        }))
    }

    /// The record of an hour, from 1. Beyond the year the readings begin again. On one day of the `replayed` hours Kennedy's thermometer is
    /// stuck; with 0, it never is.
    pub fn record(&self, station: usize, hour: u64, replayed: u64) -> String {
        let day = stuck(replayed);
        let of = if station == 0 && day.contains(&hour) { *day.start() } else { hour };
        let tenths = self.0[station][((of - 1) % HOURS) as usize];
        let time = crate::show::time_of(BEGIN_S + (hour - 1) * HOUR_S);
        format!("{{\"time\":\"{time}\",\"celsius\":{:.1}}}", f64::from(tenths) / 10.0)
    }
}

/// The hours in which Kennedy's thermometer is stuck: a day, two days before the end of the replay.
pub fn stuck(replayed: u64) -> RangeInclusive<u64> {
    match replayed.checked_sub(72) {
        Some(begin) => begin + 1..=begin + 24,
        None => RangeInclusive::new(1, 0), // no hour
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packed_readings_are_those_of_the_example() {
        let readings = Readings::unpack();
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/thermometer/data");
        for (station, name) in STATIONS.iter().enumerate() {
            assert_eq!(readings.0[station].len() as u64, HOURS);
            let text = std::fs::read_to_string(format!("{dir}/{name}.csv")).unwrap();
            let mut odd = 0;
            for row in text.lines().skip(1) {
                let (epoch, fahrenheit) = row.split_once(',').unwrap();
                let Ok(fahrenheit) = fahrenheit.parse::<f64>() else { continue };
                let hour = (epoch.parse::<u64>().unwrap() - BEGIN_S) / HOUR_S;
                let tenths = ((fahrenheit - 32.0) / 1.8 * 10.0).round() as i16;
                odd += usize::from(readings.0[station][hour as usize] != tenths);
            }
            // A jump of more than 12.7 degrees is spread over hours: there is one, and it is a faulty reading.
            assert!(odd <= 4, "{odd} readings of {name}");
        }
    }

    #[test]
    fn a_thermometer_is_stuck_for_a_day_and_the_year_repeats() {
        let readings = Readings::unpack();
        let day = stuck(HOURS);
        let celsius =
            |hour, replayed| readings.record(0, hour, replayed).split_once(",\"celsius").unwrap().1.to_owned();
        assert!(day.clone().all(|hour| celsius(hour, HOURS) == celsius(*day.start(), 0)));
        assert!(day.clone().any(|hour| celsius(hour, HOURS) != celsius(hour, 0)));
        assert_eq!(celsius(HOURS + 1, HOURS), celsius(1, HOURS));
        assert_eq!(readings.record(0, 1, HOURS), r#"{"time":"2013-01-01T06:00:00Z","celsius":3.9}"#);
    }
}
