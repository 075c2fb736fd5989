//! Signatures of requests to AWS, version 4.

use crate::Secret;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// What a request is signed with and for.
pub struct Signer {
    pub access_key: String,
    pub secret: Secret,
    pub region: String,
    pub service: &'static str,
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    // A key of any length is valid.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

impl Signer {
    /// The header `authorization` of a request. The names of its headers are sorted and in lower case.
    pub fn sign(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8], time: &str) -> String {
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let request = format!("{method}\n{path}\n\n{lines}\n{names}\n{}", hex(Sha256::digest(body)));
        let day = time.get(..8).unwrap_or("");
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(Sha256::digest(request)));
        let first = zeroize::Zeroizing::new(format!("AWS4{}", self.secret.text()));
        let parts = [day, &self.region, self.service, "aws4_request"];
        let key = parts.iter().fold(first.as_bytes().to_vec(), |key, part| keyed(&key, part));
        let signature = hex(keyed(&key, &text));
        let access_key = &self.access_key;
        format!("AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}")
    }
}

/// A time in seconds since 1970 as these signatures have it, such as `20150830T123600Z`.
pub fn time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, by Howard Hinnant's algorithm for the proleptic Gregorian calendar.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example `get-vanilla` of the test suite that AWS publishes.
    #[test]
    fn a_signature_is_that_of_the_published_example() {
        let signer = Signer {
            access_key: "AKIDEXAMPLE".into(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            region: "us-east-1".into(),
            service: "service",
        };
        let time = time(1_440_938_160);
        assert_eq!(time, "20150830T123600Z");
        let headers = [("host", "example.amazonaws.com"), ("x-amz-date", time.as_str())];
        let signed = signer.sign("GET", "/", &headers, b"", &time);
        let expected = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                        SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        assert_eq!(signed, expected);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, shown) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(time(seconds), shown);
        }
    }
}
