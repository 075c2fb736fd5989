//! Shared objects through `Access`: sessions and objects need rights.

use millrace_node::{
    Access, Caller, Code, CreateOptions, Namespace, Objects, Served,
    secrets::Authority,
    token::{Grant, Peer, Proof, Right, Rules, TokenId, Way, admit},
};
use millrace_security::token::Kind;
use millrace_wire::protocol::{Bytes, Call, Invoke, Session};
use std::sync::Arc;

const PEER: Peer = Peer { way: Way::Unix, address: None, key: None };

struct Fixture {
    _dir: tempfile::TempDir,
    namespace: Namespace,
    served: Served,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
    let objects = Objects::start(namespace.clone()).unwrap();
    let served = Served::with_objects("n".parse().unwrap(), namespace.clone(), Some(objects)).unwrap();
    Fixture { _dir: dir, namespace, served }
}

impl Fixture {
    fn holder(&self, grants: Vec<Grant>, subject: Option<&str>) -> Access {
        let rules = Rules {
            grants,
            ids: vec![TokenId([1; 8])],
            subject: subject.map(|subject| subject.as_bytes().into()),
            ..Rules::default()
        };
        let token = Authority::ensure(self.namespace.dir()).unwrap().issue(&rules).unwrap();
        let keys = self.served.keys().current().unwrap();
        let caller = admit(&*keys, token.body(), Proof::Bearer(token.signature()), PEER).unwrap();
        self.served.access(&Arc::new(caller))
    }

    fn owner(&self) -> Access {
        self.served.access(&Arc::new(Caller::owner(PEER)))
    }
}

fn on(kind: Kind, name: &str, rights: &[Right]) -> Grant {
    Grant { kind, name: name.as_bytes().into(), subtree: true, rights: rights.iter().copied().collect() }
}

fn open(access: &Access, number: u16, lease_ms: u32) -> Result<u32, Code> {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&number.to_le_bytes());
    let session = Session { session: &id, application: "", lease_ms, resume: false };
    access.open_session(&session).wait().map(|(_, lease_ms)| lease_ms).map_err(|error| error.code())
}

fn clear(access: &Access, number: u64, kind: &str) -> Result<(), Code> {
    let call = Call {
        session: &[0; 16],
        call: number,
        acked: 0,
        kind,
        key: "hits",
        incarnation: 0,
        method: "clear",
        arguments: &[0x90],
        new: &[],
        must_exist: false,
        must_create: false,
        persistent: false,
        rf: 0,
        give_up: false,
        fence: None,
        wait_ms: 0,
    };
    access.call(&call).map(drop).map_err(|error| error.code())
}

#[test]
fn a_session_needs_a_right_on_some_object_and_subjects_share_the_limit_of_their_capability() {
    let f = fixture();
    let elsewhere = f.holder(vec![on(Kind::Log, "", &[Right::Read, Right::Append])], None);
    assert_eq!(open(&elsewhere, 1, 1000), Err(Code::CapabilityDenied));
    let objects = || vec![on(Kind::Object, "", &[Right::Read])];
    let (one, two) = (f.holder(objects(), Some("one")), f.holder(objects(), Some("two")));
    assert_eq!(open(&one, 0, 3_600_000), Ok(60_000), "its lease is short");
    (1..512).for_each(|number| assert_eq!(open(&one, number, 60_000), Ok(60_000)));
    (0..512).for_each(|number| assert_eq!(open(&two, number, 60_000), Ok(60_000)));
    assert_eq!(open(&two, 512, 60_000), Err(Code::ObjectsBusy), "one capability has so many");
    assert_eq!(open(&f.owner(), 1, 3_600_000), Ok(3_600_000));
}

#[test]
fn creating_an_object_needs_the_right_to_and_its_type_is_hidden_without_rights() {
    let f = fixture();
    let calls = f.holder(vec![on(Kind::Object, "", &[Right::Call, Right::Read])], None);
    open(&calls, 0, 60_000).unwrap();
    assert_eq!(clear(&calls, 1, "Set"), Err(Code::CapabilityDenied));
    let owner = f.owner();
    open(&owner, 0, 60_000).unwrap();
    clear(&owner, 1, "Set").unwrap();
    assert_eq!(clear(&calls, 2, "Set"), Ok(()));
    assert_eq!(clear(&calls, 3, "Counter"), Err(Code::CapabilityDenied));
    assert_eq!(clear(&owner, 2, "Counter"), Err(Code::ObjectTypeMismatch));
}

