//! Addresses of databases, and the secrets that belong to them.

use millrace_wire::{Code, Error, Result};
use percent_encoding::percent_decode_str;
use std::{fmt, net::IpAddr};
use zeroize::Zeroizing;

/// A password, or another secret, which is never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// This secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Secret")
    }
}

/// The settings of a connection to a database.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address, without a password.
    pub url: String,
    /// The password; for DynamoDB the id of the access key and its secret, with a colon between them.
    pub secret: Option<Secret>,
    /// The certificates of authorities to trust besides those of the system, in PEM.
    pub authorities: Option<String>,
}

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// PostgreSQL.
    Postgresql,
    /// Redis or Valkey.
    Redis,
    /// etcd, through its JSON gateway.
    Etcd,
    /// The DynamoDB API.
    Dynamodb,
}

/// The parts of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The kind of the database.
    pub scheme: Scheme,
    /// The user.
    pub user: Option<String>,
    /// The name or IP address of the server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What stands behind the host: the name or number of a database.
    pub path: String,
    /// Whether the connection is encrypted and the server's certificate is verified. Only a connection within this machine, or one with
    /// `sslmode=disable`, is not.
    pub is_tls: bool,
}

fn invalid(detail: impl Into<String>) -> Error {
    Code::DatabaseUrl.error(detail)
}

impl Options {
    /// The parts of the address.
    ///
    /// # Errors
    ///
    /// MR7312. The error does not contain the address, which may contain a password.
    pub fn address(&self) -> Result<Address> {
        let (scheme, rest) = self.url.split_once("://").ok_or_else(|| invalid("the address has no '://'"))?;
        let (scheme, port, has_tls) = match scheme {
            "postgresql" | "postgres" => (Scheme::Postgresql, 5432, false),
            "redis" => (Scheme::Redis, 6379, false),
            "rediss" => (Scheme::Redis, 6379, true),
            "etcd" => (Scheme::Etcd, 2379, false),
            "etcds" => (Scheme::Etcd, 2379, true),
            "dynamodb" => (Scheme::Dynamodb, 443, false),
            _ => {
                let known = "'postgresql://', 'redis://', 'rediss://', 'etcd://', 'etcds://' and 'dynamodb://'";
                return Err(invalid(format!("the address begins with none of {known}")));
            }
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, server) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        if user.is_some_and(|user| user.contains(':')) {
            return Err(invalid("the address contains a password, which must be given as a secret"));
        }
        let (host, port) = host_and_port(server, port)?;
        let mut mode = None;
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslmode", value @ ("disable" | "require" | "verify-ca" | "verify-full"))) => mode = Some(value),
                Some(("sslmode", _)) => {
                    let modes = "sslmode is one of disable, require, verify-ca and verify-full; the last three all verify the certificate";
                    return Err(invalid(modes));
                }
                // Its value may be a password.
                option => {
                    let name = option.map_or("", |(name, _)| name);
                    return Err(invalid(format!("the address has the option '{name}'; only sslmode is known")));
                }
            }
        }
        if has_tls && mode == Some("disable") {
            return Err(invalid("the address asks for TLS, and sslmode=disable forbids it"));
        }
        let is_tls = has_tls || mode.map_or_else(|| !is_local(&host), |mode| mode != "disable");
        let user = user.map(decoded).transpose()?.filter(|user| !user.is_empty());
        let path = decoded(path)?;
        if scheme == Scheme::Dynamodb && path.is_empty() {
            // A region instead of a server.
            let (path, host) = (host.clone(), format!("dynamodb.{host}.amazonaws.com"));
            return Ok(Address { scheme, user, host, port, path, is_tls: true });
        }
        Ok(Address { scheme, user, host, port, path, is_tls })
    }
}

fn host_and_port(server: &str, usual: u16) -> Result<(String, u16)> {
    let bad_port = || invalid("the address has no valid port");
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(|| invalid("the address has '[' without ']'"))?;
            (host, port.strip_prefix(':'))
        }
        None => server.split_once(':').map_or((server, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(usual), |port| port.parse().map_err(|_| bad_port()))?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    if host.is_empty() || !host.chars().all(is_host) {
        return Err(invalid("the address has no valid host"));
    }
    Ok((host.to_owned(), port))
}

fn decoded(part: &str) -> Result<String> {
    let text = percent_decode_str(part).decode_utf8().map_err(|_| invalid("the address is not UTF-8"))?;
    Ok(text.into_owned())
}

/// Whether a connection to this host does not leave the machine.
fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<Address> {
        Options { url: url.into(), secret: None, authorities: None }.address()
    }

    #[test]
    fn an_address_has_parts() {
        let address = parsed("postgresql://app%40x@db.example:5433/school").unwrap();
        assert_eq!(address.user.as_deref(), Some("app@x"));
        assert_eq!((address.host.as_str(), address.port, address.path.as_str()), ("db.example", 5433, "school"));
        let address = parsed("postgres://[::1]").unwrap();
        assert_eq!((address.host.as_str(), address.port, address.path.as_str()), ("::1", 5432, ""));
        let address = parsed("dynamodb://eu-central-1").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("dynamodb.eu-central-1.amazonaws.com", 443));
        assert_eq!((address.path.as_str(), address.is_tls), ("eu-central-1", true));
    }

    #[test]
    fn only_connections_within_the_machine_are_plain_unless_it_is_said() {
        for (url, is_tls) in [
            ("postgresql://db.example/x", true),
            ("postgresql://10.0.0.1/x", true),
            ("postgresql://db.example/x?sslmode=disable", false),
            ("postgresql://localhost/x", false),
            ("postgresql://127.0.0.1/x", false),
            ("postgresql://[::1]/x", false),
            ("postgresql://127.0.0.1/x?sslmode=require", true),
            ("postgresql://127.0.0.1/x?sslmode=verify-full", true),
        ] {
            assert_eq!(parsed(url).unwrap().is_tls, is_tls, "{url}");
        }
    }

    #[test]
    fn an_error_does_not_contain_a_password() {
        for url in [
            "postgresql://app:hunter2@db/x",
            "hunter2",
            "mysql://app:hunter2@db/x",
            "postgresql://db/x?password=hunter2",
            "postgresql://db/x?hunter2",
            "postgresql://db/x?sslmode=hunter2",
            "postgresql://hunter2@/x",
            "postgresql://hunter2@db:99999/x",
            "postgresql://hunter2@[::1/x",
            "postgresql://hunter2%ff@db/x",
        ] {
            let error = parsed(url).unwrap_err();
            assert_eq!(error.code(), Code::DatabaseUrl, "{url}");
            assert!(!error.detail().contains("hunter2"), "{error}");
        }
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret");
    }
}
