//! NATS servers that ask for a user, and whose connections are encrypted.

use super::{Site, servers::Servers};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use millrace_tests::eventually;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ED25519, PublicKeyData,
    SigningKey,
};
use serde_json::{Value, json};

/// How a host reaches the servers: the scheme and the user before the address, and further options.
struct Way<'a> {
    before: &'a str,
    options: Vec<String>,
}

/// The only host of a cluster, which signs in like this.
fn host(servers: &Servers, way: Way<'_>) -> Site {
    let mut site = Site::new(None, None);
    site.place.run(["cluster", "init"]).ok();
    (site.nats, site.options) = (Some(servers.address(way.before)), way.options);
    site.live(None);
    site
}

/// Creates a topic, publishes and reads.
fn works(site: &Site) {
    eventually("a topic is created", || site.topic(&["create", "t", "--engine", "nats"]).code == 0);
    assert_eq!(site.publish("t", "record"), 1);
    assert_eq!(site.records("t"), [(1, "record".to_owned())]);
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
}

#[test]
fn a_host_signs_in_with_the_user_or_the_token_in_the_address() {
    let servers = Servers::guarded("authorization { user: mill, password: \"p@ss/word\" }\n".into());
    works(&host(&servers, Way { before: "nats://mill:p%40ss%2Fword@", options: Vec::new() }));
    let stranger = host(&servers, Way { before: "nats://mill:another-word@", options: Vec::new() });
    let ended = stranger.place.run(["topic", "create", "t", "--engine", "nats"]).fails("MR7241", 75);
    assert!(!ended.stderr.contains("another-word"), "{}", ended.stderr);
    assert!(ended.stderr.to_lowercase().contains("authorization"), "{}", ended.stderr);

    let servers = Servers::guarded("authorization { token: \"a-token\" }\n".into());
    works(&host(&servers, Way { before: "nats://a-token@", options: Vec::new() }));
}

/// A key of NATS: its name has the kind of its owner, and a checksum.
struct NatsKey {
    pair: KeyPair,
    public: String,
}

const OPERATOR: u8 = 14 << 3;
const ACCOUNT: u8 = 0;
const USER: u8 = 20 << 3;
const SEED: u8 = 18 << 3;

fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let letter = |bits: &[u8]| {
        let value = (0..5).fold(0, |value, at| value << 1 | bits.get(at).copied().unwrap_or(0));
        char::from(LETTERS[usize::from(value)])
    };
    bits.chunks(5).map(letter).collect()
}

/// With the CRC-16 of XMODEM behind it.
fn checked(mut bytes: Vec<u8>) -> String {
    let step = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
    let crc = bytes.iter().fold(0, |crc: u16, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, step));
    bytes.extend(crc.to_le_bytes());
    base32(&bytes)
}

impl NatsKey {
    fn new(kind: u8) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let public = checked([&[kind], pair.der_bytes()].concat());
        Self { pair, public }
    }

    /// The seed of a user.
    fn seed(&self) -> String {
        // PKCS #8 of RFC 8410: the key is an octet string within an octet string.
        let der = self.pair.serialize_der();
        let at = der.windows(4).position(|part| part == [4, 34, 4, 32]).expect("a private key") + 4;
        checked([&[SEED | USER >> 5, (USER & 31) << 3], &der[at..at + 32]].concat())
    }

    /// Signs what is said about the holder of another key.
    fn token(&self, of: &NatsKey, name: &str, claims: &Value) -> String {
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let head = part(json!({ "typ": "JWT", "alg": "ed25519-nkey" }));
        let body =
            part(json!({ "jti": name, "iat": 1, "iss": self.public, "name": name, "sub": of.public, "nats": claims }));
        let text = format!("{head}.{body}");
        let signature = self.pair.sign(text.as_bytes()).expect("a signature");
        format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

#[test]
fn a_host_signs_in_with_the_seed_of_a_key_or_with_a_credentials_file() {
    let user = NatsKey::new(USER);
    let servers = Servers::guarded(format!("authorization {{ users: [ {{ nkey: {} }} ] }}\n", user.public));
    let site = Site::new(None, None);
    site.place.write("user.nk", &format!("{}\n", user.seed()));
    let file = site.place.path().join("user.nk").display().to_string();
    works(&host(&servers, Way { before: "nats://", options: vec!["--nats-creds".into(), file] }));

    // An operator trusts accounts, and an account its users.
    let (operator, account, system) = (NatsKey::new(OPERATOR), NatsKey::new(ACCOUNT), NatsKey::new(ACCOUNT));
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1
    });
    let plain = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1
    });
    let of_account = |limits: Value| json!({ "type": "account", "version": 2, "limits": limits });
    let operates = json!({ "type": "operator", "version": 2, "system_account": system.public });
    let uses = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
    let settings = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}\n{}: {} }}\n",
        operator.token(&operator, "operator", &operates),
        system.public,
        account.public,
        operator.token(&account, "mill", &of_account(limits)),
        system.public,
        operator.token(&system, "system", &of_account(plain)),
    );
    let servers = Servers::guarded(settings);
    let credentials = format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        account.token(&user, "host", &uses),
        user.seed()
    );
    site.place.write("user.creds", &credentials);
    let file = site.place.path().join("user.creds").display().to_string();
    works(&host(&servers, Way { before: "nats://", options: vec!["--nats-creds".into(), file] }));
}

#[test]
fn a_host_speaks_tls_with_servers_whose_authority_it_trusts() {
    let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
    parameters.distinguished_name.push(DnType::CommonName, "an authority");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(parameters, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let names = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = names.signed_by(&key, &authority).expect("a certificate");
    let site = Site::new(None, None);
    site.place.write("authority.pem", &pem("CERTIFICATE", authority.der()));
    site.place.write("chain.pem", &pem("CERTIFICATE", certificate.der()));
    site.place.write("key.pem", &pem("PRIVATE KEY", &key.serialize_der()));
    let path = |file: &str| site.place.path().join(file).display().to_string();
    let (chain, private) = (path("chain.pem"), path("key.pem"));
    let servers = Servers::guarded(format!(
        "tls {{ cert_file: \"{chain}\", key_file: \"{private}\" }}\nauthorization {{ user: mill, password: word }}\n"
    ));
    let trusting = vec!["--nats-ca".to_owned(), path("authority.pem")];
    works(&host(&servers, Way { before: "tls://mill:word@", options: trusting }));
    // A host that does not trust the authority sends no password.
    let wary = host(&servers, Way { before: "tls://mill:word@", options: Vec::new() });
    wary.place.run(["topic", "create", "t", "--engine", "nats"]).fails("MR7241", 75);
}