#[test]
fn submitting_tasks_needs_the_rights_to_call_and_create_all_objects() {
    let f = fixture();
    let run = || on(Kind::Function, "", &[Right::Run]);
    let submit = |grants| {
        let invoke = Invoke { pool: "p", bodies: false, tasks: Vec::new(), key: "k" };
        f.holder(grants, None).invoke(&invoke).wait().map_err(|error| error.code())
    };
    assert_eq!(submit(vec![run()]), Err(Code::CapabilityDenied));
    let some = on(Kind::Object, "Set", &[Right::Call, Right::Create, Right::Read]);
    assert_eq!(submit(vec![run(), some]), Err(Code::CapabilityDenied));
    let all = on(Kind::Object, "", &[Right::Call, Right::Create, Right::Read]);
    assert_eq!(submit(vec![run(), all]), Err(Code::TaskInvalid), "there is none");
}

#[test]
fn methods_of_user_classes_need_the_right_to_submit_tasks_to_their_pool() {
    let f = fixture();
    let array = |values: &[&[u8]]| [&[0x90 | values.len() as u8][..], &values.concat()].concat();
    let (class, pool, one): (&[u8], &[u8], &[u8]) = (b"\xa4Gate", b"\xa1p", &[1]);
    let arguments = array(&[class, pool, one, one, class, b"\xa5enter", &[100], &[0xc4, 0]]);
    let call = |access: Access, method: &str| {
        let session = [0; 16];
        open(&access, 0, 1000).unwrap();
        let call = Call {
            session: &session,
            call: 1,
            kind: "Shared",
            key: "gate",
            method,
            arguments: &arguments,
            ..Call::default()
        };
        access.call(&call).map(drop).map_err(|error| error.code())
    };
    let all = || on(Kind::Object, "", &[Right::Call, Right::Create, Right::Read, Right::Delete]);
    let run = |pool: &str| on(Kind::Function, pool, &[Right::Run]);
    for method in ["call", "read", "version", "delete"] {
        assert_eq!(call(f.holder(vec![all()], None), method), Err(Code::CapabilityDenied), "{method}");
        assert_eq!(call(f.holder(vec![all(), run("pool-q")], None), method), Err(Code::CapabilityDenied), "{method}");
        let some = on(Kind::Object, "Shared", &[Right::Call, Right::Create, Right::Read, Right::Delete]);
        assert_eq!(call(f.holder(vec![some, run("pool-p")], None), method), Err(Code::CapabilityDenied), "{method}");
        let allowed = call(f.holder(vec![all(), run("pool-p")], None), method);
        assert_eq!(allowed, Err(Code::ObjectCallInvalid), "{method}: there are no workers here");
    }
}

#[test]
fn objects_are_deleted_by_whoever_may_delete_them() {
    let f = fixture();
    let delete = |rights: &[Right]| {
        let access = f.holder(vec![on(Kind::Object, "", rights)], None);
        open(&access, 0, 1000).unwrap();
        let session = [0; 16];
        let (kind, key, method) = ("Set", "words", "delete");
        let call = Call { session: &session, call: 1, kind, key, method, arguments: &[0x90], ..Call::default() };
        access.call(&call).map(drop).map_err(|error| error.code())
    };
    assert_eq!(delete(&[Right::Call, Right::Create, Right::Read]), Err(Code::CapabilityDenied));
    assert_eq!(delete(&[Right::Delete, Right::Read]), Ok(()));
}

#[test]
fn a_task_is_no_longer_than_the_records_that_a_capability_permits() {
    let f = fixture();
    let all = on(Kind::Object, "", &[Right::Call, Right::Create, Right::Read]);
    let rules = Rules {
        grants: vec![on(Kind::Function, "", &[Right::Run]), all],
        ids: vec![TokenId([1; 8])],
        record_max_bytes: Some(10),
        ..Rules::default()
    };
    let token = Authority::ensure(f.namespace.dir()).unwrap().issue(&rules).unwrap();
    let keys = f.served.keys().current().unwrap();
    let caller = admit(&*keys, token.body(), Proof::Bearer(token.signature()), PEER).unwrap();
    let access = f.served.access(&Arc::new(caller));
    let submit = |bytes: usize| {
        let task = vec![0; bytes];
        let invoke = Invoke { pool: "p", bodies: true, tasks: vec![Bytes::new(&task)], key: "k" };
        access.invoke(&invoke).wait().err().map(|error| error.code())
    };
    assert_eq!(submit(11), Some(Code::CapabilityDenied));
    assert_ne!(submit(10), Some(Code::CapabilityDenied));
}
